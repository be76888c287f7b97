"""``/completion`` against what a llama-server answered on the same model."""

import json

import pytest

from golem_core.sample import Probs
from golem_core.schedule import Step
from golem_server.logprobs import Entries
from tests.server.recorded import BANNED, HELLO, RECORDED
from tests.server.test_chat import OWN, shape

NEAR = 2e-3  # natural logarithms; llama.cpp rounds the columns of a product otherwise


def near(ours, theirs):
    """Equal but for the last digits of probabilities."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert list(one) == list(other)
        for key in one:
            if key in ("logprob", "prob"):
                assert one[key] == pytest.approx(other[key], abs=NEAR)
            elif key.startswith("top_"):
                near(one[key], other[key])
            else:
                assert one[key] == other[key]


def without(answer, *names):
    return {key: value for key, value in answer.items() if key not in names}


DIFFERS = ("timings", "completion_probabilities", "id_slot")


def test_the_body_is_llama_servers_member_for_member(tiny):
    tiny.native("hello", n_predict=1)  # what the recorded slot held
    body = tiny.native("hello world", n_predict=3, temperature=0, n_probs=2, return_tokens=True)
    recorded = RECORDED["answer"]
    assert list(body) == RECORDED["answer_keys"]
    assert list(body["generation_settings"]) == RECORDED["settings_keys"]
    assert without(body, "generation_settings", *DIFFERS) == without(recorded, *DIFFERS)
    assert shape(body["timings"]) == shape(recorded["timings"])
    assert body["timings"]["cache_n"] == recorded["timings"]["cache_n"]
    assert tuple(body["timings"])[9:12] == OWN[:3]
    near(body["completion_probabilities"], recorded["completion_probabilities"])


@pytest.mark.parametrize(("name", "temperature"), [("after_greedy", 0), ("after_drawn", 0.8)])
def test_probabilities_after_the_samplers(tiny, name, temperature):
    body = tiny.native(
        "hello world", n_predict=2, temperature=temperature, n_probs=2, post_sampling_probs=True
    )
    near(body["completion_probabilities"], RECORDED[name])


def test_the_stream_is_llama_servers_event_for_event(tiny):
    asked = {"prompt": "hello world", "seed": 1, "logit_bias": BANNED, "temperature": 0}
    *events, last = tiny.events("/completion", asked | {"n_predict": 3})
    assert events == RECORDED["stream"]
    assert list(last) == [k for k in RECORDED["answer_keys"] if k != "completion_probabilities"]
    assert (last["content"], last["tokens"], last["stop"]) == ("", [], True)
    assert (last["stop_type"], last["tokens_cached"]) == ("limit", 5)
    assert last["generation_settings"]["stream"] is True


def test_a_stop_word_in_the_middle_of_tokens(tiny):
    asked = {"n_predict": 20, "temperature": 0, "stop": ["n5P"], "n_probs": 1}
    body = tiny.native("hello world", **asked)
    recorded = RECORDED["stop_word"]
    assert {key: body[key] for key in recorded} == recorded
    assert len(body["completion_probabilities"]) == RECORDED["stop_word_entries"]
    same = {"prompt": "hello world", "seed": 1, "logit_bias": BANNED, **asked, "n_probs": 0}
    *events, last = tiny.events("/completion", same)
    recorded = RECORDED["stop_word_stream"]
    assert [without(e, "timings") for e in events] == [without(e, "timings") for e in recorded]
    assert [list(e) for e in events] == [list(e) for e in recorded]
    assert last["stopping_word"] == "n5P"


@pytest.mark.parametrize(("length", "name"), [(250, "full"), (255, "nearly_full")])
def test_an_answer_that_fills_its_slot(tiny, length, name):
    body = tiny.native("x" * length, n_predict=-1)
    recorded = RECORDED[name]
    assert {k: body[k] for k in recorded if k != "content"} == without(recorded, "content")
    assert len(body["content"]) == len(recorded["content"])


def test_complaint_3_an_overflow_is_a_400_with_the_numbers_streamed_or_not(tiny):
    """Clients want to know by how much, and nothing cut silently."""
    for path, asked in (
        ("/completion", {"prompt": "x" * 256}),
        ("/v1/completions", {"prompt": "x" * 256}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 242}]}),
    ):
        for stream in (False, True):
            error = tiny.ask(path, asked | {"stream": stream}, 400)["error"]
            assert error == {
                "code": 400,
                "message": "request (256 tokens) exceeds the available context size (256 tokens), "
                "try increasing it",
                "type": "exceed_context_size_error",
                "param": None,
                "n_prompt_tokens": 256,
                "n_ctx": 256,
            }


def test_several_prompts_are_an_array_and_fields_are_chosen(tiny):
    fields = ["content", "index", "generation_settings/n_predict", "timings/none"]
    body = tiny.native(["hello", "the"], n_predict=1, response_fields=fields)
    assert [(len(one["content"]), one["index"]) for one in body] == [(1, 0), (1, 1)]
    assert [list(one) for one in body] == [fields[:3]] * 2
    assert body[0]["generation_settings/n_predict"] == 1


def test_several_answers_have_seeds_of_their_own(tiny):
    body = tiny.native("hello", n_cmpl=2, n_predict=8, temperature=1.5)
    assert [one["index"] for one in body] == [0, 1]
    assert (
        body[1]["content"] == tiny.native("hello", seed=2, n_predict=8, temperature=1.5)["content"]
    )
    asked = {"prompt": "hello", "n": 2, "n_predict": 3, "seed": 1, "logit_bias": BANNED}
    events = tiny.events("/completion", asked)
    assert sorted(e["index"] for e in events if e["stop"]) == [0, 1]


def test_an_empty_prompt_is_answered_with_nothing(tiny):
    body = tiny.ask("/completion", {"prompt": ""})
    told = (body["content"], body["tokens_evaluated"], body["stop_type"], body["tokens_cached"])
    assert told == ("", 0, "none", 0)
    assert list(body["generation_settings"]) == RECORDED["settings_keys"]
    (event,) = tiny.events("/completion", {"prompt": ""})
    assert event["stop"] is True


@pytest.mark.parametrize(
    "prompt", [[261, " world"], {"prompt_string": "hello world"}, [{"prompt_string": "hello"}]]
)
def test_every_form_of_a_prompt(tiny, prompt):
    body = tiny.native(prompt, n_predict=1)
    assert body["prompt"] in ("hello world", "hello")


@pytest.mark.parametrize("sent", [{}, {"prompt": None}])
def test_a_prompt_is_required(tiny, sent):
    assert tiny.ask("/completion", sent, 400)["error"]["message"] == '"prompt" is required'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_predict": -2}, "Field 'n_predict': Value must be between -1 <= value <= 2147483647,"),
        ({"n_keep": -2}, "Field 'n_keep': Value must be between -1 <="),
        ({"n_indent": -1}, "Field 'n_indent': Value must be between 0 <="),
        (
            {"t_max_predict_ms": -5},
            "Field 't_max_predict_ms': Value must be between -1 <= value <= 9223372036854775807, "
            "but got -5",
        ),
        ({"sse_ping_interval": -2}, "Field 'sse_ping_interval': Value must be between -1 <="),
        ({"lora": "x"}, "Field 'lora': Error: 'lora' must be an array of objects"),
        ({"lora": [{"id": 0, "scale": 1}]}, "LoRA adapters are not supported"),
        ({"n_cmpl": 0}, "Field 'n_cmpl': Value must be between 1 <="),
        ({"n_cmpl": 3}, "n is 3: this server draws at most 2 answers"),
        ({"id_slot": 2}, "Field 'id_slot': Value must be between -1 <= value <= 1"),
        ({"return_progress": 1}, "Field 'return_progress': type must be boolean, but is number"),
        ({"n_cache_reuse": 8}, '"n_cache_reuse" is not served'),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["eA=="]}}, '"multimodal_data" is'),
    ],
)
def test_wrong_fields_are_named(tiny, fields, message):
    error = tiny.ask("/completion", {"prompt": "hello", **fields, "stream": True}, 400)["error"]
    assert error["message"].startswith(message)


def test_settings_come_back_as_they_are_used(tiny):
    sent = {
        "n_keep": 5,
        "stop": ["a", ""],
        "logit_bias": [[3, 1.5], [4, False]],
        "samplers": ["top_k", "temperature"],
        "top_p": 7,
        "dry_sequence_breakers": ["x"],
        "grammar": 'root ::= "a"*',
        "repeat_penalty": 1.1,
    }
    told = tiny.ask("/completion", {"prompt": "hello", "n_predict": 2, **sent})[
        "generation_settings"
    ]
    assert told["n_keep"] == 5
    assert told["stop"] == ["a"]
    assert told["logit_bias"] == [{"bias": 1.5, "token": 3}, {"bias": None, "token": 4}]
    assert told["samplers"] == ["top_k", "temperature"]
    assert told["top_p"] == 1
    assert told["dry_sequence_breakers"] == ["x"]
    assert told["grammar"] == sent["grammar"]
    assert told["repeat_penalty"] == 1.100000023841858  # a float32


def test_a_time_limit_ends_at_a_line(tiny):
    newline = {"grammar": 'root ::= ("a\\n")*', "temperature": 0, "ignore_eos": True}
    free = tiny.native("hello", n_predict=9, **newline)
    held = tiny.native("hello", n_predict=9, t_max_predict_ms=0, **newline)
    assert free["content"] == held["content"] == "a\na\na\na\na"
    assert free["has_new_line"] is True
    assert tiny.native("hello", n_predict=1, **newline)["has_new_line"] is False


def test_progress_comes_before_the_answer(tiny):
    tiny.native("xyz", n_predict=1)
    asked = {"prompt": "xyz" * 60, "n_predict": 1, "return_progress": True, "seed": 1}
    first, second, *_ = tiny.events("/completion", asked)
    assert first == {
        "index": 0,
        "content": "",
        "tokens": [],
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": 0,
        "tokens_evaluated": 180,
        "prompt_progress": {"total": 180, "cache": 0, "processed": 0, "time_ms": 0},
    }
    assert second["prompt_progress"]["processed"] == 180


def test_a_chat_tells_its_progress_and_pace_as_llama_server_does(tiny):
    ask = {"messages": HELLO, "temperature": 0, "max_tokens": 2, "seed": 1, "logit_bias": BANNED}
    tiny.ask("/v1/chat/completions", ask)
    asked = ask | {"return_progress": True, "timings_per_token": True}
    *chunks, done = tiny.events("/v1/chat/completions", asked)
    assert done == "[DONE]"
    recorded = RECORDED["progress_stream"]
    assert [shape(chunk) for chunk in chunks] == [shape(chunk) for chunk in recorded]
    choices = [chunk["choices"] for chunk in chunks]
    assert choices == [chunk["choices"] for chunk in recorded]
    told = [chunk["prompt_progress"] | {"time_ms": 0} for chunk in chunks[:2]]
    assert told == [chunk["prompt_progress"] for chunk in recorded[:2]]
    counts = [c.get("timings", {}).get("predicted_n") for c in chunks]
    assert counts == [c.get("timings", {}).get("predicted_n") for c in recorded]


def test_completions_tell_them_too(tiny):
    asked = {"prompt": "hello", "max_tokens": 2, "return_progress": True, "timings_per_token": True}
    *chunks, _ = tiny.events("/v1/completions", asked | {"seed": 1, "logit_bias": BANNED})
    assert [c.get("prompt_progress", {}).get("processed") for c in chunks[:2]] == [0, 1]
    assert [c["timings"]["predicted_n"] for c in chunks] == [0, 0, 1, 2, 2]
    error = tiny.ask("/v1/completions", asked | {"post_sampling_probs": True}, 400)["error"]
    assert "use /completion" in error["message"]


def test_a_verbose_chat_holds_the_native_answer(tiny):
    body = tiny.ask("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2, "verbose": True})
    native = body["__verbose"]
    assert list(native) == [k for k in RECORDED["answer_keys"] if k != "completion_probabilities"]
    assert native["generation_settings"]["chat_format"] == "peg-native"
    assert native["prompt"].startswith("<|im_start|>user\nhello")


def test_a_verbose_chat_tells_the_grammar_it_was_given(tiny):
    grammar = 'root ::= "a"+'
    asked = {"messages": HELLO, "max_tokens": 2, "verbose": True, "grammar": grammar}
    body = tiny.ask("/v1/chat/completions", asked)
    assert body["__verbose"]["generation_settings"]["grammar"] == grammar
    assert set(body["choices"][0]["message"]["content"]) == {"a"}


def test_a_chat_takes_n_probs_and_probabilities_after_the_samplers(tiny):
    body = tiny.ask(
        "/v1/chat/completions",
        {"messages": HELLO, "max_tokens": 2, "n_probs": 1, "post_sampling_probs": True, "seed": 1},
    )
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == 2
    assert all(0 < e["prob"] <= 1 and len(e["top_probs"]) == 1 for e in entries)


def test_a_slot_may_be_named(tiny):
    for slot in (1, 0):
        assert tiny.native("hello", n_predict=1, id_slot=slot)["id_slot"] == slot


def test_fields_that_ask_for_nothing_are_taken(tiny):
    nothing = {"cache_prompt": True, "backend_sampling": False, "lora": [], "n_discard": 0}
    nothing |= {"grammar": "", "sse_ping_interval": -1, "stream_options": {}, "n_cache_reuse": 0}
    assert json.dumps(tiny.ask("/completion", {"prompt": "hello", "n_predict": 1, **nothing}))


class Halves:
    """A fake vocabulary in which a token ends inside of a character."""

    PIECES = (b"a\xf0\x9f", b"\x99\x82b", b"", b"c")

    def piece(self, token):
        return self.PIECES[token]


def test_text_before_an_unfinished_character_is_not_lost():
    """A token may bring whole characters and the beginning of one."""
    drawn = [(0, "a", False), (1, "🙂b", True), (3, "c", True)]
    steps = [
        Step(token, text, place + 1, whole, Probs(-1.0, ()), False)
        for place, (token, text, whole) in enumerate(drawn)
    ]
    entries = Entries(Halves())
    for step in steps:
        entries.take(step)
    assert [entry["token"] for entry in entries.release()] == ["a🙂b", "c"]


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_holds_all_of_the_text_whatever_bytes_are_drawn(tiny, seed):
    """The model is random: most of what it says is no text at all."""
    asked = {"prompt": "hello", "n_predict": 40, "seed": seed, "temperature": 3, "top_k": 0}
    whole = tiny.ask("/completion", asked | {"n_probs": 1})
    events = tiny.events("/completion", asked)
    assert "".join(event["content"] for event in events) == whole["content"]
    told = "".join(entry["token"] for entry in whole["completion_probabilities"])
    assert whole["content"].startswith(told)
