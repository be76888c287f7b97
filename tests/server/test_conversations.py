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


@pytest.mark.parametrize(("parallel", "ram"), [("1", "0"), ("1", "1MiB"), ("2", "0")])
def test_alice_bob_alice(start, parallel, ram):
    """In one slot her turn is read again from where Bob's parts, unless memory keeps hers."""
    context = str(400 * int(parallel))
    settings = {"GOLEM_PARALLEL": parallel, "GOLEM_CONTEXT": context, "GOLEM_CACHE_RAM": ram}
    server = start(**settings).ready()
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
    if (parallel, ram) == ("1", "0"):
        assert (second["cache_n"], second["prompt_n"]) == (shared, whole - shared)
    else:
        assert slot_again == slot_of_alice
        assert (slot_of_alice == slot_of_bob) == (parallel == "1")
        assert (second["cache_n"], second["prompt_n"]) == (whole - added, added)


def test_several_answers_read_their_prompt_once(served):
    """The log tells what was fed, usage counts the prompt once, as OpenAI does."""
    begun = len(served.log)
    messages = [{"role": "user", "content": "say how often this prompt of mine is read"}]
    body = served.post(CHAT, {"messages": messages, "n": 2})[1]
    texts = [choice["message"]["content"] for choice in body["choices"]]
    assert texts == ["how often this prompt of mine is read"] * 2
    line = served.wait_for_line(
        r"POST \S+ 200 .* — slot [^—]* — (\d+) prompt .* (\d+) drawn", begun
    )
    usage, prompt = body["usage"], len(f"<user>{messages[0]['content']}\n<assistant>")
    assert usage["prompt_tokens"] == prompt
    assert int(line[1]) == prompt - usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["completion_tokens"] == int(line[2]) == 2 * (len(texts[0]) + 1)
