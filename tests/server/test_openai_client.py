"""The openai package, unmodified, against a running server."""

import json

import openai
import pytest

from tests.server.conftest import PATIENCE


@pytest.fixture
def client(served):
    with openai.OpenAI(
        base_url=served.url + "/v1", api_key="none", timeout=PATIENCE, max_retries=0
    ) as made:
        yield made


def user(text):
    return [{"role": "user", "content": text}]


def test_a_whole_answer(client):
    answer = client.chat.completions.create(model="any", messages=user("hello"), temperature=0)
    assert answer.choices[0].message.content == "you said: hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len("you said: hello") + 1
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_a_streamed_answer_with_usage(client):
    chunks = list(
        client.chat.completions.create(
            model="any",
            messages=user("hello"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "you said: hello"
    assert chunks[-1].usage.completion_tokens == len(text) + 1


def test_the_stream_helper(client):
    with client.chat.completions.stream(model="any", messages=user("hello")) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "you said: hello"


def test_completions(client):
    prompt = "<user>say hi\n<assistant>"
    assert client.completions.create(model="any", prompt=prompt).choices[0].text == "hi"
    chunks = client.completions.create(model="any", prompt=prompt, stream=True)
    assert "".join(c.choices[0].text for c in chunks) == "hi"


def test_models(client):
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "llamacpp"
    with pytest.raises(openai.NotFoundError, match='there is no model "other/name"'):
        client.models.retrieve("other/name")


def test_errors_are_its_exception_classes(served, client):
    with pytest.raises(openai.BadRequestError, match="a conversation with no message"):
        client.chat.completions.create(model="any", messages=[])
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model="any", messages=user("x" * 600))
    assert too_long.value.body["n_ctx"] == 256
    with pytest.raises(openai.InternalServerError, match="does not support embeddings"):
        client.embeddings.create(model="any", input="x")
    with pytest.raises(openai.APIStatusError) as too_large:
        client.chat.completions.create(model="any", messages=user("x" * 9000))
    assert too_large.value.status_code == 413
    with pytest.raises(openai.InternalServerError, match="the executor broke"):
        client.chat.completions.create(model="any", messages=user("boom"))


def test_leaving_a_stream_frees_the_slot(served, client):
    with client.chat.completions.create(
        model="any", messages=user("forever"), stream=True, max_tokens=-1
    ) as stream:
        next(iter(stream))
    served.until_idle()


# ---- tools ----


@pytest.fixture
def agent(roomy):
    with openai.OpenAI(base_url=roomy.url + "/v1", api_key="none", timeout=PATIENCE) as made:
        yield made


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Lyon"}}\n</tool_call>'
ASKED = user("json " + json.dumps("I look.\n" + CALL))


def test_a_loop_over_tools(agent):
    """Call, run, answer: what every agent does."""
    messages = list(ASKED)
    ran = []
    while True:
        answer = agent.chat.completions.create(
            model="any", messages=messages, tools=[WEATHER], max_tokens=150
        )
        message = answer.choices[0].message
        messages.append(message)
        if answer.choices[0].finish_reason != "tool_calls":
            break
        for call in message.tool_calls:
            ran.append((call.function.name, json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees"})
    assert ran == [("weather", {"city": "Lyon"})]
    assert message.content.startswith("the tools said: 18 degrees")
    assert message.tool_calls is None


def test_the_stream_helper_accumulates_calls(agent):
    with agent.chat.completions.stream(
        model="any", messages=ASKED, tools=[WEATHER], max_tokens=150
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert kinds.count("tool_calls.function.arguments.done") == 1
    assert final.finish_reason == "tool_calls"
    assert final.message.content == "I look.\n"
    (call,) = final.message.tool_calls
    assert call.id.startswith("call_")
    assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Lyon"}')


def test_calls_are_put_together_by_index(agent):
    calls = {}
    for chunk in agent.chat.completions.create(
        model="any", messages=ASKED, tools=[WEATHER], max_tokens=150, stream=True
    ):
        for delta in chunk.choices[0].delta.tool_calls or []:
            known = calls.setdefault(delta.index, {"id": delta.id, "name": "", "arguments": ""})
            known["name"] += delta.function.name or ""
            known["arguments"] += delta.function.arguments or ""
    assert [(c["name"], c["arguments"]) for c in calls.values()] == [("weather", '{"city":"Lyon"}')]


# ---- probabilities, several answers, thoughts ----


def test_probabilities(client):
    answer = client.chat.completions.create(
        model="any", messages=user("say hi"), logprobs=True, top_logprobs=2
    )
    entries = answer.choices[0].logprobs.content
    assert [entry.token for entry in entries] == ["h", "i", ""]
    assert bytes(entries[0].bytes) == b"h"
    assert entries[0].top_logprobs[0].logprob == entries[0].logprob
    legacy = client.completions.create(model="any", prompt="<user>say hi\n<assistant>", logprobs=1)
    assert legacy.choices[0].logprobs.tokens == ["h", "i", ""]
    assert legacy.choices[0].logprobs.text_offset == [0, 1, 2]


def test_two_answers(client):
    answer = client.chat.completions.create(model="any", messages=user("say hi"), n=2, seed=1)
    assert [choice.message.content for choice in answer.choices] == ["hi", "hi"]
    with pytest.raises(openai.BadRequestError, match="at most 2 answers"):
        client.chat.completions.create(model="any", messages=user("say hi"), n=3)


def test_a_thought(client):
    answer = client.chat.completions.create(
        model="any",
        messages=user("json " + json.dumps("<think>\nhm\n</think>\n\nyes")),
        reasoning_effort="low",
    )
    assert answer.choices[0].message.content == "yes"
    assert answer.choices[0].message.reasoning_content == "hm"
