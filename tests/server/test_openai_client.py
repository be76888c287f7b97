"""The openai package, unmodified, against a running server."""

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
    with pytest.raises(openai.NotFoundError):
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
