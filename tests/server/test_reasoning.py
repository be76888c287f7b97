"""Thoughts: apart from the answer, asked for in several ways, bounded, and gone on from."""

import json

import pytest

from tests.server.conftest import chat_body
from tests.server.test_chat import CHAT
from tests.server.test_tools import prompt_of, put_together, streamed, whole

THINKS = {"enable_thinking": True}


def says(text, **fields):
    return chat_body("json " + json.dumps(text), **{"max_tokens": 200, **fields})


def message(roomy, text, **fields):
    """The message, which is the same streamed."""
    body = says(text, **fields)
    choice = whole(roomy, body)
    deltas, reason = streamed(roomy, body)
    assert put_together(deltas) == choice["message"]
    assert reason == choice["finish_reason"]
    return choice["message"]


def test_a_thought_is_not_part_of_the_content(roomy):
    assert message(roomy, "<think>\nhm, \n hm\n</think>\n\nyes\n") == {
        "role": "assistant",
        "content": "yes\n",
        "reasoning_content": "hm, \n hm",
    }


def test_a_thought_that_is_cut_is_reasoning_to_the_end(roomy):
    body = says("<think>\nhm, hm", max_tokens=12)
    choice = whole(roomy, body)
    assert choice["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm, ",
    }
    assert choice["finish_reason"] == "length"


def test_an_empty_thought_is_none(roomy):
    assert message(roomy, "<think>\n\n</think>\n\nyes") == {"role": "assistant", "content": "yes"}


def test_the_legacy_format_tells_a_thought_twice_and_streams_it_in_the_content(roomy):
    said = "<think>\nhm\n</think>\n\nyes"
    body = says(said, reasoning_format="deepseek-legacy")
    assert whole(roomy, body)["message"] == {
        "role": "assistant",
        "content": said,
        "reasoning_content": "hm",
    }
    deltas, _ = streamed(roomy, body)
    assert put_together(deltas) == {"role": "assistant", "content": said}


@pytest.mark.parametrize("kind", ["auto", "deepseek", None])
def test_an_answer_that_begins_in_a_thought(roomy, kind):
    fields = {"chat_template_kwargs": THINKS | {"inside": True}, "reasoning_format": kind}
    assert message(roomy, "hm\n</think>\n\nyes", **fields) == {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "hm",
    }


def test_thoughts_stay_in_the_content_where_nobody_sorts_them(roomy):
    text = "<think>\nhm\n</think>\n\nyes"
    assert message(roomy, text, reasoning_format="none")["content"] == text
    inside = {"reasoning_format": "none", "chat_template_kwargs": THINKS | {"inside": True}}
    assert message(roomy, text[8:], **inside)["content"] == text[8:]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({}, "<user>"),
        ({"chat_template_kwargs": THINKS}, "<thinks>\n"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "<user>"),
        ({"reasoning_effort": "none"}, "<user>"),
        ({"reasoning_effort": "low"}, "<thinks>low\n"),
        ({"reasoning_effort": "minimal"}, "<thinks>low\n"),
        ({"reasoning_effort": "high"}, "<thinks>high\n"),
        ({"reasoning_effort": "none", "chat_template_kwargs": THINKS}, "<thinks>\n"),
        (
            {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
            "<user>",
        ),
    ],
)
def test_the_model_thinks_when_it_is_asked_to(roomy, fields, first):
    prompt = prompt_of(roomy, [{"role": "user", "content": "prompt"}], **fields)
    assert prompt.startswith(first)


@pytest.mark.parametrize(
    ("flag", "first"), [("off", "<user>"), ("on", "<thinks>\n"), ("auto", "<user>")]
)
def test_the_server_says_what_silence_means(start, flag, first):
    server = start(GOLEM_REASONING=flag).ready()
    ask = [{"role": "user", "content": "prompt"}]
    assert prompt_of(server, ask).startswith(first)
    assert prompt_of(server, ask, reasoning_effort="none").startswith("<user>")
    asked = prompt_of(server, ask, chat_template_kwargs=THINKS)
    assert asked.startswith("<thinks>\n")


# "<think>abcd" and then the answer, whatever the model would have thought
BUDGETED = "<think>abcdefghijklmno"


@pytest.mark.parametrize("name", ["thinking_budget_tokens", "reasoning_budget_tokens"])
def test_a_thought_ends_when_its_budget_is_spent(roomy, name):
    text = BUDGETED[: len("<think>abcd</think>")] + "done"
    assert message(roomy, text, **{name: 4}) == {
        "role": "assistant",
        "content": "done",
        "reasoning_content": "abcd",
    }
    assert message(roomy, BUDGETED, **{name: -1})["reasoning_content"] == BUDGETED[7:]


def test_a_budget_of_nothing_where_the_answer_begins_in_a_thought(roomy):
    fields = {"chat_template_kwargs": THINKS | {"inside": True}, "thinking_budget_tokens": 0}
    assert message(roomy, "12345678done", **fields) == {"role": "assistant", "content": "done"}


def test_past_thoughts_reach_the_template(roomy):
    past = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    messages = [past, {"role": "user", "content": "prompt"}]
    expected = '[assistant]b{"reasoning_content": "a"}\n<user>prompt\n'
    assert prompt_of(roomy, messages) == expected


def going_on(beginning, text, **fields):
    question = {"role": "user", "content": "json " + json.dumps(text)}
    messages = [question, {"role": "assistant", **beginning}]
    return {"messages": messages, "max_tokens": 100, **fields}


@pytest.mark.parametrize(
    ("beginning", "text", "fields", "expected"),
    [
        ({"content": "go"}, "good", {}, ("good", None)),
        (
            {"content": "", "reasoning_content": "h"},
            "<think>\nhm\n</think>\n\ngood",
            {},
            ("good", "hm"),
        ),
        (
            {"content": "go", "reasoning_content": "hm"},
            "<think>\nhm\n</think>\n\ngood",
            {},
            ("good", "hm"),
        ),
        ({"content": "<think>\nh"}, "<think>\nhm\n</think>\n\ngood", {}, ("good", "hm")),
        (
            {"content": "go"},
            "\n</think>\n\ngood",
            {"chat_template_kwargs": THINKS | {"inside": True}},
            ("good", None),
        ),
        (
            {"content": "", "reasoning_content": "h"},
            "hm\n</think>\n\ngood",
            {"chat_template_kwargs": THINKS | {"inside": True}},
            ("good", "hm"),
        ),
    ],
)
def test_the_beginning_of_an_answer_is_part_of_the_message_and_of_no_delta(
    roomy, beginning, text, fields, expected
):
    content, thought = expected
    body = going_on(beginning, text, **fields)
    got = whole(roomy, body)["message"]
    assert (got["content"], got.get("reasoning_content")) == (content, thought)
    deltas = put_together(streamed(roomy, body)[0])
    given = beginning.get("reasoning_content", "") + beginning["content"].replace("<think>\n", "")
    said = deltas.get("reasoning_content", "") + deltas["content"]
    assert given + said == (thought or "") + content


def test_a_thought_to_go_on_from_stands_between_its_marks_as_the_template_writes_it(roomy):
    """Newlines around it are the marks' own and not doubled."""
    beginnings = [{"content": "go", "reasoning_content": f"{n}hm{n}"} for n in ("", "\n")]
    bodies = [going_on(b, "<think>\nhm\n</think>\n\ngood") for b in beginnings]
    counts = [roomy.post(CHAT, body)[1]["usage"]["prompt_tokens"] for body in bodies]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reasoning_effort": 3}, "Field 'reasoning_effort': type must be string"),
        (
            {"thinking_budget_tokens": -2},
            "Field 'thinking_budget_tokens': Value must be between -1 <= value",
        ),
        ({"continue_final_message": True}, "continue_final_message goes on from a message of"),
    ],
)
def test_what_is_wrong_about_thoughts_is_named(roomy, fields, message):
    status, answer = roomy.post(CHAT, chat_body("hello") | fields)
    assert status == 400
    assert answer["error"]["message"].startswith(message)
