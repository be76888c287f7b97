"""Tools: declared, called, answered, and refused where something about them is wrong."""

import json

import pytest

from tests.server.conftest import chat_body
from tests.server.test_chat import CHAT

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"z": 1.50, "city": "Lyon"}}\n</tool_call>'
TAGGED = (
    "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>"
)
TWO = CALL + '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def says(text, **fields):
    """A request whose answer is the text."""
    return chat_body("json " + json.dumps(text), **{"tools": TOOLS, "max_tokens": 200, **fields})


def whole(roomy, body):
    status, answer = roomy.post(CHAT, body)
    assert status == 200, answer
    return answer["choices"][0]


def streamed(roomy, body):
    """The deltas of a stream and its finish reason."""
    events = roomy.events(CHAT, body | {"stream": True})
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    return deltas[1:-1], chunks[-1]["choices"][0]["finish_reason"]


def put_together(deltas):
    """The message that deltas add up to, as clients do it."""
    message = {"role": "assistant", "content": ""}
    for delta in deltas:
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = message.get(key, "") + delta[key]
        for call in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            assert call["index"] == len(calls), "a call leaves in one delta"
            calls.append({k: call[k] for k in ("type", "function", "id")})
    return message


def without_ids(message):
    calls = [{k: c[k] for k in c if k != "id"} for c in message.get("tool_calls", [])]
    return {**message, **({"tool_calls": calls} if calls else {})}


def test_a_call_is_part_of_the_message(roomy):
    choice = whole(roomy, says("I look.\n" + CALL))
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] == "I look.\n"
    (call,) = message["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert call["function"] == {"name": "weather", "arguments": '{"z":1.50,"city":"Lyon"}'}


def test_a_streamed_call_leaves_whole_in_one_delta(roomy):
    deltas, reason = streamed(roomy, says("I look.\n" + CALL))
    assert reason == "tool_calls"
    assert [delta for delta in deltas if "tool_calls" in delta] == deltas[-1:]
    (call,) = deltas[-1]["tool_calls"]
    assert list(call) == ["index", "id", "type", "function"]
    assert call["index"] == 0
    assert call["function"] == {"name": "weather", "arguments": '{"z":1.50,"city":"Lyon"}'}
    assert "".join(delta["content"] for delta in deltas[:-1]) == "I look.\n"


@pytest.mark.parametrize(
    "text",
    [
        *("plain", CALL, TAGGED, TWO, "first " + TWO, "a <tool b", "a\n</think> b"),
        *("<think>\nhm\n</think>\n\n" + TWO, "<think>\nhm " + CALL, "<think>\n\n</think>\n\nok"),
        "é <thin🙂k> <think>\n\nü\n\n</think>\n\n\nok <",
    ],
)
def test_deltas_add_up_to_the_message(roomy, text):
    message = whole(roomy, says(text))["message"]
    deltas, _ = streamed(roomy, says(text))
    assert without_ids(put_together(deltas)) == without_ids(message)
    assert "<think>" not in message["content"]


def test_the_tags_of_a_later_model_are_read_by_the_type_of_the_parameter(roomy):
    (call,) = whole(roomy, says(TAGGED))["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"city":"12"}'


def test_ids_of_calls_are_unique(roomy):
    ids = [c["id"] for _ in range(3) for c in whole(roomy, says(TWO))["message"]["tool_calls"]]
    assert len(set(ids)) == 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (CALL.replace("weather", "secret_name"), 'a call of "secret_name", which is none of the'),
        ("<tool_call>\n{broken}\n</tool_call>", "a call that is not JSON"),
        (CALL + "\nso there", "something follows a call"),
        (CALL[:-20], "a call that never closes"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_finished_call_that_cannot_be_read_is_an_error(roomy, text, why, stream):
    start = len(roomy.log)
    expected = "the model wrote a call this server cannot read: " + why
    if stream:
        events = roomy.events(CHAT, says(text, stream=True))
        assert "[DONE]" not in events
        error = json.loads(events[-1])["error"]
        assert not any("<tool_call>" in event for event in events)
    else:
        status, answer = roomy.post(CHAT, says(text))
        assert status == 500
        error = answer["error"]
    assert error["message"].startswith(expected)
    assert (error["type"], error["code"]) == ("server_error", 500)
    line = roomy.wait_for_line(r"POST /v1/chat/completions .*cannot read", start)
    assert "secret_name" not in line.string
    assert roomy.chat("hello")[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_was_cut_is_no_call(roomy, stream):
    body = says("Look: " + CALL, max_tokens=40)
    if stream:
        deltas, reason = streamed(roomy, body)
        message = put_together(deltas)
    else:
        choice = whole(roomy, body)
        message, reason = choice["message"], choice["finish_reason"]
    assert message == {"role": "assistant", "content": "Look: "}
    assert reason == "length"


def test_a_call_that_a_stop_text_cut_is_no_call_either(roomy):
    choice = whole(roomy, says("Look: " + CALL, stop="Lyon"))
    assert choice["message"] == {"role": "assistant", "content": "Look: "}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_two_tools_of_one_name_are_refused(roomy, choice):
    """A call says only the name: neither whose parameters it takes nor which one is meant."""
    other = {"type": "function", "function": {"name": "weather"}}
    body = chat_body("x", tools=[*TOOLS, other], tool_choice=choice)
    status, answer = roomy.post(CHAT, body)
    assert status == 400
    assert answer["error"]["message"].startswith('tool 2: there is a function "weather" already')


@pytest.mark.parametrize("fields", [{"tools": []}, {"tools": None}, {"tool_choice": "none"}])
def test_without_tools_a_call_is_prose(roomy, fields):
    choice = whole(roomy, says(CALL, **fields))
    assert choice["message"]["content"] == CALL
    assert choice["finish_reason"] == "stop"


def test_only_one_call_where_several_are_not_wanted(roomy):
    message = whole(roomy, says(TWO, parallel_tool_calls=False))["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather"]
    both = whole(roomy, says(TWO, parallel_tool_calls=True))["message"]
    assert [call["function"]["name"] for call in both["tool_calls"]] == ["weather", "now"]


# ---- into the prompt ----


def prompt_of(roomy, messages, **fields):
    """The prompt as the fake template writes it."""
    return whole(roomy, {"messages": messages, "max_tokens": 250, **fields})["message"]["content"]


def test_tools_reach_the_template_unless_none_is_to_be_called(roomy):
    ask = [{"role": "user", "content": "prompt"}]
    assert prompt_of(roomy, ask, tools=TOOLS) == "<tools>weather,now\n<user>prompt\n"
    assert prompt_of(roomy, ask, tools=TOOLS, tool_choice="none") == "<user>prompt\n"
    assert prompt_of(roomy, ask, tools=TOOLS, tool_choice="auto").startswith("<tools>")


def calling(arguments, **fields):
    function = {"name": "now", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "a", "function": function}], **fields}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"a": 1}', '{"a": 1}'), ("", "{}"), (None, "{}"), ({"b": []}, '{"b": []}')],
)
def test_arguments_of_past_calls_reach_the_template_as_objects(roomy, arguments, shown):
    messages = [calling(arguments, content=None), {"role": "user", "content": "prompt"}]
    assert prompt_of(roomy, messages).startswith(
        '[assistant]{"tool_calls": [{"id": "a", "type": "function", "function": {"name": "now", '
        f'"arguments": {shown}}}}}]}}\n'
    )


def test_a_tools_result_reaches_the_template_with_its_call(roomy):
    result = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "noon"}]}
    messages = [{"role": "user", "content": "when"}, calling("{}"), result]
    content = whole(roomy, {"messages": messages, "tools": TOOLS, "max_tokens": 99})["message"][
        "content"
    ]
    assert content == 'the tools said: noon{"tool_call_id": "a"}\n'


USER = {"role": "user", "content": "hello"}
RESULT = {"role": "tool", "content": "x", "tool_call_id": "a"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": {}}, "Failed to parse tools: Expected 'tools' to be an array, got object"),
        ({"tools": [5]}, "tool 0 is number, and an object is expected"),
        (
            {"tools": [NOW, {"type": "web_search"}]},
            'tool 1: tool type "web_search" is not implemented; only functions are',
        ),
        ({"tools": [{"type": "function"}]}, "tool 0: a tool with no function name"),
        (
            {"tools": [{"type": "function", "function": {"name": ""}}]},
            "tool 0: a tool with no function name",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tool 0: 'parameters' must be an object, it is array",
        ),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "Invalid tool_choice: sometimes"),
        ({"tools": TOOLS, "tool_choice": {}}, "tool_choice as an object names a function"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}},
            'tool_choice names "g", which is none of the tools',
        ),
        ({"tool_choice": "required"}, "tool_choice asks for a call, and there are no tools"),
        ({"parallel_tool_calls": "no"}, "Field 'parallel_tool_calls': type must be boolean"),
        (
            {"messages": [USER, {"role": "assistant", "content": "yo"}, RESULT]},
            "message 2 is a tool result, but message 1 made no call",
        ),
        ({"messages": [RESULT]}, "message 0 is a tool result, and a result answers a call that"),
        (
            {"messages": [USER, calling("{}"), RESULT | {"tool_call_id": "b"}]},
            'message 2 answers the call "b", which message 1 did not make; it made a',
        ),
        (
            {"messages": [USER, calling("[1]")]},
            "message 1: tool call arguments are not a JSON object",
        ),
        (
            {"messages": [USER, calling('{"a": ')]},
            "message 1: tool call arguments are not a JSON object: Expecting value",
        ),
        (
            {"messages": [USER, calling("[" * 3000)]},
            "message 1: tool call arguments are not a JSON object: they are nested too deep",
        ),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": 5}]},
            "message 1: 'tool_calls' must be an array",
        ),
        (
            {"messages": [USER, calling("{}")]},
            "Cannot continue an assistant message that contains tool calls.",
        ),
        (
            {"messages": [USER, calling("{}"), RESULT | {"tool_call_id": 5}]},
            "message 2: 'tool_call_id' must be a string",
        ),
    ],
)
def test_what_is_wrong_about_tools_is_named(roomy, fields, message):
    status, answer = roomy.post(CHAT, chat_body("hello") | fields)
    assert status == 400
    assert answer["error"]["message"].startswith(message)
