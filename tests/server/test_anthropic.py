"""``/v1/messages``: its shapes, its refusals, and the anthropic package against it."""

import json

import pydantic
import pytest

from golem_core.schedule.errors import ContextExceeded, EngineClosed, QueueFull
from golem_server import anthropic
from golem_server.errors import as_refusal, not_found
from tests.server.conftest import PATIENCE
from tests.server.spoiled import JUNK, serve_or_refuse

PATH = "/v1/messages"
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Lyon"}}\n</tool_call>'


def user(text, **fields):
    return {"max_tokens": 200, "messages": [{"role": "user", "content": text}], **fields}


def says(text, **fields):
    return user("json " + json.dumps(text), **fields)


def events(server, body):
    """The named events of a stream, as ``(name, data)``."""
    status, headers, raw = server.request("POST", PATH, json.dumps(body | {"stream": True}))
    assert status == 200, raw
    assert headers["Content-Type"] == "text/event-stream"
    frames = [f.split("\n") for f in raw.decode().split("\n\n") if f and not f.startswith(":")]
    found = [(e.removeprefix("event: "), json.loads(d.removeprefix("data: "))) for e, d in frames]
    assert all(name == data["type"] for name, data in found)
    return found


def put_together(found):
    """The message that events add up to."""
    message, parts = {}, {}
    for name, data in found:
        if name == "message_start":
            message = data["message"]
        elif name == "content_block_start":
            assert data["index"] == len(message["content"])
            message["content"].append(dict(data["content_block"]))
            parts = {}
        elif name == "content_block_delta":
            for key, text in data["delta"].items():
                if key != "type":
                    parts[key] = parts.get(key, "") + text
        elif name == "content_block_stop":
            if "partial_json" in parts:
                parts["input"] = json.loads(parts.pop("partial_json"))
            message["content"][data["index"]] |= parts
        elif name == "message_delta":
            message |= data["delta"] | {"usage": data["usage"]}
    assert found[-1][0] == "message_stop"
    return message


def without_ids(message):
    content = [{k: b[k] for k in b if k != "id"} for b in message["content"]]
    same = {k: message[k] for k in message if k not in ("id", "usage")}
    return same | {"content": content, "drawn": message["usage"]["output_tokens"]}


def test_a_whole_message(roomy):
    status, message = roomy.post(PATH, says("hi there", model="any"))
    assert status == 200
    assert message.pop("id").startswith("msg_")
    used = message.pop("usage")
    assert used["output_tokens"] == len("hi there") + 1
    assert used["input_tokens"] + used["cache_read_input_tokens"] == len(
        '<user>json "hi there"\n<assistant>'
    )
    assert message == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "hi there"}],
        "model": "any",
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }


def test_thought_text_and_call_are_blocks_in_order(roomy):
    body = says("<think>\nhm\n</think>\n\nI look.\n" + CALL, tools=[WEATHER])
    _, message = roomy.post(PATH, body)
    thought, text, call = message["content"]
    assert thought == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert text == {"type": "text", "text": "I look.\n"}
    assert call.pop("id")
    assert call == {"type": "tool_use", "name": "weather", "input": {"city": "Lyon"}}
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    "text",
    ["plain", "", CALL, CALL + "\n" + CALL, "<think>\nhm\n</think>\n\nyes", "<think>\nhm", "é🙂"],
)
def test_events_add_up_to_the_message(roomy, text):
    body = says(text, tools=[WEATHER])
    _, message = roomy.post(PATH, body)
    assert without_ids(put_together(events(roomy, body))) == without_ids(message)


def test_the_order_of_events(roomy):
    found = events(roomy, says("<think>\nh\n</think>\n\ny", tools=[WEATHER]))
    kinds = [
        data["delta"]["type"] if "index" in data and "delta" in data else n for n, data in found
    ]
    assert kinds == [
        *("message_start", "content_block_start", "thinking_delta", "signature_delta"),
        *("content_block_stop", "content_block_start", "text_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


def test_why_it_ended(roomy):
    def why(**fields):
        _, message = roomy.post(PATH, says("one two", **fields))
        return message["stop_reason"], message["stop_sequence"], message["content"][0]["text"]

    assert why(max_tokens=3) == ("max_tokens", None, "one")
    assert why(stop_sequences=[" two"]) == ("stop_sequence", " two", "one")


def prompt_of(roomy, **fields):
    """The prompt as the model sees it."""
    body = {"max_tokens": 2000, **fields}
    body["messages"] = [*body.get("messages", []), {"role": "user", "content": "prompt"}]
    status, message = roomy.post(PATH, body)
    assert status == 200, message
    return message["content"][0]["text"]


def test_what_the_template_is_given(roomy):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Lyon"}},
            ],
        },
    ]
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "18"}],
    }
    body = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "max_tokens": 400,
        "messages": [
            *messages,
            {"role": "user", "content": [{"type": "text", "text": "so"}, result]},
        ],
        "tools": [WEATHER],
    }
    _, counted = roomy.post(PATH + "/count_tokens", body)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": {"city": "Lyon"}},
    }
    more = json.dumps({"reasoning_content": "hm", "tool_calls": [call]})
    wanted = (
        "<tools>weather\n<system>Be brief.\n<user>a\nb\n<assistant>I look."
        + more
        + '\n<tool>18{"tool_call_id": "c1"}\n<user>so\n<assistant>'
    )
    assert counted == {"input_tokens": len(wanted)}
    assert prompt_of(roomy, system="Be brief.").startswith("<system>Be brief.\n<user>prompt\n")


def test_thinking(roomy):
    on = prompt_of(roomy, thinking={"type": "enabled", "budget_tokens": 9})
    assert on.startswith("<thinks>")
    assert not prompt_of(roomy, thinking={"type": "disabled"}).startswith("<thinks>")
    text = "<think>\n" + "h" * 50 + "\n</think>\n\nyes"
    budget = {"type": "enabled", "budget_tokens": 5}
    _, message = roomy.post(PATH, says(text, thinking=budget))
    assert len(message["content"][0]["thinking"]) <= 5


def test_a_beginning_is_not_part_of_the_message(roomy):
    body = says("one two")
    body["messages"].append({"role": "assistant", "content": "one"})
    _, message = roomy.post(PATH, body)
    assert message["content"] == [{"type": "text", "text": " two"}]
    assert put_together(events(roomy, body))["content"] == message["content"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": None}, "'messages' is required"),
        ({"messages": []}, "a conversation with no message"),
        ({"messages": [{"role": "tool"}]}, "message 0: 'role' must be user or assistant"),
        ({"messages": [{"role": "user", "content": 1}]}, "message 0: 'content' must be a string"),
        (
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "image input is not supported - hint: if this is unexpected",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}
                ]
            },
            'message 0 has the result of "x"',
        ),
        ({"max_tokens": "3"}, "Field 'max_tokens': type must be number"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tool 0: tool type"),
        ({"tools": [{"name": "x"}]}, "tool 0: 'input_schema' must be an object"),
        ({"tool_choice": {"type": "some"}}, "tool_choice: 'type' must be"),
        ({"tool_choice": {"type": "any"}}, "tool_choice asks for a call"),
        ({"thinking": {"type": "much"}}, "thinking: 'type' must be"),
        ({"temperature": "hot"}, "temperature"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"multipleOf": 0}}}},
            "multipleOf",
        ),
    ],
)
def test_refusals(roomy, fields, message):
    status, body = roomy.post(PATH, user("hello") | fields)
    assert status == 400
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert message in body["error"]["message"]


BODY = {
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": ""},
                {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [{"type": "text", "text": "18"}],
                }
            ],
        },
    ],
    "max_tokens": 9,
    "tools": [WEATHER],
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "stop_sequences": ["x"],
    "thinking": {"type": "enabled", "budget_tokens": 3},
    "output_config": {"format": {"type": "json_schema", "schema": {}}},
    "chat_template_kwargs": {"a": 1},
    "temperature": 1,
    "stream": False,
}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_junk_value_anywhere_is_served_or_refused(junk):
    serve_or_refuse(anthropic.chat_body, BODY, junk)


def test_errors_after_the_first_event(roomy):
    broken = CALL.replace("Lyon", "").replace('": ""', "")
    found = events(roomy, says("I look " + broken, tools=[WEATHER]))
    name, data = found[-1]
    assert name == "error"
    assert data["error"]["type"] == "api_error"
    assert "cannot read" in data["error"]["message"]


def test_the_key_and_its_refusal(start):
    server = start(GOLEM_API_KEY="secret").ready()
    status, body = server.post(PATH, user("hello"))
    assert (status, body["error"]["type"]) == (401, "authentication_error")
    status, _ = server.post(PATH, user("hello"), **{"x-api-key": "secret"})
    assert status == 200


# ---- the anthropic package ----


@pytest.fixture
def client(roomy):
    package = pytest.importorskip("anthropic")
    with package.Anthropic(
        base_url=roomy.url, api_key="none", timeout=PATIENCE, max_retries=0
    ) as made:
        yield made


def test_every_event_is_of_the_clients_types(roomy):
    """Validated; the client itself takes whatever comes."""
    package = pytest.importorskip("anthropic")
    types = pydantic.TypeAdapter(package.types.RawMessageStreamEvent)
    text = "<think>\nhm\n</think>\n\nI look.\n" + CALL
    for name, event in events(roomy, says(text, tools=[WEATHER])):
        assert types.validate_python(event).type == name


def test_the_client_reads_a_message(client):
    message = client.messages.create(
        model="any", max_tokens=50, messages=[{"role": "user", "content": "hello"}]
    )
    assert message.content[0].text == "you said: hello"
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == len("you said: hello") + 1


def test_the_client_accumulates_a_stream(client):
    body = says("<think>\nhm\n</think>\n\nI look.\n" + CALL, tools=[WEATHER], model="any")
    with client.messages.stream(**body) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "I look.\n"
    thought, said, call = message.content
    assert (thought.thinking, said.text) == ("hm", "I look.\n")
    assert (call.name, call.input) == ("weather", {"city": "Lyon"})
    assert message.stop_reason == "tool_use"


def test_a_loop_over_tools(client):
    messages = says("I look.\n" + CALL)["messages"]
    ran = []
    while True:
        message = client.messages.create(
            model="any", max_tokens=200, messages=messages, tools=[WEATHER]
        )
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            break
        results = []
        for block in message.content:
            if block.type == "tool_use":
                ran.append((block.name, block.input))
                given = {"type": "tool_result", "tool_use_id": block.id, "content": "18 degrees"}
                results.append(given)
        messages.append({"role": "user", "content": results})
    assert ran == [("weather", {"city": "Lyon"})]
    assert message.content[0].text.startswith("the tools said: 18 degrees")


def test_the_client_counts_tokens(client):
    counted = client.messages.count_tokens(
        model="any", messages=[{"role": "user", "content": "hello"}]
    )
    assert counted.input_tokens == len("<user>hello\n<assistant>")


def test_errors_are_the_clients_exception_classes(client):
    package = pytest.importorskip("anthropic")

    def ask(text, **fields):
        client.messages.create(model="any", **user(text, **fields))

    with pytest.raises(package.BadRequestError, match="no message"):
        ask("", messages=[])
    with pytest.raises(package.InternalServerError, match="the executor broke"):
        ask("boom")
    with pytest.raises(package.BadRequestError, match="exceeds the available context"):
        ask("x" * 5000)
    with pytest.raises(package.APIStatusError, match="larger than 8KiB") as large:
        ask("x" * 9000)
    assert (large.value.status_code, large.value.body["error"]["type"]) == (
        413,
        "request_too_large",
    )
    with pytest.raises(package.APIStatusError) as failed:
        broken = CALL.replace('": "Lyon"', "")
        with client.messages.stream(model="any", **says(broken, tools=[WEATHER])) as stream:
            stream.until_done()
    assert "cannot read" in str(failed.value)


def test_leaving_a_stream_frees_the_slot(roomy, client):
    body = user("forever", model="any") | {"max_tokens": 5000}
    with client.messages.create(**body, stream=True) as stream:
        next(iter(stream))
    roomy.until_idle()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (QueueFull(2), "overloaded_error"),
        (EngineClosed(), "overloaded_error"),
        (ContextExceeded(9, 8), "invalid_request_error"),
        (not_found(), "not_found_error"),
        (ValueError("x"), "api_error"),
    ],
)
def test_the_types_of_errors(error, kind):
    refusal = as_refusal(error)
    wanted = {"type": kind, "message": refusal.message}
    assert anthropic.error_body(refusal) == {"type": "error", "error": wanted}
