"""LangChain's chat model and its loop over tools, as people's agents use them."""

import json

import pytest

from tests.server.conftest import PATIENCE

langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not there")
messages = pytest.importorskip("langchain_core.messages")
tools = pytest.importorskip("langchain_core.tools")
pydantic = pytest.importorskip("pydantic")

CALLS = "\n".join(
    f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'
    for city in ("Lyon", "Oslo")
)


@tools.tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 18 degrees"


@pytest.fixture
def model(roomy):
    return langchain_openai.ChatOpenAI(
        base_url=roomy.url + "/v1",
        api_key="none",
        model="any",
        temperature=0,
        max_tokens=300,
        timeout=PATIENCE,
        max_retries=0,
    )


@pytest.mark.parametrize("streaming", [False, True])
def test_a_loop_over_tools(model, streaming):
    """Two calls in one turn, run, and answered from their results."""
    bound = model.bind_tools([weather])
    talk = [messages.HumanMessage("json " + json.dumps("I look.\n" + CALLS))]
    for _ in range(2):
        if streaming:
            pieces = list(bound.stream(talk))
            answer = sum(pieces[1:], pieces[0])
        else:
            answer = bound.invoke(talk)
        talk.append(answer)
        talk += [weather.invoke(call) for call in answer.tool_calls]
    first, last = talk[1], talk[-1]
    assert first.content.strip() == "I look."
    assert [(c["name"], c["args"]) for c in first.tool_calls] == [
        ("weather", {"city": "Lyon"}),
        ("weather", {"city": "Oslo"}),
    ]
    assert len({call["id"] for call in first.tool_calls}) == 2
    assert "Lyon: 18 degrees" in last.content and not last.tool_calls
    assert last.response_metadata["finish_reason"] == "stop"


class Weather(pydantic.BaseModel):
    """What the answer is held to."""

    city: str
    degrees: int


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model, method):
    said = {"city": "Lyon", "degrees": 18}
    text = json.dumps(said)
    if method == "function_calling":
        text = f"<tool_call>\n{json.dumps({'name': 'Weather', 'arguments': said})}\n</tool_call>"
    answer = model.with_structured_output(Weather, method=method).invoke("json " + json.dumps(text))
    assert answer == Weather(city="Lyon", degrees=18)


def test_usage_of_a_stream(model):
    pieces = list(model.stream("say hi", stream_usage=True))
    whole = sum(pieces[1:], pieces[0])
    assert whole.content == "hi"
    assert whole.usage_metadata["output_tokens"] == 3  # and the end


def test_an_error_says_what_the_server_said(model):
    with pytest.raises(Exception, match="exceeds the available context size"):
        model.invoke("x" * 5000)
