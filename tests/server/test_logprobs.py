"""Probabilities of drawn tokens, and several answers to one prompt."""

import json
import math

import pytest

from golem_core.sample import Probs
from golem_server.logprobs import legacy_prompt
from tests.server.conftest import chat_body
from tests.server.test_chat import CHAT, stream
from tests.server.test_tools import CALL, TOOLS, says

COMPLETIONS = "/v1/completions"
LONE = -100.0  # what every other token is worth to the fake model


def choices(roomy, body, path=CHAT):
    status, answer = roomy.post(path, body)
    assert status == 200, answer
    return answer["choices"]


def content(roomy, body):
    (choice,) = choices(roomy, body)
    return choice["logprobs"]["content"]


def streamed_content(roomy, body):
    events = roomy.events(CHAT, body | {"stream": True})
    chunks = [json.loads(event) for event in events[:-1]]
    found = [chunk["choices"][0].get("logprobs") for chunk in chunks]
    return [entry for one in found if one for entry in one["content"]], chunks


def test_nothing_is_computed_when_nobody_asks(roomy):
    before = roomy.state["stats"]["probs"]
    (choice,) = choices(roomy, chat_body("say hi"))
    assert "logprobs" not in choice
    (choice,) = choices(roomy, {"prompt": "x", "max_tokens": 1}, COMPLETIONS)
    assert choice["logprobs"] is None
    assert all("logprobs" not in chunk["choices"][0] for chunk in stream(roomy, "say hi"))
    assert roomy.state["stats"]["probs"] == before
    content(roomy, chat_body("say hi", logprobs=True))
    assert roomy.state["stats"]["probs"] == before + len("hi") + 1


def test_an_entry_for_every_token_and_the_end(roomy):
    entries = content(roomy, chat_body("say hi", logprobs=True, top_logprobs=2))
    assert [entry["token"] for entry in entries] == ["h", "i", ""]
    assert [entry["bytes"] for entry in entries] == [[104], [105], []]
    assert [entry["id"] for entry in entries] == [104, 105, 257]
    for entry in entries:
        assert list(entry) == ["id", "token", "bytes", "logprob", "top_logprobs"]
        assert entry["logprob"] == pytest.approx(0, abs=1e-6)
        best, second = entry["top_logprobs"]
        assert best["id"] == entry["id"]
        assert best["logprob"] == entry["logprob"]
        assert second["logprob"] == pytest.approx(LONE, abs=0.05)  # of a float32 near 0
    assert entries[-1]["top_logprobs"][0]["token"] == ""


@pytest.mark.parametrize(("fields", "count"), [({}, 20), ({"top_logprobs": 5}, 5)])
def test_how_many_competitors_are_told(roomy, fields, count):
    entries = content(roomy, chat_body("say hi", logprobs=True, **fields))
    assert {len(entry["top_logprobs"]) for entry in entries} == {count}


def test_no_competitors_no_entries(roomy):
    (choice,) = choices(roomy, chat_body("say hi", logprobs=True, top_logprobs=0))
    assert "logprobs" not in choice


CASES = [
    ("say one two", {}, ["o", "n", "e", " ", "t", "w", "o", ""]),
    # the bytes of one character leave together
    ("bytes 61f09f998262", {}, ["a", "🙂", "b", ""]),
    # tokens of a stop text are no part of the answer, those held in vain are
    ("say one two", {"stop": "two"}, ["o", "n", "e", " "]),
    ("say one two", {"stop": "twenty"}, ["o", "n", "e", " ", "", "", "two", ""]),
    ("say abc", {"max_tokens": 2}, ["a", "b"]),
    # a character that is cut off has no entry
    ("bytes 61f09f9982", {"max_tokens": 3}, ["a"]),
]


@pytest.mark.parametrize(("text", "fields", "tokens"), CASES)
def test_entries_make_up_the_answer_streamed_and_not(roomy, text, fields, tokens):
    body = chat_body(text, logprobs=True, top_logprobs=1, **fields)
    (choice,) = choices(roomy, body)
    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == tokens
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    streamed, _ = streamed_content(roomy, body)
    assert streamed == entries


def test_entries_of_a_call_leave_with_its_delta(roomy):
    body = says("I look: " + CALL, logprobs=True, top_logprobs=1)
    entries, chunks = streamed_content(roomy, body)
    assert entries == content(roomy, body)
    assert "".join(entry["token"] for entry in entries) == "I look: " + CALL
    (chunk,) = [c for c in chunks if "tool_calls" in c["choices"][0]["delta"]]
    in_call = chunk["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in in_call) == CALL


def test_entries_of_thoughts_and_marks_are_there(roomy):
    text = "<think>\nhm\n</think>\n\nyes"
    body = says(text, tools=TOOLS, logprobs=True, top_logprobs=1)
    entries = content(roomy, body)
    assert "".join(entry["token"] for entry in entries) == text
    assert streamed_content(roomy, body)[0] == entries


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"top_logprobs": 3}, "top_logprobs requires logprobs to be set to true"),
        ({"logprobs": False, "top_logprobs": 3}, "top_logprobs requires logprobs to be set to"),
        ({"logprobs": 3}, "Field 'logprobs': type must be boolean, but is number"),
        (
            {"logprobs": True, "top_logprobs": -1},
            "Field 'top_logprobs': Value must be between 0 <= value",
        ),
        ({"logprobs": True, "top_logprobs": "2"}, "Field 'top_logprobs': type must be number"),
    ],
)
def test_what_is_wrong_about_probabilities_is_named(roomy, fields, message):
    status, answer = roomy.post(CHAT, chat_body("hello") | fields)
    assert status == 400
    assert answer["error"]["message"].startswith(message)


# ---- /v1/completions ----


PROMPT = "<user>say é one\n<assistant>"


def test_completions_tell_them_in_the_older_shape(roomy):
    body = {"prompt": PROMPT, "logprobs": 2}
    (choice,) = choices(roomy, body, COMPLETIONS)
    told = choice["logprobs"]
    assert list(told) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    assert told["tokens"] == ["é", " ", "o", "n", "e", ""]
    assert told["text_offset"] == [0, 1, 2, 3, 4, 5]
    assert all(math.isclose(value, 0, abs_tol=1e-6) for value in told["token_logprobs"])
    assert [len(best) for best in told["top_logprobs"]] == [2] * 6
    assert next(iter(told["top_logprobs"][0])) == "bytes:\\xa9"  # half a character
    assert next(iter(told["top_logprobs"][2])) == "o"
    events = roomy.events(COMPLETIONS, body | {"stream": True})
    chunks = [json.loads(event)["choices"][0]["logprobs"] for event in events[:-1]]
    for name, values in told.items():
        assert [value for chunk in chunks if chunk for value in chunk[name]] == values


def test_completions_tell_the_drawn_token_alone(roomy):
    (choice,) = choices(roomy, {"prompt": PROMPT, "logprobs": 0}, COMPLETIONS)
    assert choice["logprobs"]["tokens"][:2] == ["é", " "]
    assert choice["logprobs"]["top_logprobs"][0] == {}


# ---- several answers ----


def test_several_answers_are_choices_of_one_body(roomy):
    status, body = roomy.post(CHAT, chat_body("say hi", n=2))
    assert status == 200
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert {choice["message"]["content"] for choice in body["choices"]} == {"hi"}
    assert body["usage"]["prompt_tokens"] == len("<user>say hi\n<assistant>")
    assert body["usage"]["completion_tokens"] == 2 * len("hi.")
    assert body["usage"]["total_tokens"] == sum(
        body["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    )


def test_several_answers_interleave_in_a_stream(roomy):
    chunks = stream(roomy, "say hello there", n=2, stream_options={"include_usage": True})
    usage = chunks.pop()
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2 * len("hello there.")
    by_index = {0: "", 1: ""}
    order = []
    for chunk in chunks:
        (choice,) = chunk["choices"]
        by_index[choice["index"]] += choice["delta"].get("content") or ""
        order.append(choice["index"])
    assert by_index == {0: "hello there", 1: "hello there"}
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:2]] == [
        {"role": "assistant", "content": None}
    ] * 2
    assert order != sorted(order)
    finished = [c["choices"][0]["finish_reason"] for c in chunks]
    assert finished.count("stop") == 2


def test_several_answers_to_several_prompts(roomy):
    prompts = ["<user>say a\n<assistant>", "<user>say bb\n<assistant>"]
    body = {"prompt": prompts, "n": 2, "echo": True}
    status, answer = roomy.post(COMPLETIONS, body)
    assert status == 200
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts == [prompts[0] + "a"] * 2 + [prompts[1] + "bb"] * 2
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert answer["usage"]["completion_tokens"] == 2 * (2 + 3)


def test_more_probabilities_than_memory_should_hold_are_refused(tiny):
    """The tiny vocabulary has 320 tokens and a slot 256 positions: no request of it is too much,
    but several answers to many prompts are."""
    body = {"prompt": ["a"] * 20, "logprobs": 320, "max_tokens": -1}
    error = tiny.ask("/v1/completions", body, 400)["error"]
    assert error["message"].startswith("320 competitors of each of 5120 tokens are asked for")
    assert "lower top_logprobs" in error["message"]
    whole = tiny.ask("/v1/completions", {"prompt": "a", "logprobs": 10**6, "max_tokens": 2})
    assert all(len(top) > 256 for top in whole["choices"][0]["logprobs"]["top_logprobs"])


def test_no_token_asked_for_is_one_as_at_llama_server(roomy):
    for fields in ({"max_tokens": 0}, {"n_predict": 0}, {"max_completion_tokens": 0}):
        status, answer = roomy.chat("say abc", **fields)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 1)


class OneEach:
    """Some bytes a token, and two that begin a text."""

    PIECES = (b"<s>", b" one", b" two", b"\xe2\x82", b"\xac", b"\xff")

    def piece(self, token, special=False):
        return self.PIECES[token] if token or special else b""


@pytest.mark.parametrize(
    ("tokens", "text", "offsets"),
    [
        ([0, 1, 2], "one two", [0, 0, 3]),  # neither the token in front nor the space was given
        ([1, 2], " one two", [0, 4]),
        ([0, 1, 3, 4, 2], "<s> one€ two", [0, 3, 7, 7, 8]),
        ([1, 5, 2, 3], " one\ufffd two", [0, 4, 5, 9]),  # no character, and half of one
    ],
)
def test_offsets_of_a_prompts_tokens_lie_in_its_text(tokens, text, offsets):
    probs = [None, *(Probs(-1.0, ((0, -0.5), (token, -1.0))) for token in tokens[1:])]
    told = legacy_prompt(OneEach(), tokens, probs, text, 2)
    assert told["text_offset"] == offsets
    assert told["token_logprobs"] == [None] + [-1.0] * (len(tokens) - 1)
    names = [told["tokens"][i] for i in range(1, len(tokens))]
    assert all(told["top_logprobs"][i + 1][name] == -1.0 for i, name in enumerate(names))
    assert told["top_logprobs"][1]["<s>"] == -0.5
