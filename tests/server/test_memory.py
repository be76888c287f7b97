"""Large bodies: how much of them is handled at once, how fast, and that the memory goes back."""

import json
import os
import re
import threading

import pytest

from golem_server.errors import ClientGone
from golem_server.memory import Room
from tests.server.conftest import PATIENCE, chat_body
from tests.server.test_chat import CHAT


def test_what_is_too_much_waits_until_another_leaves():
    room = Room()
    room.enter(60, 100, lambda: False)
    entered = threading.Event()

    def enter():
        room.enter(50, 100, lambda: False)
        entered.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    room.enter(40, 100, lambda: False)  # which still fits
    assert not entered.is_set()
    room.leave(60)
    assert entered.wait(PATIENCE)
    waiting.join(PATIENCE)
    assert room.taken == 90


def test_one_body_always_finds_room():
    room = Room()
    room.enter(500, 100, lambda: False)
    room.add(1000)
    assert room.taken == 1500
    room.leave(1500)
    assert room.taken == 0


def test_who_hangs_up_while_waiting_is_let_go():
    room = Room()
    room.enter(100, 100, lambda: False)
    with pytest.raises(ClientGone):
        room.enter(1, 100, lambda: True)
    assert room.taken == 100


def resident(server):
    """MiB of memory that a server's process has to itself."""
    status = server.get("/test/state")[1]["status"]
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) >> 10


MEGABYTES = 30


@pytest.fixture(params=["waitress", "gunicorn"])
def large(request, _running):
    return _running(request.param, GOLEM_MAX_BODY="64MiB", GOLEM_CONTEXT="8192")


def test_prompts_of_megabytes_are_refused_at_once_with_the_counts(large):
    text = "say " + "x" * (10 << 20)
    for path, body in ((CHAT, chat_body(text)), ("/v1/completions", {"prompt": text})):
        status, answer = large.post(path, body)
        assert status == 400
        error = answer["error"]
        assert error["type"] == "exceed_context_size_error"
        assert error["n_ctx"] == 4096
        assert error["n_prompt_tokens"] == len(text)  # the fake has one for each character
        assert error["message"].startswith(f"request (at least {len(text)} tokens) exceeds")
    status, answer = large.post("/v1/completions", {"prompt": [5] * 100_000})
    assert (status, answer["error"]["n_prompt_tokens"]) == (400, 100_000)
    messages = [{"role": "user", "content": "hello"}] * 100_000
    status, answer = large.post(CHAT, {"messages": messages})
    assert (status, answer["error"]["n_prompt_tokens"]) == (400, 100_000)
    assert large.chat("hello")[0] == 200


def test_more_values_than_any_prompt_has_are_refused_unread(large):
    status, answer = large.post("/v1/completions", {"prompt": [5] * 2_200_000})
    assert status == 400
    assert "more than 2097152 values" in answer["error"]["message"]


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_memory_of_large_bodies_goes_back_to_the_system(large):
    assert large.chat("hello")[0] == 200
    before = resident(large)
    text = json.dumps(chat_body("x" * (MEGABYTES << 20))).encode()
    many = {"messages": [{"role": "user", "content": "hello"}] * 400_000}
    bodies = [text, json.dumps(many).encode()] * 2
    threads = [threading.Thread(target=large.post, args=(CHAT, body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert large.chat("hello")[0] == 200
    large.until(lambda: resident(large) < before + MEGABYTES)
