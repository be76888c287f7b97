"""Two people take turns with SmolLM2 over HTTP: what each turn is fed, and where."""

import contextlib
import re

import pytest
from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.paths import smollm2

pytestmark = pytest.mark.real
CHAT = "/v1/chat/completions"
LINE = r" 200 .* — slot (\d+)[^—]* — (\d+) prompt in "
ALICE = "What is the capital of France?"
BOB = (
    "I am learning how glaciers form. Explain to me in simple words where the ice comes from, why "
    "it moves down a valley although it is solid, what the dark stripes on its back are made of, "
    "and what remains of a valley after the last of the ice has melted away. Please be brief."
)


@contextlib.contextmanager
def client(parallel):
    plugins = load_plugins()
    flags = ["-model", str(smollm2()), "-parallel", str(parallel), "-cache-ram", "0"]
    service = Service(config.load([*flags, "-context", "2048"], plugins, {}).settings, plugins)
    application = create_app(service)
    lines = []
    application.write = lines.append
    service.load()
    try:
        client = TestClient(application)
        client.lines = lines
        yield client
    finally:
        service.close()


def turn(client, messages, text):
    """Adds a question and its answer; the answer's usage, slot and what the log says was fed."""
    messages.append({"role": "user", "content": text})
    body = {"messages": messages, "temperature": 0, "max_tokens": 12}
    answer = client.simulate_post(CHAT, json=body).json
    messages.append(answer["choices"][0]["message"])
    slot, fed = re.search(LINE, client.lines[-1]).groups()
    assert answer["timings"]["prompt_n"] == int(fed)
    return answer["usage"], int(slot), int(fed)


@pytest.mark.parametrize("parallel", [1, 2])
def test_alice_bob_and_alices_next_turn(parallel):
    """SmolLM2 gives both the same system prompt: 26 of Bob's tokens are Alice's first."""
    with client(parallel) as served:
        alice, bob = [], []
        first, alices, fed = turn(served, alice, ALICE)
        assert fed == first["prompt_tokens"] == 37
        other, bobs, fed = turn(served, bob, BOB)
        shared = other["prompt_tokens_details"]["cached_tokens"]
        assert other["prompt_tokens"] == shared + fed
        assert 20 < shared < 30 and shared * 10 >= other["prompt_tokens"]
        second, slot, fed = turn(served, alice, "And of Italy?")
        cached = second["prompt_tokens_details"]["cached_tokens"]
        assert (second["prompt_tokens"], slot) == (cached + fed, alices)
        if parallel == 1:
            assert cached == shared
        else:
            # All that was fed and drawn before but for its last token, which was never fed.
            assert cached == first["prompt_tokens"] + first["completion_tokens"] - 1
            assert fed < 20
            _, slot, fed = turn(served, bob, "Thank you.")
            assert (slot, bobs) == (1 - alices, 1 - alices)
            assert fed < 20
