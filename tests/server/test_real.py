"""The server on a real model: SmolLM2-135M-Instruct."""

import json

import pytest
from falcon.testing import TestClient

import golem_core
from golem_core.cpu import features
from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.paths import smollm2
from tests.server.conftest import events_of

pytestmark = pytest.mark.real
CHAT = "/v1/chat/completions"
CAPITAL = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 40,
}


@pytest.fixture(scope="module")
def client():
    plugins = load_plugins()
    flags = ["-model", str(smollm2()), "-parallel", "2", "-context", "2048"]
    service = Service(config.load(flags, plugins, {}).settings, plugins)
    application = create_app(service)
    lines = []
    application.write = lines.append
    service.load()
    client = TestClient(application)
    client.service, client.lines = service, lines
    yield client
    service.close()


def text_of(chunks):
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)


def test_paris_streamed_and_unstreamed(client):
    whole = client.simulate_post(CHAT, json=CAPITAL).json
    events = events_of(client.simulate_post(CHAT, json=CAPITAL | {"stream": True}).content)
    assert "Paris" in whole["choices"][0]["message"]["content"]
    assert text_of(map(json.loads, events[:-1])) == whole["choices"][0]["message"]["content"]
    assert whole["usage"]["prompt_tokens"] == 37


@pytest.mark.parametrize("isa", features()["available"])
def test_paris_on_every_instruction_set(isa, monkeypatch):
    """The truth's first word is a near tie: arithmetic much coarser than golem's loses it."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    with golem_core.open(smollm2(), context=256) as model:
        assert "Paris" in model.chat(CAPITAL["messages"], temperature=0, max_tokens=12).text


def test_the_same_seed_draws_the_same_text(client):
    body = CAPITAL | {"temperature": 1.5, "top_k": 0, "seed": 42}
    first, second = (client.simulate_post(CHAT, json=body).json for _ in range(2))
    assert first["choices"] == second["choices"]
    other = client.simulate_post(CHAT, json=body | {"seed": 43}).json
    assert other["choices"] != first["choices"]


def test_a_rendered_prompt_is_the_same_as_its_conversation(client):
    prompt = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 40}
    chat = client.simulate_post(CHAT, json=CAPITAL).json
    completion = client.simulate_post("/v1/completions", json=body).json
    assert completion["choices"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert completion["usage"]["prompt_tokens"] == 37


def test_models_tells_what_is_loaded(client):
    (entry,) = client.simulate_get("/v1/models").json["data"]
    assert entry["id"] == "SmolLM2-135M-Instruct.Q4_1"
    assert entry["meta"] == {
        "vocab_type": 2,
        "n_vocab": 49152,
        "n_ctx": 1024,
        "n_ctx_train": 8192,
        "n_embd": 576,
        "n_params": 134515008,
        "size": entry["meta"]["size"],
        "ftype": "Q4_1",
    }
    first, *others = client.service.lines
    assert first.startswith(
        "SmolLM2-135M-Instruct.Q4_1: llama, 30 blocks, 2048 positions in 2 slot(s) of 1024, all on"
    )
    assert "template: the file's" in others
