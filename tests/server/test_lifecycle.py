"""From the first socket to the exit status: loading, a full queue, draining, failing."""

import http.client
import json
import os
import signal

import pytest

from golem_core.cpu import features
from tests.server.conftest import PATIENCE, chat_body, events_of, receive
from tests.server.test_chat import CHAT


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


LISTENS = r"Listening at: http://([\d.]+):(\d+)"


def loading(start, pipe):
    """A server whose socket is open and whose model waits for the pipe."""
    if start.kind == "waitress":  # says nothing before it is ready, so the port is chosen here
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = start(FAKE_PIPE=str(pipe), GOLEM_ADDR=f"127.0.0.1:{port}")
        server.host, server.port = "127.0.0.1", port
    else:
        server = start(FAKE_PIPE=str(pipe))
        host, port = server.wait_for_line(LISTENS).groups()
        server.host, server.port = host, int(port)

    def answers():
        try:
            return server.request("GET", "/health/live")[0] == 200
        except OSError:
            return False

    server.until(answers)
    return server


def test_every_route_answers_loading_model_until_it_is_ready(start, pipe):
    server = loading(start, pipe)
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/nope")):
        status, headers, body = server.request(method, path, json.dumps(chat_body("hello")))
        assert status == 503
        assert headers["Retry-After"] == "1"
        assert json.loads(body) == {
            "error": {
                "code": 503,
                "message": "Loading model",
                "type": "unavailable_error",
                "param": None,
                "progress": 0.25,
            }
        }
    assert server.get("/health")[0] == 503
    assert server.get("/health/ready")[0] == 503
    assert server.get("/health/live") == (200, {"status": "ok"})
    pipe.write_text("go")
    server.until(lambda: server.get("/health") == (200, {"status": "ok"}))
    assert server.get("/health/ready")[0] == 200
    assert server.chat("hello")[0] == 200


def test_a_model_that_cannot_be_loaded_is_one_line_and_a_failed_process(start, pipe):
    server = loading(start, pipe)
    start_line = len(server.log)
    pipe.write_text("bad")
    status = server.process.wait(PATIENCE)
    server.stop()
    assert status == 1
    lines = [line for line in server.log[start_line:] if line.startswith("golem-server: ")]
    expected = "golem-server: fake.gguf: this is no model: its first bytes are wrong"
    assert lines == [expected], server.log


@pytest.mark.parametrize("start", ["waitress"], indirect=True)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_while_the_model_is_loaded_ends_without_a_word(start, pipe, number, status):
    server = loading(start, pipe)
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == status
    server.stop()
    assert [line for line in server.log if not line.startswith("GET /health/live")] == []


def test_a_full_queue_is_a_503_that_says_when_to_come_back(served):
    held = served.fill_slots(chat_body("hello"))
    for busy in (3, 4):  # a queue of two
        held.append(served.open(CHAT, chat_body("hello")))
        served.until_state(lambda s, busy=busy: s["busy"] == busy)
    for stream in (False, True):
        data = json.dumps(chat_body("hello", stream=stream))
        status, headers, body = served.request("POST", CHAT, data)
        assert status == 503
        assert headers["Retry-After"] == "1"
        error = json.loads(body)["error"]
        assert error["type"] == "unavailable_error"
        assert error["message"] == (
            "every slot is taken and the queue of 2 is full: try again later, or start the server "
            "with a larger -queue"
        )
    served.allow(None)
    for connection in held:
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.close()


def test_more_prompts_in_one_request_than_may_wait_leave_nothing_behind(served):
    held = served.fill_slots(chat_body("hello"))
    status, body = served.post("/v1/completions", {"prompt": ["a"] * 3})
    assert status == 503
    assert body["error"]["type"] == "unavailable_error"
    assert served.state["busy"] == 2
    served.allow(None)
    for connection in held:
        connection.close()
    served.until_idle()


def test_comments_keep_a_stream_alive_while_it_waits_and_while_it_reads(start):
    server = start(FAKE_KEEP_ALIVE_SECONDS="0.05", GOLEM_PARALLEL="1").ready()
    server.allow(0)
    reading = server.open(CHAT, chat_body("say one", stream=True))
    server.until_state(lambda s: s["held_back"])
    queued = server.open(CHAT, chat_body("say two", stream=True))
    for connection, said in ((reading, b"one"), (queued, b"two")):
        received = receive(connection, lambda got: got.count(b": \n\n") >= 3)
        # The role is told once a slot is held, not before.
        assert (b'"role"' in received) == (said == b"one")
        assert said not in received
    server.allow(None)
    assert b'"role"' in receive(queued, lambda got: b"[DONE]" in got)


def test_an_error_of_a_stream_that_has_begun_is_a_frame_without_done(start):
    server = start(FAKE_KEEP_ALIVE_SECONDS="0.05").ready()
    server.allow(0)
    connection = server.open(CHAT, chat_body("boom", stream=True))
    received = receive(connection, lambda got: b": \n\n" in got)
    server.allow(None)
    received += receive(connection, lambda got: b"server_error" in got)
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"200" in head.split(b"\r\n")[0]
    payload = body[body.index(b'data: {"error"') + len("data: ") :].split(b"\n\n")[0]
    assert json.loads(payload)["error"]["message"].endswith("RuntimeError: the executor broke")
    assert b"[DONE]" not in received
    server.wait_for_line(r"POST \S+ 200 .*, error: the pass failed")


def test_who_waits_too_long_for_a_slot_is_told_when_to_come_back(start):
    server = start(GOLEM_QUEUE_TIMEOUT="200ms", FAKE_PASS_SECONDS="0.02", GOLEM_PARALLEL="1")
    server.ready()
    with server.open(CHAT, chat_body("forever", stream=True, max_tokens=-1)) as running:
        running.recv(1)
        for stream in (False, True):
            data = json.dumps(chat_body("hello", stream=stream))
            status, headers, body = server.request("POST", CHAT, data)
            assert (status, headers["Retry-After"]) == (503, "1")
            error = json.loads(body)["error"]
            assert error["type"] == "unavailable_error"
            assert error["message"].startswith("no slot came free within 0.2 s")
            assert "-queue-timeout" in error["message"]
    server.until_idle()


def test_an_answer_that_takes_too_long_is_a_504_or_an_error_frame(start):
    server = start(GOLEM_REQUEST_TIMEOUT="200ms", FAKE_PASS_SECONDS="0.02").ready()
    status, body = server.chat("forever", max_tokens=-1)
    assert (status, body["error"]["code"], body["error"]["type"]) == (504, 504, "server_error")
    assert "-request-timeout" in body["error"]["message"]
    *_, last = server.events(CHAT, chat_body("forever", stream=True, max_tokens=-1))
    assert json.loads(last) == body
    asked = {**chat_body("forever"), "max_tokens": -1}
    assert server.post("/v1/messages", asked)[1]["error"]["type"] == "timeout_error"
    server.until_idle()
    server.wait_for_line(r"POST \S+ 504 .*, error: the answer was not finished within 0.2 s")


def test_sigterm_lets_answers_finish_and_tells_new_requests_that_it_ends(start, pipe):
    server = start(FAKE_RELEASE=str(pipe)).ready()
    server.allow(0)
    stream = server.open(CHAT, chat_body("say a whole sentence", stream=True))
    server.until_state(lambda s: s["held_back"])
    server.terminate()
    server.until(lambda: server.request("GET", "/health")[0] == 503)
    for path in ("/health", "/v1/health", "/health/ready"):
        assert server.get(path) == (503, {"status": "draining"})
    assert server.get("/health/live") == (200, {"status": "ok"})
    for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("POST", "/v1/messages")):
        status, headers, body = server.request(method, path, json.dumps(chat_body("hello")))
        assert status == 503
        assert headers["Retry-After"] == "1"
        assert headers["Connection"] == "close"
        assert json.loads(body)["error"]["message"] == "this server is shutting down"
    pipe.write_text("go")
    received = receive(stream, lambda got: b"[DONE]" in got)
    text = "".join(
        json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        for line in received.decode().splitlines()
        if line.startswith("data: {")
    )
    assert text == "a whole sentence"
    stream.close()
    assert server.process.wait(PATIENCE) == 0


def test_connections_that_are_kept_alive_do_not_hold_the_end_up(start, pipe):
    server = start(FAKE_RELEASE=str(pipe)).ready()
    kept = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    kept.request("GET", "/health")
    assert kept.getresponse().read() == b'{"status":"ok"}'
    server.allow(0)
    running = server.open(CHAT, chat_body("hello"))
    server.until_state(lambda s: s["held_back"])
    server.terminate()
    server.until(lambda: server.request("GET", "/health")[0] == 503)
    if start.kind == "waitress":
        assert kept.sock.recv(1) == b""  # closed at once
    else:  # closed after the answer to the request that may be under way
        kept.request("GET", "/health")
        response = kept.getresponse()
        assert (response.status, response.headers["Connection"]) == (503, "close")
    pipe.write_text("go")
    assert b"you said: hello" in receive(running, lambda got: got.endswith(b"}"))
    assert server.process.wait(PATIENCE) == 0


def test_what_is_not_finished_in_time_fails_by_name(start):
    server = start(GOLEM_DRAIN="100ms", FAKE_PASS_SECONDS="0.02").ready()
    connection = server.open(CHAT, chat_body("forever", stream=True, max_tokens=-1))
    connection.recv(1)
    server.terminate()
    received = receive(connection, lambda got: b'"error"' in got)
    error = json.loads(events_of(b"data: " + received.split(b"data: ")[-1].split(b"\n\n")[0])[0])
    assert error["error"]["type"] == "unavailable_error"
    assert server.process.wait(PATIENCE) == 0


def test_a_second_signal_ends_at_once(start):
    server = start(GOLEM_DRAIN="1h", FAKE_PASS_SECONDS="0.02").ready()
    connection = server.open(CHAT, chat_body("forever", stream=True, max_tokens=-1))
    connection.recv(64)
    server.terminate()
    if start.kind == "waitress":
        server.wait_for_line("a second signal ends now")
        server.terminate()
    else:
        server.process.send_signal(signal.SIGQUIT)
    assert server.process.wait(PATIENCE) == 0
    connection.close()


def test_the_start_up_lines(start):
    server = start(GOLEM_ALIAS="tiny").ready()
    server.until(lambda: len([line for line in server.log if "listening" in line]) == 1)
    lines = [line for line in server.log if not line.startswith(("[", "GET"))]
    assert lines[0].startswith(
        "tiny: fake, 2 blocks, 512 positions in 2 slot(s) of 256, all on cpu, loaded in "
    )
    assert lines[0].endswith(" on 1 cores")
    assert lines[1] == f"kernels: {features()['set']}"
    assert "template: the file's" in lines
    assert lines[-1] == (
        f"listening on {server.url}/v1 — 2 conversations at once, batched into one pass"
    )
    assert server.get("/v1/models")[1]["data"][0]["id"] == "tiny"
