"""One conversation through several dialects: each finds what the others left in the slot."""

import json

import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.paths import data, smollm2
from tests.server.conftest import chat_body

SESSIONS = json.loads(data("server/llama_server_sessions.json").read_text())["runs"]


def test_the_first_turn_on_v1_the_second_on_api_the_third_native(served):
    messages = [{"role": "user", "content": "say a beginning that nobody else has"}]
    first = served.post("/v1/chat/completions", {"messages": messages})[1]
    known = first["usage"]["total_tokens"] - 1  # the end token is not kept

    messages += [first["choices"][0]["message"], {"role": "user", "content": "say more"}]
    second = served.post("/api/chat", {"model": "x", "messages": messages, "stream": False})[1]
    records = served.get("/golem/records")[1]["records"]
    assert records[-1]["cached_tokens"] == known
    known = second["prompt_eval_count"] + second["eval_count"] - 1

    messages += [second["message"], {"role": "user", "content": "say the end"}]
    prompt = served.post("/apply-template", {"messages": messages})[1]["prompt"]
    third = served.post("/completion", {"prompt": prompt})[1]
    assert third["content"] == "the end"
    assert third["timings"]["cache_n"] == known

    messages += [{"role": "assistant", "content": third["content"]}]
    messages += [{"role": "user", "content": "say again"}]
    again = served.post("/v1/messages", {"messages": messages, "max_tokens": 20})[1]
    known = third["tokens_evaluated"] + third["tokens_predicted"] - 1
    assert again["usage"]["cache_read_input_tokens"] == known


@pytest.fixture
def smollm():
    """Makes clients of a server of SmolLM2, closed at the end."""
    services = []

    def make(parallel, cache_ram):
        plugins = load_plugins()
        flags = ["-model", str(smollm2()), "-parallel", str(parallel)]
        flags += ["-context", str(512 * parallel), "-cache-ram", cache_ram]
        service = Service(config.load(flags, plugins, {}).settings, plugins)
        services.append(service)
        application = create_app(service)
        application.write = lambda line: None
        service.load()
        return TestClient(application)

    yield make
    for service in services:
        service.close()


@pytest.mark.real
@pytest.mark.parametrize(
    ("run", "parallel", "cache_ram"),
    [("np1-no-host-cache", 1, "0"), ("np1", 1, "64MiB"), ("np2", 2, "64MiB")],
)
def test_cached_tokens_are_llama_servers_on_recorded_conversations(
    smollm, run, parallel, cache_ram
):
    """The recorded answer is what each slot is left with, as it was there."""
    client = smollm(parallel, cache_ram)
    for place, turn in enumerate(SESSIONS[run]):
        body = {"messages": turn["messages"], "temperature": 0, "max_tokens": 24}
        written = json.dumps(turn["content"], ensure_ascii=False)
        body["grammar"] = f"root ::= {written}"
        answer = client.simulate_post("/v1/chat/completions", json=body).json
        assert answer["choices"][0]["message"]["content"] == turn["content"], place
        usage = answer["usage"]
        assert usage["prompt_tokens"] == turn["usage"]["prompt_tokens"], place
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached == answer["timings"]["cache_n"]
        assert cached == turn["cache_n"], place


def test_complaint_1_a_growing_conversation_and_a_last_turn_drawn_again_are_not_reread(served):
    """The whole prompt was read again every turn."""
    messages = chat_body("say a growing conversation")["messages"]
    for _ in range(3):
        body = served.post("/v1/chat/completions", {"messages": messages})[1]
        known = body["usage"]["total_tokens"] - 1
        again = served.post("/v1/chat/completions", {"messages": messages})[1]
        assert again["timings"]["prompt_n"] == 1
        messages += [body["choices"][0]["message"], {"role": "user", "content": "say more"}]
        grown = served.post("/v1/chat/completions", {"messages": messages})[1]
        assert grown["timings"]["cache_n"] == known
