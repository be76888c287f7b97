"""Ollama's dialect, piece by piece."""

import json
import math

import pytest

from golem_server.errors import Refusal
from golem_server.keep_alive import read_keep_alive
from golem_server.ollama_answer import rfc3339
from golem_server.ollama_fit import fit_messages
from golem_server.ollama_options import read_options
from golem_server.ollama_request import with_pictures


def said(role, content):
    return {"role": role, "content": content}


# ---- num_ctx ----

TALK = [
    said("system", "SS"),
    said("user", "u1u1"),
    said("assistant", "a1a1"),
    said("user", "u2u2"),
    said("assistant", "a2"),
    said("user", "q"),
]
LONG_SYSTEM = [said("system", "S" * 10), said("user", "q")]


def length(messages):
    return sum(len(message["content"]) for message in messages)


@pytest.mark.parametrize(
    ("talk", "limit", "kept"),
    [
        (TALK, 100, ["SS", "u1u1", "a1a1", "u2u2", "a2", "q"]),
        (TALK, 17, ["SS", "u1u1", "a1a1", "u2u2", "a2", "q"]),
        (TALK, 9, ["SS", "u2u2", "a2", "q"]),
        (TALK, 5, ["SS", "a2", "q"]),
        (TALK, 3, ["SS", "q"]),
        (TALK, 1, ["SS", "q"]),
        (LONG_SYSTEM, 5, ["q"]),
        ([said("user", "too long")], 1, ["too long"]),
    ],
)
def test_the_oldest_messages_go(talk, limit, kept):
    assert [m["content"] for m in fit_messages(talk, limit, length)] == kept


def walked(messages, limit):
    """The rule as Ollama 0.13.3 has it: from the last message back, until one does not fit."""
    kept, system = len(messages) - 1, []
    for first in range(len(messages) - 2, -1, -1):
        system = [m for m in messages[:first] if m["role"] == "system"]
        if length(system + messages[first:]) > limit:
            break
        kept = first
    return system + messages[kept:]


@pytest.mark.parametrize("limit", range(0, 60, 3))
def test_the_rule_is_ollamas(limit):
    roles = ["user", "assistant", "system", "user", "assistant"] * 3
    talk = [said(role, "x" * (1 + place % 5)) for place, role in enumerate(roles)]
    assert fit_messages(talk, limit, length) == walked(talk, limit)


def test_few_conversations_are_counted():
    counted = []
    talk = [said("user", "x") for _ in range(1000)]

    def cost(messages):
        counted.append(len(messages))
        return len(messages)

    assert len(fit_messages(talk, 300, cost)) == 300
    assert len(counted) < 15


def test_a_conversation_does_not_begin_where_it_cannot():
    talk = [said("user", "a"), said("assistant", "call"), said("tool", "r"), said("tool", "s")]
    talk += [said("user", "q")]

    def cost(messages):
        return None if messages[0]["role"] == "tool" else length(messages)

    assert fit_messages(talk, 3, cost) == talk[-1:]
    assert fit_messages(talk, 7, cost) == talk[1:]


@pytest.fixture
def ask(served):
    def asked(path, status=200, **fields):
        got, body = served.post(path, {"model": "m", "stream": False, **fields})
        assert got == status, body
        return body

    return asked


def test_complaint_4_what_num_ctx_dropped_is_seen_or_refused(ask):
    """Prompts were cut without a word, and /v1 had no say."""
    talk = [said("system", "s"), said("user", "x" * 60), said("assistant", "y"), said("user", "q")]
    whole = "<system>s\n<user>" + "x" * 60 + "\n<assistant>y\n<user>q\n<assistant>"
    assert ask("/api/chat", messages=talk)["prompt_eval_count"] == len(whole)
    cut = ask("/api/chat", messages=talk, options={"num_ctx": 50})
    assert cut["prompt_eval_count"] == len("<system>s\n<assistant>y\n<user>q\n<assistant>")
    error = ask("/api/chat", 400, messages=talk, options={"num_ctx": 50}, truncate=False)["error"]
    assert error.startswith(
        f"the prompt is {len(whole)} tokens, more than num_ctx 50: Ollama would"
    )
    left = len("<system>s\n<user>q\n<assistant>")
    error = ask("/api/chat", 400, messages=talk, options={"num_ctx": 8})["error"]
    assert error.startswith(f"the prompt is {left} tokens, more than num_ctx 8 with the 2 oldest")
    error = ask("/api/chat", 400, messages=talk, options={"num_ctx": 8}, shift=False)["error"]
    assert error.startswith("the prompt is longer than the context length currently available")
    error = ask("/api/generate", 400, prompt="x" * 300)["error"]
    assert "more than num_ctx 256: Ollama" in error
    exact = "x" * (256 - len("<user>\n<assistant>"))
    error = ask("/api/generate", 400, prompt=exact)["error"]
    assert error.startswith("the prompt is 256 tokens, more than num_ctx 256 has room for: Ollama")
    assert ask("/api/generate", prompt=exact[1:])["eval_count"] == 1
    error = ask("/api/chat", 400, messages=talk, options={"num_ctx": 1000})["error"]
    assert error.startswith('option "num_ctx" is 1000, and a conversation has 256 positions here')


def test_prompt_and_answer_fit_num_ctx_together(ask):
    prompt = len("<user>forever\n<assistant>")
    body = ask("/api/chat", messages=[said("user", "forever")], options={"num_ctx": prompt + 7})
    assert (body["eval_count"], body["done_reason"]) == (7, "length")
    body = ask("/api/generate", prompt="forever", options={"num_ctx": 99, "num_predict": 5})
    assert body["eval_count"] == 5
    full = ask("/api/generate", prompt="forever", options={"num_ctx": prompt, "num_predict": -1})
    assert full["eval_count"] == 1


# ---- options ----


def test_every_option_has_its_place():
    sent = {
        "num_keep": 4,
        "num_thread": 8,
        "penalize_newline": True,
        "temperature": 1,
        "top_k": 3.0,
        "mirostat": 2,
        "typical_p": 0.5,
        "repeat_last_n": -1,
        "samplers": ["top_k"],
        "tfs_z": 1,
        "stop": ["a", ""],
        "num_predict": -2,
        "num_ctx": 2,
        "seed": None,
    }
    options = read_options(sent, 512)
    assert options.sampling == {
        "temperature": 1,
        "top_k": 3.0,
        "mirostat": 2,
        "typical_p": 0.5,
        "repeat_last_n": 512,
        "samplers": ["top_k"],
    }
    assert (options.stop, options.length, options.context) == (["a"], -1, 4)
    assert read_options(None, 512) == ({}, [], None, None)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"num_predict": "5"}, 'option "num_predict" must be of type integer'),
        ({"temperature": "0"}, 'option "temperature" must be of type float32'),
        ({"temperature": True}, 'option "temperature" must be of type float32'),
        ({"ignore_eos": 1}, 'option "ignore_eos" must be of type boolean'),
        ({"stop": "x"}, 'option "stop" must be of type array'),
        ({"stop": [1]}, 'option "stop" must be of type array'),
        ({"num_ctx": 1e99}, 'option "num_ctx" must be of type integer'),
        ({"tfs_z": 0.5}, 'option "tfs_z" is not implemented'),
        ({"num_predict": -3}, 'option "num_predict" is -3'),
        ({"tempereature": 1}, 'option "tempereature" is none that this server knows; there are'),
    ],
)
def test_options_that_are_wrong(sent, message):
    with pytest.raises(Refusal, match=message):
        read_options(sent, 512)


# ---- requests ----


@pytest.mark.parametrize(
    ("path", "sent", "status", "error"),
    [
        ("/api/chat", {}, 400, "model is required"),
        ("/api/generate", {"model": ""}, 400, "model is required"),
        ("/api/show", {}, 400, "model is required"),
        ("/api/chat", {"model": 5}, 400, "Field 'model': type must be string, but is number"),
        ("/api/chat", {"model": "m", "messages": "x"}, 400, "Field 'messages': type must be"),
        ("/api/chat", {"model": "m", "messages": ["x"]}, 400, "message 0 is string, and an"),
        ("/api/chat", {"model": "m", "messages": [{}]}, 400, "message 0: 'role' must be"),
        ("/api/chat", {"model": "m", "messages": [said("user", 5)]}, 400, "message 0: 'content'"),
        ("/api/chat", {"model": "m", "messages": [said("wizard", "x")]}, 400, 'role "wizard"'),
        (
            "/api/chat",
            {"model": "m", "messages": [said("user", "x")], "format": "xml"},
            400,
            'invalid format: "xml"; expected "json" or a valid JSON Schema object',
        ),
        (
            "/api/chat",
            {"model": "m", "messages": [said("user", "x")], "think": "hard"},
            400,
            'invalid think value: "hard" (must be "high", "medium", "low", "max", true, or false)',
        ),
        (
            "/api/chat",
            {"model": "m", "messages": [said("user", "x")], "logprobs": True, "top_logprobs": 21},
            400,
            "top_logprobs must be between 0 and 20",
        ),
        (
            "/api/chat",
            {"model": "m", "messages": [said("user", "x")], "keep_alive": "soon"},
            400,
            "keep_alive 'soon' is no duration",
        ),
        ("/api/generate", {"model": "m", "prompt": "x", "images": [5]}, 400, "must be base64"),
        ("/api/generate", {"model": "m", "prompt": "x", "images": ["?"]}, 400, "is not base64"),
        (
            "/api/generate",
            {"model": "m", "prompt": "x", "raw": True, "images": ["eA=="]},
            400,
            "raw",
        ),
    ],
)
def test_wrong_requests(served, path, sent, status, error):
    got, body = served.post(path, sent)
    assert (got, list(body)) == (status, ["error"])
    assert error in body["error"]


def test_bodies_that_are_none(served):
    assert served.post("/api/chat", b"") == (400, {"error": "missing request body"})
    status, body = served.post("/api/chat", b"{bad")
    assert status == 400 and list(body) == ["error"]


def test_wrong_methods_and_paths(served):
    status, _, body = served.request("GET", "/api/chat")
    assert (status, json.loads(body)) == (405, {"error": "405 method not allowed"})
    status, _, body = served.request("GET", "/api/none")
    assert (status, list(json.loads(body))) == (404, ["error"])


def test_it_says_that_it_runs(served):
    for method, body in (("GET", b"Ollama is running"), ("HEAD", b"")):
        status, headers, got = served.request(method, "/")
        assert (status, got) == (200, body)
        assert headers["Content-Type"].startswith("text/plain")
    version = served.get("/api/version")[1]["version"]
    assert tuple(map(int, version.split("."))) >= (0, 13)


def test_a_full_queue_is_a_503_in_ollamas_shape(served):
    asked = {"model": "m", "messages": [said("user", "forever")]}
    waiting = served.fill_slots({"messages": asked["messages"], "stream": True})
    waiting += [served.open("/api/chat", asked) for _ in range(2)]
    served.until_state(lambda s: s["busy"] == 4)
    status, headers, body = served.request("POST", "/api/chat", json.dumps(asked).encode())
    assert (status, headers["Retry-After"]) == (503, "1")
    assert list(json.loads(body)) == ["error"]
    for connection in waiting:
        connection.close()


def test_pictures_are_parts_of_a_message():
    image = "iVBORw0KGgoAAAAN"
    assert with_pictures("look", [image], "message 0") == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
        {"type": "text", "text": "look"},
    ]
    assert with_pictures("look", [], "message 0") == "look"


def test_moments():
    assert rfc3339(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456789Z"
    assert rfc3339(0) == "1970-01-01T00:00:00.000000000Z"


def test_a_bare_number_is_seconds_and_a_negative_one_for_ever():
    assert (read_keep_alive("90"), read_keep_alive("-1")) == (90, math.inf)
