"""Conversations that take turns: with a slot each, only the added turn is fed."""

import pytest

from tests.server.test_chat import CHAT

ALICE = "A keeper of a lighthouse talks here; she is fond of the sea and of old boats."
BOB = "Be a patient teacher of arithmetic for children, and end with a question."


def turn(server, messages, text):
    """Add a question and its answer; the answer's timings and its slot from the log."""
    start = len(server.log)
    messages.append({"role": "user", "content": text})
    body = server.post(CHAT, {"messages": messages})[1]
    messages.append(body["choices"][0]["message"])
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == body["timings"]["cache_n"]
    line = server.wait_for_line(r"POST \S+ 200 .* — slot (\d+)[^—]* — (\d+) prompt", start)
    assert int(line[2]) == body["timings"]["prompt_n"]
    return body["timings"], int(line[1])


@pytest.mark.parametrize("parallel", ["1", "2"])
def test_alice_bob_alice(start, parallel):
    server = start(GOLEM_PARALLEL=parallel, GOLEM_CONTEXT=str(400 * int(parallel))).ready()
    alice = [{"role": "system", "content": ALICE}]
    bob = [{"role": "system", "content": BOB}]
    first, slot_of_alice = turn(server, alice, "say hello")
    other, slot_of_bob = turn(server, bob, "say twelve")
    second, slot_again = turn(server, alice, "say soup")

    shared = len("<system>")  # where Bob's prompt parts from Alice's
    added = len("\n<user>say soup\n<assistant>")  # the end of an answer is not kept
    whole = first["prompt_n"] + len("hello") + added
    if parallel == "1":
        assert other["cache_n"] == shared
        assert (second["cache_n"], second["prompt_n"]) == (shared, whole - shared)
    else:
        assert slot_of_alice != slot_of_bob
        assert slot_again == slot_of_alice
        assert (second["cache_n"], second["prompt_n"]) == (whole - added, added)
