"""A model file that is cut short while it is served: requests fail by name, the server lives."""

import json
import os

import pytest

from tests.plugins import tiny
from tests.server.conftest import PATIENCE, Running, chat_body, receive
from tests.server.test_chat import CHAT

TOLD = "changed on disk while it was being served "


@pytest.fixture
def model(tmp_path):
    return tiny.write(tmp_path / "tiny.gguf", "qwen3-tied", keys={"qwen3.context_length": 32768})


@pytest.fixture
def server(model):
    server = Running(
        "golem-server", GOLEM_MODEL=str(model), GOLEM_CONTEXT="32768", GOLEM_PARALLEL="2"
    ).ready()
    yield server
    server.stop()


def test_answers_and_requests_fail_by_name_and_the_process_lives(model, server):
    # Any token is as likely as any other, and only the length ends this, half a minute later.
    any_token = {"temperature": 1e6, "top_k": 0, "top_p": 1, "min_p": 0, "ignore_eos": True}
    endless = {"stream": True, "max_tokens": -1, **any_token}
    connection = server.open(CHAT, chat_body("hello", **endless))
    receive(connection, lambda got: got.count(b"data: ") > 5)
    os.truncate(model, 100)
    received = receive(connection, lambda got: got.endswith(b"\r\n0\r\n\r\n"))
    error = json.loads(received[received.rindex(b'{"error"') :].split(b"\n\n")[0])["error"]
    assert error["message"].count(TOLD) == 1 and str(model) in error["message"]
    assert "restart the server" in error["message"]
    status, body = server.chat("hello", max_tokens=1)
    assert (status, body["error"]["type"]) == (500, "server_error")
    assert body["error"]["message"] == error["message"]
    assert server.get("/v1/models")[0] == 200
    for path in ("/health", "/v1/health", "/health/ready"):
        status, body = server.get(path)
        assert (status, body["status"]) == (503, "failed")
        assert body["reason"] == error["message"]
    assert server.get("/health/live") == (200, {"status": "ok"})
    server.terminate()
    assert server.process.wait(PATIENCE) == 0
