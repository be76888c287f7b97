"""A Gemma 4 file served: random weights, so its words are noise and its forms are the point."""

import json
import re

import numpy as np
import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.plugins import tiny
from tests.server.conftest import events_of

CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Lyon", "Paris"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "detail": {"type": "boolean"},
    },
    "required": ["city", "days", "detail"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
]
CALL = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
ANSWERED = [
    {"role": "user", "content": "what time is it"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "noon"},
]


def opened(path, *given):
    """(service, client) of a server on a model file, in this process."""
    plugins = load_plugins()
    flags = ["-model", str(path), "-draft", "off", *given]
    service = Service(config.load(flags, plugins, {}).settings, plugins)
    client = TestClient(create_app(service))
    client.app.write = lambda line: None
    service.load()
    return service, client


@pytest.fixture(scope="module", params=["gemma4-e2b", "gemma4-moe"])
def client(request, tmp_path_factory):
    path = tiny.write(tmp_path_factory.mktemp("served") / "g.gguf", request.param, "Q8_0")
    service, client = opened(path, "-parallel", "3", "-context", "3072")
    yield client
    service.close()


def ask(client, messages, **more):
    """The message of the answer and its finish, streamed and unstreamed: they must be the same."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    body = {"messages": messages, "seed": 3, "max_tokens": 40} | more
    whole = client.simulate_post(CHAT, json=body)
    assert whole.status_code == 200, whole.text
    (choice,) = whole.json["choices"]
    events = events_of(client.simulate_post(CHAT, json=body | {"stream": True}).content)
    streamed = {"role": "assistant", "content": None}
    calls = []
    for event in events[:-1]:
        for part in json.loads(event)["choices"]:
            delta = part["delta"]
            for key in ("content", "reasoning_content"):
                if delta.get(key):
                    streamed[key] = (streamed.get(key) or "") + delta[key]
            calls += delta.get("tool_calls", [])
            finish = part["finish_reason"]
    told = choice["message"]
    assert (streamed.get("content") or "") == (told.get("content") or "")
    assert (streamed.get("reasoning_content") or "") == (told.get("reasoning_content") or "")
    functions = [call["function"] for call in told.get("tool_calls") or []]
    assert [call["function"] for call in calls] == functions
    assert finish == choice["finish_reason"]
    return told, finish, whole.json["usage"]


def test_an_answer_is_the_same_streamed_and_whole(client):
    message, finish, usage = ask(client, "the time of the water", ignore_eos=True, seed=5)
    assert len(message["content"]) > 5
    assert finish in ("stop", "length")
    assert usage["prompt_tokens"] > 10


@pytest.mark.parametrize("name", [" a ", "a{b", "a<tool_call|>", '<|"|>a'])
def test_a_function_whose_name_could_not_be_read_back_is_not_forced(client, name):
    tool = {"type": "function", "function": {"name": name, "parameters": WEATHER}}
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    refused = client.simulate_post(CHAT, json=body | {"tool_choice": "required"})
    assert refused.status_code == 400
    message = refused.json["error"]["message"]
    assert message.startswith(f'tool "{name}": {json.dumps(name)} cannot be called: names stand')


@pytest.mark.parametrize(
    "properties",
    [
        {'<|"|>': {"type": "string"}},
        {"a": {"properties": {'b<|"|>': {}}}},
        {"a": {"enum": ["x", 'y<|"|>z']}},
        {"a": {"const": ["x", {'<|"|>': 1}]}},
    ],
)
def test_a_text_that_calls_have_no_way_to_say_is_refused(client, properties):
    """The mark around texts has no escape: what holds it could not be read back."""
    schema = {"type": "object", "properties": properties}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    refused = client.simulate_post(CHAT, json=body | {"tool_choice": "required"})
    assert refused.status_code == 400, refused.json
    message = refused.json["error"]["message"]
    assert message.startswith('tool "f": "') and "cannot be said in this model's calls" in message
    assert json.dumps('<|"|>')[1:-1] in message


@pytest.mark.parametrize("name", ["a b", "a:b", "é", "a}b", "</f>"])
def test_a_function_of_an_odd_name_is_forced(client, name):
    tool = {"type": "function", "function": {"name": name, "parameters": WEATHER}}
    one = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    message, _, _ = ask(client, "x", tools=[tool], **one)
    assert [call["function"]["name"] for call in message["tool_calls"]] == [name]


@pytest.mark.parametrize("seed", range(4))
def test_a_forced_call_is_one_of_the_schema(client, seed):
    """The noise is held to the notation of calls, and is read back as JSON."""
    chosen = {"type": "function", "function": {"name": "get_weather"}}
    message, finish, _ = ask(
        client,
        "weather",
        tools=TOOLS,
        tool_choice=chosen,
        seed=seed,
        temperature=1.5,
        max_tokens=120,
    )
    assert finish == "tool_calls"
    (call,) = message["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "get_weather"
    assert list(arguments) == ["city", "days", "detail"]
    assert arguments["city"] in ("Lyon", "Paris")
    assert 1 <= arguments["days"] <= 9
    assert isinstance(arguments["detail"], bool)


def test_some_tool_is_called_where_one_is_required(client):
    message, finish, _ = ask(
        client,
        "hm",
        tools=TOOLS[:1],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=120,
    )
    assert finish == "tool_calls"
    assert [c["function"]["name"] for c in message["tool_calls"]] == ["get_weather"]


def test_a_thought_that_the_prompt_opens_is_reasoning(client):
    """After a result the template goes on in the same turn, and opens the thought itself."""
    message, finish, _ = ask(
        client,
        ANSWERED,
        tools=TOOLS,
        chat_template_kwargs={"enable_thinking": True},
        temperature=0,
        ignore_eos=True,
    )
    assert finish == "length"
    assert message["reasoning_content"]
    assert not message["content"]
    prompt = client.simulate_post(
        "/apply-template",
        json={
            "messages": ANSWERED,
            "tools": TOOLS,
            "chat_template_kwargs": {"enable_thinking": True},
        },
    ).json["prompt"]
    assert prompt.endswith("<tool_response|><|channel>thought\n")


def test_a_schema_holds_the_content_after_its_thought(client):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    message, finish, _ = ask(
        client,
        "n",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )
    assert finish == "stop"
    assert json.loads(message["content"])["n"] in (1, 2)


def test_a_conversation_goes_on_from_its_prefix_past_the_window(client):
    """Windows of 16 in rings for a pass more: the next turn reads only what is new of it."""
    first = [{"role": "user", "content": "water and time " * 20}]
    message, _, before = ask(client, first, temperature=0, cache_prompt=True)
    turn = {"role": "assistant", "content": re.sub(r"[<|>]", "", message["content"]).strip()}
    talk = [*first, turn, {"role": "user", "content": "more"}]
    _, _, after = ask(client, talk, temperature=0, cache_prompt=True)
    assert after["prompt_tokens"] > before["prompt_tokens"]
    again, _, cached = ask(client, talk, temperature=0, cache_prompt=True)
    fresh, _, cold = ask(client, talk, temperature=0, cache_prompt=False)
    assert cached["prompt_tokens_details"]["cached_tokens"] > before["prompt_tokens"] // 2
    assert cold["prompt_tokens_details"]["cached_tokens"] == 0
    assert again == fresh


def test_conversations_beside_each_other_are_those_alone(client):
    """Three slots draw in the same passes, over rings that half of the blocks share."""
    prompts = [f"{word} of the water" for word in ("time", "name", "way")]
    alone = [ask(client, p, temperature=0, cache_prompt=False)[0] for p in prompts]
    body = {"messages": [{"role": "user", "content": prompts[0]}], "n": 3, "max_tokens": 40}
    together = client.simulate_post(
        CHAT, json=body | {"temperature": 0, "cache_prompt": False}
    ).json
    assert [c["message"]["content"] for c in together["choices"]] == [alone[0]["content"]] * 3
    assert len({m["content"] for m in alone}) == 3


def test_tokens_that_the_file_suppresses_are_never_drawn(tmp_path):
    plain = tiny.write(tmp_path / "plain.gguf", "gemma4-dense")
    asked = {"prompt": "the water", "n_predict": 12, "temperature": 0, "return_tokens": True}

    def drawn(path):
        service, client = opened(path, "-context", "64")
        tokens = client.simulate_post("/completion", json=asked).json["tokens"]
        service.close()
        return set(tokens)

    usual = drawn(plain)
    key = {"tokenizer.ggml.suppress_tokens": np.array(sorted(usual), np.int32)}
    others = drawn(tiny.rewrite(plain, tmp_path / "without.gguf", key))
    assert usual
    assert others
    assert not usual & others
