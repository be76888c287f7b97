"""A client that hangs up frees its slot within a pass, in every state, on both servers."""

import json

import pytest

from tests.server.conftest import PATIENCE, chat_body, receive, reset
from tests.server.test_chat import CHAT

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
LEAVING = pytest.mark.parametrize(
    "leave", [lambda connection: connection.close(), reset], ids=["close", "reset"]
)
LONG = "x" * 150  # three passes of 64


def forever(stream):
    return chat_body("forever", stream=stream, max_tokens=-1)


@STREAMED
@LEAVING
def test_while_the_prompt_is_read(served, stream, leave):
    served.allow(0)
    connection = served.open(CHAT, chat_body("say " + LONG, stream=stream, cache_prompt=False))
    served.until_state(lambda s: s["held_back"])
    leave(connection)
    before = served.until_state(lambda s: s["given_up"] == 1)["passes"]
    served.allow(None)
    after = served.until_idle()
    assert after["passes"] == before
    assert after["drawn"] == [0, 0]


@STREAMED
@LEAVING
def test_while_the_answer_is_drawn(served, stream, leave):
    served.allow(0)
    connection = served.open(CHAT, forever(stream))
    served.until_state(lambda s: s["held_back"])
    served.allow(5)
    served.until_state(lambda s: s["held_back"] and max(s["drawn"]) == 5)
    leave(connection)
    before = served.until_state(lambda s: s["given_up"] == 1)["passes"]
    served.allow(None)
    assert served.until_idle()["passes"] == before


@STREAMED
@LEAVING
def test_while_it_waits_for_a_slot(served, stream, leave):
    holders = served.fill_slots(forever(True))
    passes = served.state["stats"]["passes"]
    waiting = served.open(CHAT, chat_body("hello", stream=stream))
    served.until_state(lambda s: s["busy"] == 3)
    leave(waiting)
    state = served.until_state(lambda s: s["busy"] == 2)
    assert state["stats"]["passes"] == passes  # noticed although no pass could end
    for holder in holders:
        holder.close()
    served.until_state(lambda s: s["given_up"] == 2)
    served.allow(None)
    served.until_idle()


@LEAVING
def test_in_the_middle_of_a_stream_that_flows(served, leave):
    connection = served.open(CHAT, forever(True))
    receive(connection, lambda got: got.count(b"data: ") >= 5)
    leave(connection)
    served.until_idle()


def test_the_log_says_that_the_answer_was_given_up(served):
    start = len(served.log)
    served.allow(0)
    connection = served.open(CHAT, forever(False))
    served.until_state(lambda s: s["held_back"])
    connection.close()
    served.until_state(lambda s: s["given_up"] == 1)
    served.allow(None)
    served.wait_for_line(
        r"chat/completions 499 0 bytes in \S+ — slot \d[^—]* — .*, cancelled$", start
    )


def test_a_slot_that_was_left_serves_the_next_conversation(served):
    connection = served.open(CHAT, forever(True))
    connection.recv(64)
    connection.close()
    for _ in range(3):
        body = served.chat("hello")[1]
        assert body["choices"][0]["message"]["content"] == "you said: hello"


def test_a_pipelined_request_is_no_hang_up(served):
    served.allow(0)
    connection = served.open(CHAT, chat_body("hello"))
    served.until_state(lambda s: s["held_back"])
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    # Two looks of the probe pass before a third client is answered.
    for _ in range(2):
        waited = served.open(CHAT, chat_body("hello"))
        before = served.until_state(lambda s: s["busy"] == 2)
        waited.close()
        served.until_state(lambda s, b=before: s["given_up"] == 1 or s["busy"] == 1)
        served.allow(1)
        served.until_state(lambda s: s["busy"] == 1 and s["held_back"])
    served.allow(None)
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    assert received.count(b"HTTP/1.1 200") == 2
    assert b"you said: hello" in received


def test_an_unread_stream_does_not_hold_up_another_client(served):
    """A client that does not read keeps its own slot only."""
    stalled = served.open(CHAT, forever(True))
    try:
        status, body = served.chat("hello")
        assert status == 200, body
    finally:
        stalled.close()


def test_a_client_that_leaves_in_its_own_body_asks_nothing(served):
    import socket

    submitted = served.state["stats"]["submitted"]
    with socket.create_connection((served.host, served.port), PATIENCE) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
        connection.sendall(head.encode() + json.dumps(chat_body("hello")).encode()[:20])
    assert served.chat("hello")[0] == 200
    assert served.state["stats"]["submitted"] == submitted + 1
