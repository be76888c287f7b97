"""``/v1/responses``: its shapes, its refusals, and the openai package against it."""

import json

import openai
import pydantic
import pytest

from golem_server.responses_request import chat_body
from tests.server.conftest import PATIENCE
from tests.server.spoiled import JUNK, serve_or_refuse

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Lyon"}}\n</tool_call>'
ALL = "<think>\nhm\n</think>\n\nI look.\n" + CALL


def says(text, **fields):
    return {"input": "json " + json.dumps(text), "max_output_tokens": 200, **fields}


def events(server, body):
    """The numbered events of a stream."""
    status, headers, raw = server.request("POST", PATH, json.dumps(body | {"stream": True}))
    assert status == 200, raw
    assert headers["Content-Type"] == "text/event-stream"
    frames = [f.split("\n") for f in raw.decode().split("\n\n") if f and not f.startswith(":")]
    named = [(e.removeprefix("event: "), json.loads(d.removeprefix("data: "))) for e, d in frames]
    assert all(name == data["type"] for name, data in named)
    found = [data for _, data in named]
    assert [data["sequence_number"] for data in found] == list(range(len(found)))
    return found


def without_ids(item):
    return {key: item[key] for key in item if key not in ("id", "call_id")}


def test_a_whole_response(roomy):
    status, response = roomy.post(PATH, {"input": "hello", "model": "any", "store": True})
    assert status == 200
    assert response["id"].startswith("resp_")
    assert response["completed_at"] >= response["created_at"]
    (message,) = response["output"]
    assert message.pop("id").startswith("msg_")
    text = "you said: hello"
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    assert message == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    told = {key: response[key] for key in ("object", "model", "status", "error")}
    assert told == {"object": "response", "model": "any", "status": "completed", "error": None}
    prompt = len("<user>hello\n<assistant>")
    used = response["usage"]
    assert used.pop("input_tokens_details")["cached_tokens"] <= prompt
    assert used == {
        "input_tokens": prompt,
        "output_tokens": len(text) + 1,
        "total_tokens": prompt + len(text) + 1,
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def test_thought_text_and_call_are_items_in_order(roomy):
    _, response = roomy.post(PATH, says(ALL, tools=[WEATHER]))
    thought, message, call = response["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert message["content"][0]["text"] == "I look.\n"
    assert (call["name"], call["arguments"]) == ("weather", '{"city":"Lyon"}')
    prefixes = [item["id"].split("_")[0] for item in response["output"]]
    assert prefixes == ["rs", "msg", "fc"]
    assert call["call_id"].startswith("call_")
    thinking = response["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert len("<think>\nhm") <= thinking <= len("<think>\nhm\n</think>\n\nI")


def test_an_answer_that_is_cut_is_incomplete(roomy):
    _, response = roomy.post(PATH, says("one two", max_output_tokens=3))
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    last = events(roomy, says("one two", max_output_tokens=3))[-1]
    assert last["type"] == "response.incomplete"


def test_the_order_of_events(roomy):
    kinds = [e["type"].removeprefix("response.") for e in events(roomy, says("y"))]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    kinds = [
        e["type"].removeprefix("response.") for e in events(roomy, says(CALL, tools=[WEATHER]))
    ]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done", "completed"),
    ]
    kinds = [e["type"] for e in events(roomy, says("<think>\nh"))]
    assert "response.reasoning_text.delta" in kinds


@pytest.mark.parametrize("text", ["plain", "", CALL, CALL + "\n" + CALL, ALL, "<think>\nhm", "é🙂"])
def test_events_add_up_to_the_response(roomy, text):
    body = says(text, tools=[WEATHER])
    _, response = roomy.post(PATH, body)
    found = events(roomy, body)
    wanted = [without_ids(item) for item in response["output"]]
    assert [without_ids(item) for item in found[-1]["response"]["output"]] == wanted
    done = [e["item"] for e in found if e["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]
    for index, item in enumerate(done):
        deltas = [e for e in found if e["type"].endswith(".delta") and e["output_index"] == index]
        whole = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        assert "".join(e["delta"] for e in deltas) == whole
        assert {e["item_id"] for e in deltas} == {item["id"]}
    added = [e["item"] for e in found if e["type"] == "response.output_item.added"]
    assert all(item["status"] == "in_progress" for item in added)


def test_what_the_template_is_given(roomy):
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    items = [
        {"role": "user", "content": parts},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look."}],
        },
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "18"},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "prompt"},
    ]
    body = {"instructions": "Be kind.", "input": items, "max_output_tokens": 400}
    status, response = roomy.post(PATH, body | {"tools": [WEATHER], "reasoning": {"effort": "low"}})
    assert status == 200, response
    function = {"name": "weather", "arguments": {}}
    made = [{"id": "c1", "type": "function", "function": function}]
    more = json.dumps({"reasoning_content": "hm", "tool_calls": made})
    assert response["output"][0]["content"][0]["text"] == (
        "<thinks>low\n<tools>weather\n<system>Be kind.\n<user>a\nb\n[assistant]I look."
        f'{more}\n<tool>18{{"tool_call_id": "c1"}}\n<system>Be brief.\n<user>prompt\n'
    )


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,"}
SCHEMA = {"type": "json_schema", "name": "x", "schema": {"multipleOf": 0}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": None}, "'input' is required"),
        ({"input": []}, "'input' must not be empty"),
        ({"input": 3}, "'input' must be a string or an array"),
        ({"input": ["x"]}, "input item 0 is string"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 'has the type "item_reference"'),
        (
            {"input": [{"role": "user", "content": [IMAGE]}]},
            "image input is not supported - hint: if this is unexpected",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]},
            'input item 0 is the output of "x"',
        ),
        ({"input": [{"role": "tool", "content": ""}]}, "input item 0: 'role' must be one of user"),
        ({"previous_response_id": "resp_1"}, '"previous_response_id" cannot be served'),
        ({"conversation": "conv_1"}, '"conversation" cannot be served'),
        ({"background": True}, '"background" cannot be served'),
        ({"top_logprobs": 2}, "probabilities are not told"),
        ({"max_output_tokens": "3"}, "Field 'max_output_tokens': type must be number"),
        ({"tools": [{"type": "web_search"}]}, 'tool type "web_search" is not implemented'),
        ({"tool_choice": "required"}, "tool_choice asks for a call"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice as an object"),
        ({"text": {"format": {"type": "xml"}}}, "text.format: 'type' must be"),
        ({"text": {"format": SCHEMA}}, "multipleOf"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort must be a string"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_refusals(roomy, fields, message):
    status, body = roomy.post(PATH, {"input": "hello", **fields})
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert message in body["error"]["message"]


BODY = {
    "instructions": "s",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "18"},
    ],
    "max_output_tokens": 9,
    "tools": [WEATHER],
    "tool_choice": {"type": "function", "name": "weather"},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
    "reasoning": {"effort": "low"},
    "include": ["x"],
    "background": False,
    "temperature": 1,
    "stream": False,
}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_junk_value_anywhere_is_served_or_refused(junk):
    serve_or_refuse(chat_body, BODY, junk)


# ---- the openai package ----


@pytest.fixture
def client(roomy):
    with openai.OpenAI(
        base_url=roomy.url + "/v1", api_key="none", timeout=PATIENCE, max_retries=0
    ) as made:
        yield made


@pytest.mark.parametrize("text", [ALL, "plain", "<think>\nhm"])
def test_every_event_is_of_the_clients_types(roomy, text):
    """Validated; the client itself takes whatever comes."""
    types = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent)
    for event in events(roomy, says(text, tools=[WEATHER])):
        assert types.validate_python(event).type == event["type"]


def test_the_client_reads_a_response(client):
    response = client.responses.create(model="any", input="hello")
    assert response.output_text == "you said: hello"
    assert response.usage.output_tokens_details.reasoning_tokens == 0


def test_the_client_reads_a_stream(client):
    found = list(client.responses.create(model="any", stream=True, **says("hi")))
    assert [e.sequence_number for e in found] == list(range(len(found)))
    assert "".join(e.delta for e in found if e.type == "response.output_text.delta") == "hi"
    assert found[-1].response.output_text == "hi"


def test_the_stream_helper_accumulates(client):
    body = says(ALL, tools=[{**WEATHER, "strict": True}])
    with client.responses.stream(model="any", **body) as stream:
        texts = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert texts[-1] == final.output_text == "I look.\n"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].arguments == '{"city":"Lyon"}'


def test_a_loop_over_tools(client):
    """The output is the next input, as agents send it."""
    items = [{"role": "user", "content": says(ALL)["input"]}]
    ran = []
    while True:
        response = client.responses.create(
            model="any", input=items, tools=[WEATHER], max_output_tokens=200
        )
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            ran.append((call.name, json.loads(call.arguments)))
            output = {"type": "function_call_output", "call_id": call.call_id}
            items.append(output | {"output": "18 degrees"})
    assert ran == [("weather", {"city": "Lyon"})]
    assert response.output_text.startswith("the tools said: 18 degrees")


class Weather(pydantic.BaseModel):
    city: str


def test_an_answer_held_to_a_model(client):
    response = client.responses.parse(model="any", text_format=Weather, **says('{"city": "Lyon"}'))
    assert response.output_parsed == Weather(city="Lyon")


def test_errors_are_its_exception_classes(client):
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(model="any", input="x", previous_response_id="resp_1")
    with pytest.raises(openai.InternalServerError, match="the executor broke"):
        client.responses.create(model="any", input="boom")
    broken = says("I look " + CALL.replace('": "Lyon"', ""), tools=[WEATHER])
    with pytest.raises(openai.APIError, match="cannot read"):
        list(client.responses.create(model="any", stream=True, **broken))


def test_leaving_a_stream_frees_the_slot(roomy, client):
    with client.responses.create(
        model="any", input="forever", stream=True, max_output_tokens=5000
    ) as stream:
        next(iter(stream))
    roomy.until_idle()
