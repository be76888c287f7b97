"""The ollama package, unmodified, against a running server: every call it has."""

import json
import math

import ollama
import pytest

from tests.server.conftest import PATIENCE

SEVEN = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"]}


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@pytest.fixture
def client(served):
    return ollama.Client(host=served.url, timeout=PATIENCE)


@pytest.fixture(scope="module")
def _kept(_running, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        kind: _running(kind, GOLEM_MODELS=str(folder / kind))
        for kind in ("waitress", "gunicorn")
        if not (folder / kind).mkdir()
    }


@pytest.fixture(params=["waitress", "gunicorn"])
def maker(request, _kept):
    """A client of a server that has a folder for models."""
    return ollama.Client(host=_kept[request.param].url, timeout=PATIENCE)


def user(text):
    return [{"role": "user", "content": text}]


# ---- chat ----


def test_a_whole_answer(client):
    answer = client.chat("any", user("hello"), options={"temperature": 0})
    assert answer.message.role == "assistant"
    assert answer.message.content == "you said: hello"
    assert (answer.model, answer.done, answer.done_reason) == ("any", True, "stop")
    assert answer.prompt_eval_count == len("<user>hello\n<assistant>")
    assert answer.eval_count == len("you said: hello") + 1
    assert 0 < answer.prompt_eval_duration < answer.total_duration
    assert answer.created_at.endswith("Z") and len(answer.created_at) == 30
    assert answer.message.thinking is None and answer.message.tool_calls is None


def test_a_streamed_answer_is_the_whole_one(client):
    parts = list(client.chat("any", user("say one two"), stream=True))
    assert "".join(part.message.content for part in parts) == "one two"
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == len("one two") + 1
    assert parts[0].eval_count is None


def test_the_end_tells_what_golem_measures(served):
    body = served.post("/api/chat", {"model": "any", "messages": user("hello"), "stream": False})[1]
    assert body["ttft_ms"] > 0
    assert (body["grammar_ms"], body["resampled"]) == (0, 0)


def test_options_reach_the_sampler_and_the_length(client):
    cut = client.chat("any", user("forever"), options={"num_predict": 5})
    assert (cut.message.content, cut.done_reason, cut.eval_count) == ("ab ab", "length", 5)
    stopped = client.chat("any", user("say one STOP two"), options={"stop": ["STOP"]})
    assert (stopped.message.content, stopped.done_reason) == ("one ", "stop")
    biased = client.chat(
        "any", user("say aa"), options=ollama.Options(temperature=0, top_k=1, seed=3, num_thread=4)
    )
    assert biased.message.content == "aa"
    full = client.chat("any", user("forever"), options={"num_predict": -1})
    assert full.prompt_eval_count + full.eval_count == 256
    assert full.done_reason == "length"


def test_tools_are_called_with_objects(client):
    call = {"name": "add", "arguments": {"b": 2, "a": 1}}
    said = json.dumps(f"<tool_call>\n{json.dumps(call)}\n</tool_call>")
    asked = {"tools": [add], "options": {"num_predict": 150}}
    first = client.chat("any", user(f"json {said}"), **asked)
    (call,) = first.message.tool_calls
    assert call.function.name == "add"
    assert add(**call.function.arguments) == 3
    streamed = list(client.chat("any", user(f"json {said}"), stream=True, **asked))
    (again,) = [c for part in streamed for c in part.message.tool_calls or ()]
    assert again.function.arguments == call.function.arguments
    messages = [
        *user("add one and two"),
        first.message,
        {"role": "tool", "tool_name": "add", "content": "3"},
    ]
    assert "3" in client.chat("any", messages, tools=[add]).message.content


def test_thoughts_come_apart(client):
    said = "say <think>hm</think>yes"
    answer = client.chat("any", user(said), think=True)
    assert (answer.message.thinking, answer.message.content) == ("hm", "yes")
    parts = list(client.chat("any", user(said), think="high", stream=True))
    assert "".join(p.message.thinking or "" for p in parts) == "hm"
    assert "".join(p.message.content for p in parts) == "yes"
    generated = client.generate("any", said, think=True)
    assert (generated.thinking, generated.response) == ("hm", "yes")


@pytest.mark.parametrize("think", [None, False, True, "low"])
@pytest.mark.parametrize("form", ["json", SEVEN])
def test_complaint_11_a_format_holds_whether_it_thinks_or_not(client, think, form):
    """Schemas were lost when thinking was set, or the answer went into the thought."""
    answer = client.chat(
        "any",
        user("say <think>hm</think>no json"),
        format=form,
        think=think,
        options={"num_predict": 120, "temperature": 0},
    )
    said = json.loads(answer.message.content)
    assert said == {"a": 7} if form is SEVEN else isinstance(said, dict)
    if think:
        assert answer.message.thinking == "hm"
    whole = client.generate(
        "any",
        "say <think>hm</think>no json",
        format=form,
        think=think,
        options={"num_predict": 120, "temperature": 0},
    )
    assert json.loads(whole.response) == said


def test_logprobs(client):
    answer = client.chat("any", user("say hi"), logprobs=True, top_logprobs=2)
    assert [entry.token for entry in answer.logprobs] == ["h", "i", ""]
    assert all(len(entry.top_logprobs) == 2 for entry in answer.logprobs)
    alone = client.generate("any", "say hi", logprobs=True)
    assert [entry.logprob for entry in alone.logprobs] == pytest.approx([0, 0, 0], abs=1e-3)
    assert alone.logprobs[0].top_logprobs is None
    parts = list(client.chat("any", user("say hi"), logprobs=True, top_logprobs=1, stream=True))
    assert [e.token for part in parts for e in part.logprobs or ()] == ["h", "i", ""]


# ---- generate ----


def test_a_prompt_becomes_a_conversation(client):
    answer = client.generate("any", "prompt", system="be brief", options={"num_predict": 60})
    assert answer.response.startswith("<system>be brief\n<user>prompt\n")
    parts = list(client.generate("any", "say one", stream=True))
    assert "".join(part.response for part in parts) == "one"
    assert parts[-1].done_reason == "stop"


def test_a_raw_prompt_is_not_touched(client):
    answer = client.generate("any", "<user>say raw\n<assistant>", raw=True)
    assert answer.response == "raw"
    assert answer.context is None
    assert answer.prompt_eval_count == len("<user>say raw\n<assistant>")
    with pytest.raises(ollama.ResponseError, match="raw mode does not support template, system"):
        client.generate("any", "x", raw=True, system="y")


def test_a_context_is_gone_on_from(client):
    first = client.generate("any", "say hi")
    assert bytes(i for i in first.context if i < 256) == b"<user>say hi\n<assistant>hi"
    second = client.generate("any", "say more", context=first.context)
    assert second.response == "more"
    assert second.context[: len(first.context)] == first.context
    assert second.prompt_eval_count == len(first.context) + len("<user>say more\n<assistant>")
    with pytest.raises(ollama.ResponseError, match="context holds ids"):
        client.generate("any", "x", context=[10**6])


def test_a_template_of_the_requests_own(client):
    answer = client.generate(
        "any", "say T", template="<user>{{ messages[0].content }}\n<assistant>"
    )
    assert answer.response == "T"
    for source in ("{{ .Prompt }}", "{% if %}"):
        with pytest.raises(ollama.ResponseError, match="template"):
            client.generate("any", "x", template=source)


def test_a_gap_needs_a_model_that_fills_some(client):
    with pytest.raises(ollama.ResponseError, match='"any" does not support insert'):
        client.generate("any", "def f(", suffix="):")


# ---- loading and unloading ----


def test_an_empty_prompt_loads_and_keep_alive_0_unloads(start):
    server = start().ready()
    client = ollama.Client(host=server.url, timeout=PATIENCE)
    assert client.generate("any").done_reason == "load"
    assert client.chat("any").message.content == ""
    assert [model.model for model in client.ps().models] == ["fake:latest"]
    assert client.generate("any", keep_alive=0).done_reason == "unload"
    server.until(lambda: not client.ps().models)
    assert client.generate("any", keep_alive=0).done_reason == "unload"
    assert not client.ps().models
    answer = client.chat("any", user("say back"), keep_alive="10m")
    assert answer.message.content == "back"
    assert answer.load_duration > 0
    (model,) = client.ps().models
    left = (model.expires_at - model.expires_at.now(model.expires_at.tzinfo)).total_seconds()
    assert 500 < left <= 600
    assert client.chat("any", user("say x"), keep_alive=0).message.content == "x"
    server.until(lambda: not client.ps().models)


@pytest.mark.parametrize("keep", [5, "5", "5m", -1, "-1", "-1m", 2.5, "1h30m"])
def test_complaint_5_every_spelling_of_keep_alive(served, keep):
    """The text "-1" was an error, and options swallowed it."""
    asked = {"model": "any", "messages": user("say x"), "stream": False}
    assert served.post("/api/chat", asked | {"keep_alive": keep})[0] == 200
    assert served.chat("say x", keep_alive=keep)[0] == 200
    (model,) = served.get("/api/ps")[1]["models"]
    assert model["expires_at"].startswith("2") and "T" in model["expires_at"]
    served.post("/api/chat", asked | {"keep_alive": -1})
    status, body = served.post("/api/chat", asked | {"options": {"keep_alive": keep}})
    assert status == 400 and 'option "keep_alive" is none' in body["error"]


# ---- about models ----


def test_what_is_served(client):
    assert [model.model for model in client.list().models] == ["fake:latest"]
    (running,) = client.ps().models
    assert (running.name, running.context_length, running.size_vram) == ("fake:latest", 256, 0)
    shown = client.show("any")
    assert shown.details.format == "gguf"
    assert "completion" in shown.capabilities


def test_a_model_is_made_used_copied_and_deleted(maker):
    for status in maker.create(
        "pirate",
        from_="fake",
        system="talk like a pirate",
        parameters={"temperature": 0, "num_predict": 30, "stop": ["STOP"]},
        messages=[{"role": "user", "content": "who"}, {"role": "assistant", "content": "arr"}],
        license="MIT",
        stream=True,
    ):
        last = status.status
    assert last == "success"
    said = maker.chat("pirate", user("prompt"), options={"num_predict": 200}).message.content
    assert said.startswith("<system>talk like a pirate\n<user>who\n[assistant]arr")
    assert maker.chat("Pirate:latest", user("forever")).eval_count == 30
    assert maker.chat("pirate", user("say a STOP b")).message.content == "a "
    own = [{"role": "system", "content": "mine"}, *user("prompt")]
    assert "<system>mine" in maker.chat("pirate", own, options={"num_predict": 99}).message.content
    assert "pirate" in maker.generate("pirate", "prompt", options={"num_predict": 99}).response

    shown = maker.show("pirate")
    assert "num_predict                    30" in shown.parameters
    assert 'stop                           "STOP"' in shown.parameters
    assert 'SYSTEM """talk like a pirate"""' in shown.modelfile
    assert shown.license == "MIT"
    assert {m.model for m in maker.list().models} == {"fake:latest", "pirate:latest"}

    assert maker.create("child", from_="pirate", system="quietly").status == "success"
    assert maker.chat("child", user("forever")).eval_count == 30
    assert (
        "<system>quietly" in maker.generate("child", "prompt", options={"num_predict": 99}).response
    )
    assert maker.copy("pirate", "corsair:v1").status == "success"
    assert maker.chat("corsair:v1", user("forever")).eval_count == 30
    for name in ("pirate", "child", "corsair:v1"):
        assert maker.delete(name).status == "success"
    with pytest.raises(ollama.ResponseError, match="model 'pirate' not found") as gone:
        maker.chat("pirate", user("x"))
    assert gone.value.status_code == 404


def test_names_that_nothing_has(maker):
    for ask in (
        lambda: maker.chat("none", user("x")),
        lambda: maker.generate("none", "x"),
        lambda: maker.show("none"),
        lambda: maker.delete("none"),
        lambda: maker.copy("none", "some"),
        lambda: maker.create("some", from_="none"),
    ):
        with pytest.raises(ollama.ResponseError, match="not found") as error:
            ask()
        assert error.value.status_code == 404


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.create("some"), "neither 'from' or 'files' was specified"),
        (lambda c: c.create("some", files={"a": "sha256:0"}), '"files" is not implemented'),
        (
            lambda c: c.create("some", from_="fake", quantize="q4_0"),
            '"quantize" is not implemented',
        ),
        (lambda c: c.create("fake", from_="fake"), "is a pinned model"),
        (lambda c: c.create("a b", from_="fake"), 'model "a b" is invalid'),
        (lambda c: c.create("x", from_="fake", template="{{ .Prompt }}"), "Go's language"),
        (lambda c: c.create("x", from_="fake", parameters={"zork": 1}), 'parameter "zork" is none'),
        (
            lambda c: c.create("x", from_="fake", parameters={"top_k": "x"}),
            'option "top_k" must be of type integer',
        ),
        (lambda c: c.copy("fake", "a b"), 'destination "a b" is invalid'),
        (lambda c: c.copy("a b", "x"), 'source "a b" is invalid'),
        (lambda c: c.delete("fake"), "is a pinned file"),
        (lambda c: c.pull("x"), "this server fetches no models"),
        (lambda c: c.push("x"), "this server sends models nowhere"),
        (lambda c: list(c.pull("x", stream=True)), "this server fetches no models"),
    ],
)
def test_what_is_refused(maker, ask, message):
    with pytest.raises(ollama.ResponseError, match=message) as error:
        ask(maker)
    assert error.value.status_code == 400


def test_files_are_not_taken(maker, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ollama.ResponseError, match="takes no files over the network"):
        maker.create_blob(tmp_path / "a.gguf")


def test_without_a_folder_nothing_is_made(client):
    for ask in (
        lambda: client.create("x", from_="any"),
        lambda: client.copy("any", "x"),
        lambda: client.delete("any"),
    ):
        with pytest.raises(ollama.ResponseError, match="start it with -models DIR"):
            ask()


def test_errors_of_a_stream_are_the_clients_errors(client):
    with pytest.raises(ollama.ResponseError, match="the executor broke"):
        list(client.chat("any", user("boom"), stream=True))
    with pytest.raises(ollama.ResponseError, match="image"):
        client.chat("any", [{"role": "user", "content": "x", "images": [b"\x89PNG...."]}])


def test_a_client_that_stops_reading_frees_the_slot(served, client):
    stream = client.chat("any", user("forever"), stream=True, options={"num_predict": -1})
    served.allow(3)
    next(stream)
    stream.close()
    served.allow(None)
    served.until_idle()
    assert math.isfinite(served.state["stats"]["cancelled"])
