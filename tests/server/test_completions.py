"""``/v1/completions``: strings, ids and lists of prompts, echoed and streamed."""

import json

import pytest

from tests.server.test_chat import RECORDED, shape

PATH = "/v1/completions"
PROMPT = "<user>say hi there\n<assistant>"


def ids(text):
    return list(text.encode())


def texts(served, body):
    """The texts of the choices, unstreamed and from the stream, which must be equal."""
    status, whole = served.post(PATH, body)
    assert status == 200, whole
    events = served.events(PATH, body | {"stream": True})
    assert events[-1] == "[DONE]"
    streamed = [""] * len(whole["choices"])
    for event in events[:-1]:
        (choice,) = json.loads(event)["choices"]
        streamed[choice["index"]] += choice["text"]
    assert streamed == [choice["text"] for choice in whole["choices"]]
    assert [choice["index"] for choice in whole["choices"]] == list(range(len(streamed)))
    return streamed


def test_the_body_is_llama_servers_key_for_key(served):
    body = served.post(PATH, {"prompt": PROMPT})[1]
    assert shape(body) == shape(RECORDED["completion"])
    assert body["choices"][0]["finish_reason"] == "stop"


def test_the_stream_is_llama_servers_chunk_for_chunk(served):
    events = served.events(PATH, {"prompt": PROMPT, "max_tokens": 2, "stream": True})
    assert [shape(json.loads(e)) for e in events[:-1]] == [
        shape(e) for e in RECORDED["completion_stream"][:-1]
    ]
    last = json.loads(events[-2])
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("prompt", "answers"),
    [
        (PROMPT, ["hi there"]),
        ([PROMPT], ["hi there"]),
        (ids(PROMPT), ["hi there"]),
        ([*ids("<user>"), "say hi there\n<assistant>"], ["hi there"]),
        ([PROMPT, PROMPT.replace("there", "you")], ["hi there", "hi you"]),
        ([ids(PROMPT), ids(PROMPT.replace("there", "you"))], ["hi there", "hi you"]),
        ([PROMPT, ids(PROMPT), PROMPT], ["hi there"] * 3),
    ],
)
def test_every_form_of_a_prompt(served, prompt, answers):
    assert texts(served, {"prompt": prompt}) == answers


def test_echo_puts_the_prompt_before_the_answer(served):
    both = {"prompt": [PROMPT, ids("<user>say é\n<assistant>")], "echo": True}
    assert texts(served, both) == [PROMPT + "hi there", "<user>say é\n<assistant>é"]


def test_usage_counts_every_prompt(served):
    body = served.post(PATH, {"prompt": [PROMPT, PROMPT + "x"]})[1]
    assert body["usage"]["prompt_tokens"] == 2 * len(PROMPT) + 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, '"prompt" is required'),
        ({"prompt": None}, '"prompt" is required'),
        ({"prompt": []}, '"prompt" must not be empty'),
        ({"prompt": [[]]}, '"prompt" must not be empty'),
        ({"prompt": 5}, '"prompt" elements must be a string, a list of tokens'),
        ({"prompt": {"a": 1}}, '"prompt" elements must be a string, a list of tokens'),
        ({"prompt": [True]}, '"prompt" elements must be a string, a list of tokens'),
        ({"prompt": [1, None]}, '"prompt" elements must be a string, a list of tokens'),
        ({"prompt": [9999]}, "Prompt contains invalid tokens"),
        ({"prompt": [-1]}, "Prompt contains invalid tokens"),
        ({"prompt": ["a", [10**30]]}, "Prompt contains invalid tokens"),
        ({"prompt": ""}, "an empty prompt"),
        ({"prompt": "a", "suffix": "b"}, '"suffix" is not served'),
        ({"prompt": "a", "best_of": 2}, '"best_of" is not served'),
        ({"prompt": "a", "logprobs": "3"}, "Field 'logprobs': type must be"),
        ({"prompt": "a", "logprobs": -1}, "Field 'logprobs': Value must be between 0"),
        ({"prompt": "a", "n": 3}, "n is 3: this server draws at most 2 answers"),
        ({"prompt": "a", "tools": [{}]}, '"tools" is not served'),
        ({"prompt": "a", "echo": "yes"}, "Field 'echo': type must be boolean, but is string"),
    ],
)
def test_a_wrong_request_is_refused_by_name(served, fields, message):
    status, body = served.post(PATH, fields)
    assert status == 400
    assert message in body["error"]["message"]
    assert body["error"]["type"] == "invalid_request_error"


def test_one_prompt_that_is_too_long_refuses_them_all(served):
    status, body = served.post(PATH, {"prompt": ["a", "b" * 300]})
    assert status == 400
    assert body["error"]["type"] == "exceed_context_size_error"
    served.until_idle()


NONE = {"max_tokens": 0}
SCORED = {"echo": True, "logprobs": 2}


def told(served, body):
    """The choices, unstreamed and from the stream, whose probabilities must be equal."""
    status, whole = served.post(PATH, body)
    assert status == 200, whole
    streamed = [{} for _ in whole["choices"]]
    for event in served.events(PATH, body | {"stream": True})[:-1]:
        (choice,) = json.loads(event)["choices"]
        for name, values in (choice["logprobs"] or {}).items():
            streamed[choice["index"]].setdefault(name, []).extend(values)
    assert streamed == [choice["logprobs"] for choice in whole["choices"]]
    return whole["choices"]


def test_echoed_prompts_have_an_entry_for_every_id(served):
    prompts = ["<user>say é\n<assistant>", ids("<user>say hi\n<assistant>")]
    first, second = told(served, SCORED | {"prompt": prompts})
    assert first["text"] == prompts[0] + "é"
    assert second["text"] == "<user>say hi\n<assistant>hi"
    for choice, prompt in zip((first, second), (ids(prompts[0]), prompts[1]), strict=True):
        probs = choice["logprobs"]
        assert probs["token_logprobs"][0] is probs["top_logprobs"][0] is None
        of_prompt = [probs[name][: len(prompt)] for name in ("token_logprobs", "top_logprobs")]
        assert all(
            value < 0 and len(best) == 2 for value, best in zip(*of_prompt, strict=True) if best
        )
        assert len({len(values) for values in probs.values()}) == 1
    probs = first["logprobs"]
    assert probs["tokens"][8:14] == ["y", " ", "bytes:\\xc3", "bytes:\\xa9", "\n", "<"]
    assert probs["text_offset"][8:14] == [8, 9, 10, 10, 11, 12]
    assert probs["tokens"][-2:] == ["é", ""]
    assert probs["text_offset"][-2:] == [len(prompts[0]), len(prompts[0]) + 1]


def test_an_echo_without_anything_to_draw_draws_nothing(served):
    before = served.state["stats"]
    body = {"prompt": [PROMPT, ids(PROMPT)], "n": 2} | NONE
    assert [c["text"] for c in told(served, body | SCORED)] == [PROMPT] * 4
    status, whole = served.post(PATH, body | {"echo": True})
    assert status == 200
    assert [c["text"] for c in whole["choices"]] == [PROMPT] * 4
    assert {c["finish_reason"] for c in whole["choices"]} == {"length"}
    assert {str(c["logprobs"]) for c in whole["choices"]} == {"None"}
    assert whole["usage"]["completion_tokens"] == 0
    after = served.state["stats"]
    assert after["drawn"] == before["drawn"]
    assert after["prompt_probs"] > before["prompt_probs"]
    assert texts(served, {"prompt": PROMPT} | NONE) == ["h"]  # as llama-server has it


def test_prompts_are_scored_for_whoever_asks_alone(served):
    before = served.state["stats"]["prompt_probs"]
    for fields in ({"echo": True}, {"logprobs": 3}):
        assert served.post(PATH, {"prompt": PROMPT} | fields)[0] == 200
    assert served.state["stats"]["prompt_probs"] == before
    assert served.post(PATH, {"prompt": PROMPT} | SCORED)[0] == 200
    assert served.state["stats"]["prompt_probs"] == before + len(PROMPT) - 1
    metrics = served.request("GET", "/metrics")[2].decode()
    assert f"golem_prompt_logprobs_total {before + len(PROMPT) - 1:.1f}" in metrics
