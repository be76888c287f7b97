"""A delta net with a prediction block through a running server: what it says of itself."""

import numpy as np
import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_core.state.stored import common_prefix
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.plugins import tiny, tiny_next
from tests.server.conftest import Running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recurrent")
    plain = tiny.write(folder / "plain.gguf", "qwen35-mtp")
    running = Running(
        "golem-server",
        GOLEM_MODEL=str(tiny_next.of_the_last_token(plain, folder / "model.gguf")),
        GOLEM_CONTEXT="2048",
        GOLEM_PARALLEL="4",
        GOLEM_THREADS="2",
        GOLEM_DRAFT="mtp",
        GOLEM_CHECKPOINT_MEMORY="12MiB",
    )
    running.ready()
    yield running
    running.stop()


def test_fewer_copies_of_the_state_than_asked_for_are_told_at_the_start(server):
    """Four slots, and 1.6 MiB a copy: 12 MiB hold one each."""
    line = server.wait_for_line("checkpoints: ").string
    assert "checkpoints: 1 a slot, 1.6 MiB each, of 3 asked for: memory is short" in line
    assert "-checkpoint-memory allows more" in line


def test_guesses_are_told_with_an_answer_and_counted(server):
    server.wait_for_line("drafts: by the file's prediction block")
    body = {"prompt": "a b c", "n_predict": 40, "temperature": 0}
    timings = server.post("/completion", body)[1]["timings"]
    assert timings["predicted_n"] == 40
    assert 0 < timings["draft_n_accepted"] == timings["draft_n"]
    text = server.request("GET", "/metrics")[2].decode()
    assert f"spec_decode_num_accepted_tokens_total {timings['draft_n']}.0\n" in text


def test_five_conversations_whose_last_message_changes_read_no_more_than_that(tmp_path):
    """Each has a sheet of its own; every answer is what it is when all of it is read."""
    plugins = load_plugins()
    path = tiny.write(tmp_path / "tiny.gguf", "qwen35")
    flags = ["-model", str(path), "-context", "10240", "-parallel", "5", "-threads", "2"]
    service = Service(config.load(flags, plugins, {}).settings, plugins)
    client = TestClient(create_app(service))

    def post(route, **body):
        answer = client.simulate_post(route, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json

    def tokens(messages):
        prompt = post("/apply-template", messages=messages)["prompt"]
        return post("/tokenize", content=prompt, add_special=True)["tokens"]

    service.load()
    try:
        before = {}
        for turn, question in enumerate(["Who goes there?", "So it is you?", "any news of her?"]):
            for name in "ABCDE":
                sheet = f"{name} is a villager. " + f"{name.lower()} knows " * 200
                messages = [
                    {"role": "system", "content": sheet},
                    {"role": "user", "content": question},
                ]
                prompt = tokens(messages)
                asked = {"messages": messages, "temperature": 0, "logprobs": True}
                asked |= {"max_tokens": 8, "ignore_eos": True}
                made = post("/v1/chat/completions", **asked)
                told = made["timings"]
                assert told["cache_n"] + told["prompt_n"] == len(prompt) > 1000
                shares = int(common_prefix(before.get(name, np.zeros(0, int)), np.array(prompt)))
                assert told["prompt_n"] == len(prompt) - shares, (turn, name)
                before[name] = np.array(prompt)
                assert not turn or told["prompt_n"] < 60
                if turn == 2:
                    cold = post("/v1/chat/completions", **asked, cache_prompt=False)
                    assert cold["timings"]["cache_n"] == 0
                    assert cold["choices"] == made["choices"]
    finally:
        service.close()
