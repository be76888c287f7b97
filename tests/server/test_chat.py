"""``/v1/chat/completions``: bodies and streams have llama-server's shape, and say the same."""

import json

import pytest

from tests.paths import data
from tests.server.conftest import chat_body

RECORDED = json.loads(data("server/llama_server_bodies.json").read_text())
CHAT = "/v1/chat/completions"


OWN = ("ttft_ms", "grammar_ms", "resampled", "energy_j")  # that golem adds to timings


def shape(value):
    """Keys in their order and the JSON types of what is below them; golem's own left out."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items() if key not in OWN]
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def stream(served, text, **fields):
    """The chunks of a streamed answer, its ``[DONE]`` checked and taken off."""
    events = served.events(CHAT, chat_body(text, stream=True, **fields))
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def deltas(chunks):
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


def test_the_body_is_llama_servers_key_for_key(served):
    status, body = served.chat("hello")
    assert status == 200
    assert shape(body) == shape(RECORDED["chat"])
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "you said: hello"}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["id"].startswith("chatcmpl-")
    assert len(body["id"]) == len("chatcmpl-") + 32


def test_timings_tell_besides_when_the_first_text_came_and_what_a_grammar_cost(served):
    free = served.chat("say 5")[1]["timings"]
    held = served.chat("say 5", response_format={"type": "json_object"}, max_tokens=20)[1]
    assert tuple(free)[-3:] == OWN[:3] or tuple(free)[-4:] == OWN  # where energy is measured
    assert free["ttft_ms"] > 0
    assert (free["grammar_ms"], free["resampled"]) == (0, 0)
    assert held["timings"]["grammar_ms"] > 0
    assert held["timings"]["resampled"] > 0


def test_the_stream_is_llama_servers_chunk_for_chunk(served):
    chunks = stream(served, "say hi", max_tokens=1)
    recorded = RECORDED["chat_stream"][:-1]
    assert [shape(c) for c in chunks] == [shape(recorded[i]) for i in (0, 1, 3)]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert chunks[-1]["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}
    assert len({(c["id"], c["created"]) for c in chunks}) == 1


@pytest.mark.parametrize(
    "text",
    ["hello", "say ", "say one STOP two", "bytes f09f9982 c3a9", "bytes f09f99 6f", "forever"],
)
def test_streamed_text_equals_unstreamed_text(served, text):
    fields = {"stop": ["STOP"], "max_tokens": 25}
    whole = served.chat(text, **fields)[1]
    chunks = stream(served, text, **fields)
    assert deltas(chunks) == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert "�" not in deltas(chunks)


def test_usage_is_a_chunk_of_its_own_and_only_when_asked(served):
    plain = stream(served, "hello")
    asked = stream(served, "hello", stream_options={"include_usage": True})
    assert all("usage" not in chunk for chunk in plain)
    assert "timings" in plain[-1]
    assert len(asked) == len(plain) + 1
    assert "timings" not in asked[-2]
    last = asked[-1]
    assert last["choices"] == []
    assert set(last["usage"]) == set(RECORDED["chat"]["usage"])
    assert shape(last["timings"]) == shape(RECORDED["chat"]["timings"])


def test_the_whole_prompt_is_counted_and_what_the_slot_held_beside_it(served):
    text = "say a prompt nobody sent before"
    prompt = f"<user>{text}\n<assistant>"
    served.chat(text)
    body = served.chat(text)[1]
    assert body["usage"]["prompt_tokens"] == len(prompt)
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": len(prompt) - 1}
    assert body["usage"]["completion_tokens"] == len("a prompt nobody sent before") + 1
    assert body["timings"]["cache_n"] == len(prompt) - 1
    assert body["timings"]["prompt_n"] == 1
    fresh = served.chat(text, cache_prompt=False)[1]
    assert fresh["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    ("fields", "drawn"),
    [
        ({}, 40),  # the server's -n
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8}, 8),
        ({"n_predict": 9, "max_tokens": 3}, 9),
        ({"max_tokens": 5.0}, 5),
        ({"max_tokens": 0}, 1),
        ({"max_tokens": None}, 40),
        ({"max_tokens": -1}, 256 - len("<user>forever\n<assistant>")),  # the slot's context
    ],
)
def test_the_length_of_an_answer(served, fields, drawn):
    body = served.chat("forever", **fields)[1]
    assert body["usage"]["completion_tokens"] == drawn
    assert body["choices"][0]["finish_reason"] == "length"


def test_stop_texts_end_the_answer_and_are_not_in_it(served):
    body = served.chat("say one two three", stop="two")[1]
    assert body["choices"][0]["message"]["content"] == "one "
    assert body["choices"][0]["finish_reason"] == "stop"
    body = served.chat("say one two three", stop=["three", "", "two"])[1]
    assert body["choices"][0]["message"]["content"] == "one "


def test_any_model_name_is_accepted_and_echoed(served):
    assert served.chat("hi", model="gpt-4o")[1]["model"] == "gpt-4o"
    assert served.chat("hi")[1]["model"] == "fake"
    assert stream(served, "hi", model="x")[0]["model"] == "x"


def test_text_parts_are_joined_by_newlines_and_roles_are_mapped(served):
    messages = [
        {"role": "developer", "content": "short"},
        {
            "role": "model",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {"role": "user", "content": "say ok"},
    ]
    body = served.post(CHAT, {"messages": messages})[1]
    prompt = "<system>short\n<assistant>a\nb\n<user>say ok\n<assistant>"
    assert body["usage"]["prompt_tokens"] == len(prompt)


def test_a_last_assistant_message_is_gone_on_from(served):
    messages = [
        {"role": "user", "content": "say good morning"},
        {"role": "assistant", "content": "good"},
    ]
    body = served.post(CHAT, {"messages": messages})[1]
    assert body["choices"][0]["message"]["content"] == "good morning"
    events = served.events(CHAT, {"messages": messages, "stream": True})
    assert deltas([json.loads(e) for e in events[:-1]]) == " morning"
    turn = {"messages": messages, "continue_final_message": False}
    prompt = "<user>say good morning\n<assistant>good\n<assistant>"
    assert served.post(CHAT, turn)[1]["usage"]["prompt_tokens"] == len(prompt)


def test_no_generation_prompt_means_that_the_prompt_ends_after_the_last_message(served):
    """Also where that is the assistant's, unless it is to be gone on from by name."""
    messages = [
        {"role": "user", "content": "say good morning"},
        {"role": "assistant", "content": "good"},
    ]
    turn = {"messages": messages, "add_generation_prompt": False}
    whole = "<user>say good morning\n<assistant>good\n"
    assert served.post(CHAT, turn)[1]["usage"]["prompt_tokens"] == len(whole)
    body = served.post(CHAT, turn | {"continue_final_message": True})[1]
    assert body["usage"]["prompt_tokens"] == len(whole) - 1
    assert body["choices"][0]["message"]["content"] == "good morning"


def test_template_arguments_reach_the_template(served):
    body = served.chat("say ok", chat_template_kwargs={"shout": True})[1]
    assert body["choices"][0]["message"]["content"] == "you said: <USER>SAY OK"
    no_prompt = served.chat("say ok", add_generation_prompt=False)[1]
    assert no_prompt["usage"]["prompt_tokens"] == len("<user>say ok\n")


def test_unknown_fields_and_values_that_ask_for_nothing_are_accepted(served):
    body = {
        "user": "somebody",
        "metadata": {"a": "b"},
        "store": False,
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "logprobs": False,
        "n": 1,
        "logit_bias": {},
        "presence_penalty": 0,
        "seed": None,
        "stream_options": None,
    }
    assert served.chat("hello", **body)[0] == 200


def test_the_short_path_is_the_same_endpoint(served):
    assert served.post("/chat/completions", chat_body("hello"))[0] == 200


def test_headers_of_bodies_and_streams(served):
    _, headers, _ = served.request("POST", CHAT, json.dumps(chat_body("hello")))
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert headers["Server"] == "golem"
    _, headers, _ = served.request("POST", CHAT, json.dumps(chat_body("hello", stream=True)))
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["Server"] == "golem"


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_the_content_type_is_not_looked_at(served, kind):
    headers = {"Content-Type": kind} if kind else {}
    status, _, body = served.request("POST", CHAT, json.dumps(chat_body("hello")), headers)
    assert status == 200, body


def test_the_log_line_tells_status_bytes_slot_and_counts(served):
    start = len(served.log)
    _, _, body = served.request("POST", CHAT, json.dumps(chat_body("log this")))
    match = served.wait_for_line(
        r"POST /v1/chat/completions 200 (\d+) bytes in \d+ms — slot \d[^—]* — (\d+) prompt in \S+ "
        r"\([\d.]+/s\), (\d+) drawn in \S+ \([\d.]+/s\), stop$",
        start,
    )
    assert int(match[1]) == len(body)
    assert int(match[2]) == json.loads(body)["timings"]["prompt_n"]
    assert int(match[3]) == json.loads(body)["usage"]["completion_tokens"]
    assert not any("log this" in line for line in served.log)
