"""What is wrong before a request is one, on raw sockets: golem's errors, not the web server's."""

import contextlib
import json
import re
import socket

import pytest

from tests.server.conftest import PATIENCE, chat_body, receive
from tests.server.test_chat import CHAT

POST = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n".encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def connect(served):
    return socket.create_connection((served.host, served.port), PATIENCE)


def to_the_end(connection):
    """Everything until the other side closes, in good order."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


def exchange(served, request):
    """``(status, headers, JSON)`` of an answer after which the connection ends."""
    with connect(served) as connection:
        connection.sendall(request)
        return parsed(to_the_end(connection))


def parsed(response):
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    assert len(body) == int(headers["content-length"])
    return int(first.split()[1]), headers, json.loads(body)


BROKEN = {
    "no request line": (b"nonsense\r\n\r\n", 400, "is no HTTP/1.1 request"),
    "binary": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "no HTTP/1.1 request"),
    "a lower-case method": (b"get / HTTP/1.1\r\n\r\n", 400, "is no HTTP/1.1 request"),
    "a header without a colon": (b"GET / HTTP/1.1\r\nBad\r\n\r\n", 400, "is no HTTP/1.1 request"),
    "a target that is no address": (
        b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        400,
        "is no HTTP/1.1 request",
    ),
    "a length of 5,000 digits": (
        POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        400,
        "is no HTTP/1.1 request",
    ),
    "a length that is a word": (POST + b"Content-Length: many\r\n\r\n", 400, "no HTTP/1.1 request"),
    "a negative length": (POST + b"Content-Length: -5\r\n\r\n", 400, "no HTTP/1.1 request"),
    "two lengths": (
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        400,
        "is no HTTP/1.1 request",
    ),
    "a chunk size that is none": (CHUNKED + b"zz\r\n", 400, "is no HTTP/1.1 request"),
    "a chunk without its end": (CHUNKED + b"2\r\n{}xx", 400, "is no HTTP/1.1 request"),
    "an endless chunk size": (CHUNKED + b"1" * 20000, 400, "is no HTTP/1.1 request"),
    "another transfer coding": (
        POST + b"Transfer-Encoding: gzip\r\n\r\n",
        400,
        "is no HTTP/1.1 request",
    ),
    "a chunked HTTP/1.0": (
        POST.replace(b"/1.1", b"/1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "is no HTTP/1.1 request",
    ),
    "large headers": (POST + b"X: " + b"x" * 70000 + b"\r\n\r\n", 431, "send fewer or shorter"),
    "a body that is announced too large": (
        POST + b"Content-Length: 1000000000000\r\n\r\n",
        413,
        "start the server with a larger -max-body",
    ),
    "a large body that waits to be asked for": (
        POST + b"Expect: 100-continue\r\nContent-Length: 9000\r\n\r\n",
        413,
        "start the server with a larger -max-body",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_request_is_told_why_in_json(served, case):
    request, expected, said = BROKEN[case]
    before = len(served.log)
    status, headers, body = exchange(served, request)
    assert (status, body["error"]["code"]) == (expected, expected)
    assert said in body["error"]["message"]
    assert body["error"].keys() == {"code", "message", "type", "param"}
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["connection"] == "close"
    assert headers["server"] == "golem"
    served.wait_for_line(rf" {expected} \d+ bytes in .*: .*{said}", before)
    assert served.chat("hello")[0] == 200
    lines = [line for line in served.log[before:] if not re.match(r"\S+ \S+ (200|503) ", line)]
    assert len(lines) == 1, lines


def test_a_broken_request_of_another_dialect_is_told_in_its_shape(served):
    request = CHUNKED.replace(CHAT.encode(), b"/v1/messages") + b"zz\r\n"
    status, _, body = exchange(served, request)
    assert (status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    large = POST.replace(CHAT.encode(), b"/v1/messages") + b"Content-Length: 99999\r\n\r\n"
    assert exchange(served, large)[2]["error"]["type"] == "request_too_large"


def head_of(size, in_line):
    """The line and the headers of a request, so many bytes with their end."""
    line, rest = "GET /health HTTP/1.1\r\n", "Host: localhost\r\nConnection: close\r\n\r\n"
    more = "x" * (size - len(line) - len(rest) - (1 if in_line else len("X: \r\n")))
    if in_line:
        return f"GET /health?{more} HTTP/1.1\r\n{rest}".encode()
    return f"{line}X: {more}\r\n{rest}".encode()


@pytest.mark.parametrize("in_line", [False, True])
def test_line_and_headers_together_may_have_64_kib(served, in_line):
    assert exchange(served, head_of(65536, in_line))[0] == 200
    status, _, body = exchange(served, head_of(65537, in_line))
    assert status == 431
    assert "larger than 64KiB" in body["error"]["message"]


@pytest.mark.parametrize("chunks", [b"", b"5\r\n     \r\n"])
def test_a_chunk_that_would_be_too_much_is_refused_when_it_is_announced(served, chunks):
    limit = 8192 - (5 if chunks else 0)
    with connect(served) as connection:
        connection.sendall(CHUNKED + chunks + b"%x\r\n" % (limit + 1))
        status, headers, body = parsed(receive(connection, lambda got: got.endswith(b"}")))
    assert (status, headers["connection"]) == (413, "close")
    assert "-max-body" in body["error"]["message"]
    with connect(served) as connection:
        connection.sendall(CHUNKED + chunks + b"%x\r\n" % limit + b" " * limit + b"\r\n0\r\n\r\n")
        status, _, body = parsed(receive(connection, lambda got: got.endswith(b"}")))
    assert (status, "it is empty" in body["error"]["message"]) == (400, True)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_is_still_sending_a_large_body_gets_the_refusal(served, chunked):
    """Closing a connection with unread bytes resets it, and the answer would be lost."""
    piece = b" " * 65536
    with connect(served) as connection:
        if chunked:
            connection.sendall(CHUNKED)
            piece = b"10000\r\n" + piece + b"\r\n"
        else:
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % (65536 * 64))
        for _ in range(64):
            connection.sendall(piece)
        if chunked:
            connection.sendall(b"0\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
        status, _, body = parsed(to_the_end(connection))
    assert status == 413
    assert "-max-body" in body["error"]["message"]


def test_a_body_that_ends_early_is_nobodys_error(served):
    with connect(served) as connection:
        connection.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    before = len(served.log)
    assert served.chat("hello")[0] == 200
    assert not [line for line in served.log[before:] if "Traceback" in line]
    served.until_idle()


HALVES = [b"", b"\r\n", b"GET / HT", POST, POST + b"X: y\r\n"]


def test_headers_that_do_not_come_end_the_connection(start):
    server = start(FAKE_HEADER_SECONDS="0.3", FAKE_IDLE_SECONDS="0.3").ready()
    held = [connect(server) for _ in HALVES]
    for connection, sent in zip(held, HALVES, strict=True):
        connection.sendall(sent)
    for connection, sent in zip(held, HALVES, strict=True):
        received = to_the_end(connection)
        connection.close()
        if server.kind == "waitress" and sent:
            status, _, body = parsed(received)
            assert (status, body["error"]["code"]) == (408, 408)
            assert "did not arrive in time" in body["error"]["message"]
        else:
            assert received == b""
    assert server.chat("hello")[0] == 200


def test_a_body_that_does_not_come_ends_the_connection(start):
    server = start(FAKE_BODY_SECONDS="0.3").ready()
    for request in (CHUNKED + b"5\r\n{", POST + b"Content-Length: 100\r\n\r\n{"):
        status, _, body = exchange(server, request)
        assert status == 408
        assert "did not arrive in time" in body["error"]["message"]
    assert server.chat("hello")[0] == 200


@pytest.mark.parametrize("start", ["waitress"], indirect=True)
def test_an_idle_connection_is_closed_after_its_time(start):
    server = start(FAKE_IDLE_SECONDS="0.3").ready()
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert to_the_end(connection).endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("start", ["waitress"], indirect=True)
def test_one_connection_too_many_is_told_so(start):
    server = start(FAKE_CONNECTIONS="3", FAKE_EVICT_SECONDS="1000").ready()
    held = [connect(server) for _ in range(3)]
    for connection in held:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.recv(100)
    with connect(server) as connection:
        status, headers, body = parsed(to_the_end(connection))
    assert (status, headers["retry-after"]) == (503, "1")
    assert body["error"]["message"].startswith("3 connections are open")
    held.pop().close()
    server.until(lambda: _answers(server))
    for connection in held:
        connection.close()


@pytest.mark.parametrize("start", ["waitress"], indirect=True)
def test_half_requests_make_room_for_whole_ones(start):
    server = start(FAKE_CONNECTIONS="3", FAKE_EVICT_SECONDS="0").ready()
    with server.open(CHAT, chat_body("say hi")) as running:
        held = [connect(server) for _ in range(5)]
        for connection in held:
            connection.sendall(POST)
        assert server.chat("hello")[0] == 200
        assert b'"content":"hi"' in receive(running, lambda got: got.endswith(b"}"))
    closed = 0
    for connection in held:
        connection.settimeout(PATIENCE if not closed else 0.01)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            closed += connection.recv(1000) == b""
        connection.close()
    assert closed >= 1


def _answers(server):
    try:
        return server.chat("hello")[0] == 200
    except (OSError, ValueError):
        return False


def test_pipelined_requests_are_answered_in_turn(served):
    body = json.dumps(chat_body("say one")).encode()
    first = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(served) as connection:
        connection.sendall(first + last)
        received = to_the_end(connection)
    assert received.count(b"HTTP/1.1 200") == 2
    assert received.index(b'"content":"one"') < received.index(b'{"status":"ok"}')
