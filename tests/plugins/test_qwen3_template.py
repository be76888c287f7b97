"""The built-in Qwen3 template writes what the family's own template writes.

The vectors in tests/data were rendered with Jinja2 from the checkpoint's template, with Jinja2's
own ``tojson``, which sorts keys and escapes for HTML: declarations compare as JSON.
"""

import json

import pytest

from golem_core.text.template import ChatTemplate
from golem_plugins.qwen3.template import TEMPLATE
from tests import paths

CASES = json.loads(paths.data("text/qwen_chat.json").read_text(encoding="utf-8"))


def decoded(text: str) -> list:
    """The lines of a prompt, each declaration of a tool decoded."""
    lines, inside = [], False
    for line in text.split("\n"):
        inside = inside and line != "</tools>"
        lines.append(json.loads(line) if inside else line)
        inside = inside or line == "<tools>"
    return lines


def render(messages, **kwargs):
    return ChatTemplate(TEMPLATE).render(messages, **kwargs)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_vectors(case):
    text = render(
        case["messages"],
        tools=case["tools"],
        add_generation_prompt=case["gen"],
        enable_thinking=case["thinking"],
    )
    if case["tools"]:
        assert decoded(text) == decoded(case["rendered"])
    else:
        assert text == case["rendered"]


def test_declarations_keep_their_order_and_their_characters():
    tool = {"type": "function", "function": {"name": "z", "description": "é <b> & 'c'", "a": 1}}
    declared = render([{"role": "user", "content": "hi"}], tools=[tool])
    assert "\n" + json.dumps(tool, ensure_ascii=False) + "\n</tools>" in declared


def test_developer_is_read_as_system():
    def talk(role):
        return [{"role": role, "content": "a"}, {"role": "user", "content": "b"}]

    tools = [{"type": "function", "function": {"name": "f"}}]
    assert render(talk("developer")) == render(talk("system"))
    assert render(talk("developer"), tools=tools) == render(talk("system"), tools=tools)


def test_thoughts_after_the_last_question_are_kept():
    call = {"function": {"name": "f", "arguments": {}}}
    talk = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>\nold\n</think>\n\ntwo"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "<think>\nnew\n</think>\n\n", "tool_calls": [call]},
        {"role": "tool", "content": "result"},
        {"role": "assistant", "content": "four", "reasoning_content": "newer"},
    ]
    assert render(talk, add_generation_prompt=False) == (
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n"
        "<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n<think>\nnew\n</think>\n\n"
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nresult\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\nnewer\n</think>\n\nfour<|im_end|>\n"
    )


def test_a_result_in_a_user_turn_is_no_question():
    talk = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>\na\n</think>\n\ntwo"},
        {"role": "user", "content": "<tool_response>\nr\n</tool_response>"},
    ]
    assert "<think>\na\n</think>\n\ntwo" in render(talk)


def test_content_may_be_null_beside_calls_and_arguments_may_be_text():
    call = {"function": {"name": "f", "arguments": '{"a":1}'}}
    talk = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "two"},
    ]
    expected = '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"a":1}}\n'
    assert expected in render(talk)
