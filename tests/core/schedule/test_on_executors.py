"""The engine on the real executors: batches, rewinds and cached turns of tiny models."""

import contextlib
import json

import numpy as np
import pytest

from golem_core.model import open_decoder
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_core.schedule.pace import Pace
from tests.core.schedule.fakes import WAIT, FakeClock, Gate, together
from tests.plugins import tiny

PASS = 48


@pytest.fixture(params=["llama", "gemma3"])
def path(request, tmp_path):
    return tiny.write(tmp_path / "tiny.gguf", request.param)


@contextlib.contextmanager
def engine(path, executor="cpu", settings=None, **options):
    options = {"context": 1024, "parallel": 1, "threads": 2, "pass_width": PASS, **options}
    model = open_decoder(path, executor=executor, **options)
    try:
        with Engine(model, **(settings or {})) as running:
            yield running
    finally:
        model.close()


def prompt(seed, count):
    return np.random.default_rng(seed).integers(3, 470, count)


def drawn(engine, tokens, **fields):
    params = SamplerParams(seed=1, temperature=1, ignore_eos=True)
    request = Request(tokens, **{"params": params, "max_tokens": 12, **fields})
    return engine.submit(request).wait(WAIT)


def test_an_answer_is_the_same_alone_and_beside_others(path):
    prompts = [prompt(i, 20 + 17 * i) for i in range(4)]
    params = [SamplerParams(seed=i, temperature=1, ignore_eos=True) for i in range(4)]
    asked = [Request(t, max_tokens=15, params=p) for t, p in zip(prompts, params, strict=True)]
    with engine(path) as one:
        alone = [one.submit(request).wait(WAIT).tokens for request in asked]
    with engine(path, parallel=4, context=4096) as many:
        run = many.model.executor.run
        many.model.executor.before = lambda seen: None
        gate = Gate(many.model.executor)

        def gated(inputs, wanted):
            many.model.executor.before(inputs)
            return run(inputs, wanted)

        many.model.executor.run = gated
        jobs = together(many, gate, asked)
        gate.open()
        assert [job.wait(WAIT).tokens for job in jobs] == alone
        assert many.stats.busy_slots > 2 * many.stats.passes


@pytest.mark.parametrize("executor", ["cpu", "reference"])
def test_the_width_of_a_pass_does_not_change_the_answer(path, executor):
    length, limit = (100, 12) if executor == "cpu" else (30, 2)  # the reference is slow
    answers = []
    for width in (16, 64):
        with engine(path, executor, pass_width=width) as running:
            answers.append(drawn(running, prompt(1, length), max_tokens=limit).tokens)
    assert answers[0] == answers[1]


def test_a_prompt_that_parts_within_what_was_read_gets_what_a_cold_one_gets(path):
    """Read both times, so every bit is the same; past a window of 16 the ring must rewind."""
    first, other = prompt(1, 300), prompt(2, 300)
    with engine(path) as running:
        for shared in (290, 200, 7, 0):
            mixed = np.concatenate([first[:shared], other[shared:]])
            drawn(running, first, max_tokens=1)
            warm = drawn(running, mixed)
            cold = drawn(running, mixed, cache_prompt=False)
            assert warm.tokens == cold.tokens
            assert warm.cached_tokens <= shared
            if running.model.window == 0:
                assert warm.cached_tokens == shared


@pytest.mark.parametrize("kind", ["llama", "gemma3", "qwen35-mtp"])
def test_a_prompt_read_in_pieces_beside_one_that_draws_changes_neither(kind, tmp_path, monkeypatch):
    """Pieces of one step each: windows, recurrent states and prediction blocks in the middle."""
    path = tiny.write(tmp_path / "tiny.gguf", kind)
    talk, text = prompt(8, 10), prompt(9, 400)
    with engine(path) as one:
        alone = [drawn(one, tokens, max_tokens=n).tokens for tokens, n in ((talk, 250), (text, 9))]
    monkeypatch.setattr(Pace, "piece", lambda self, drawn: 1e-9)
    with engine(path, parallel=2, context=2048) as both:
        passes = []
        run = both.model.executor.twin(0).run
        both.model.executor.twin(0).run = lambda *args, **named: (
            passes.append(1) or run(*args, **named)
        )
        params = SamplerParams(seed=1, temperature=1, ignore_eos=True)
        talks = both.submit(Request(talk, max_tokens=250, params=params))
        talks.steps(WAIT)
        reads = drawn(both, text, max_tokens=9)
        assert [talks.wait(WAIT).tokens, reads.tokens] == alone
        assert len(passes) > 20


def test_the_next_turn_of_a_conversation_is_fed_only_what_is_new(path):
    opening, turn = prompt(3, 60), prompt(4, 25)
    with engine(path, parallel=2, context=2048) as running:
        first = drawn(running, opening, max_tokens=20)
        drawn(running, prompt(5, 80), max_tokens=20)  # somebody else's, in the other slot
        held = [*opening, *first.tokens[:-1]]
        second = drawn(running, [*held, *turn])
    assert (second.slot, second.cached_tokens, second.fed_tokens) == (first.slot, 79, 25)


def test_a_failed_pass_leaves_nothing_of_itself_in_the_slot(path):
    tokens = prompt(6, 70)
    with engine(path) as running:
        whole = drawn(running, tokens).tokens
        run = running.model.executor.run
        running.model.executor.run = lambda inputs, wanted: {
            "logits": np.full((len(inputs["outputs"]), running.model.n_vocab), np.nan, np.float32)
        }
        with pytest.raises(Exception, match="NonFiniteLogits"):
            drawn(running, tokens)
        running.model.executor.run = run
        again = drawn(running, tokens)
    assert again.tokens == whole
    assert again.cached_tokens == 0


def test_an_answer_keeps_to_a_schema(path):
    """A model of noise, over a real tokenizer, writes documents of the schema."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 7}, "b": {"enum": ["x", None]}},
        "required": ["a", "b"],
    }
    with engine(path, parallel=3) as running:
        jobs = [
            running.submit(
                Request(
                    prompt(seed, 9),
                    max_tokens=300,
                    params=SamplerParams(seed=seed, temperature=1, json_schema=schema),
                )
            )
            for seed in range(6)
        ]
        for job in jobs:
            result = job.wait(WAIT)
            assert result.stop_type == "eos"
            value = json.loads(result.text)
            assert value["a"] >= 7 and value["b"] in ("x", None) and len(value) == 2


RECURRENT = "qwen35"


@pytest.fixture(params=["llama", "gemma3", "qwen3moe", "gemma4-e2b", RECURRENT])
def any_path(request, tmp_path):
    return tiny.write(tmp_path / "tiny.gguf", request.param)


@pytest.mark.parametrize("temperature", [0, 0.6])
def test_answers_are_the_same_with_drafts_and_without(any_path, temperature):
    """Four at once, of which two begin alike; few words, so that they come back to what they said;
    every guess is acted on."""
    words = tuple((token, 100.0) for token in (11, 12, 13))
    prompts = [prompt(1, 70), np.tile(prompt(2, 7), 9), prompt(3, 30), prompt(1, 45)]
    asked = [
        Request(
            tokens,
            max_tokens=60,
            params=SamplerParams(seed=i, temperature=temperature, logit_bias=words),
            n_probs=2,
        )
        for i, tokens in enumerate(prompts)
    ]
    told = []
    for draft in ("off", "ngram"):
        options = {"draft": draft, "clock": FakeClock()}
        with engine(any_path, parallel=4, context=1024, settings=options) as running:
            jobs = [running.submit(request) for request in asked]
            told.append([[step[:6] for step in job] for job in jobs])
            stats = running.stats
    assert told[0] == told[1]
    assert stats.accepted and (not temperature or stats.drafted > stats.accepted)


def test_a_checkpoint_taken_up_equals_never_having_left(tmp_path):
    """A sheet of 1,100 tokens with changing ends: each is fed alone, and says what it says cold."""
    path = tiny.write(tmp_path / "tiny.gguf", RECURRENT)
    sheet = prompt(1, 1100)
    turns = [np.concatenate([sheet, prompt(10 + i, 5 + i)]) for i in range(4)]
    with engine(path, context=2048, pass_width=128) as running:
        cold = [drawn(running, turn, cache_prompt=False).tokens for turn in turns]
        assert running.checkpoints == 3
    with engine(path, context=2048, pass_width=128) as running:
        warm = [drawn(running, turn) for turn in turns]
        assert [r.fed_tokens for r in warm] == [1105, 1106 - 1024, 7, 8]
        assert [r.tokens for r in warm] == cold
        # Another conversation, in between, loses them all.
        drawn(running, prompt(50, 40))
        again = drawn(running, turns[0])
        assert (again.fed_tokens, again.tokens) == (1105, cold[0])
    with engine(path, context=4096, parallel=2, pass_width=128) as running:
        drawn(running, turns[0])
        other = drawn(running, turns[1])  # takes a copy of the checkpoint into the empty slot
        assert (other.slot, other.cached_tokens, other.tokens) == (1, 1024, cold[1])
        assert drawn(running, turns[2]).tokens == cold[2]


def test_several_answers_to_one_prompt_on_a_recurrent_model(tmp_path):
    path = tiny.write(tmp_path / "tiny.gguf", RECURRENT)
    tokens = prompt(1, 150)
    params = [SamplerParams(seed=i, temperature=1, ignore_eos=True) for i in range(3)]
    with engine(path, parallel=3) as running:
        asked = [Request(tokens, max_tokens=10, params=p) for p in params]
        cold = [running.submit(r).wait(WAIT).tokens for r in asked[::-1]][::-1]
    with engine(path, parallel=3) as running:
        jobs = [running.submit(request) for request in asked]
        results = [job.wait(WAIT) for job in jobs]
    assert [r.tokens for r in results] == cold
    assert sum(r.fed_tokens for r in results) <= 150 + 2


def test_one_cache_ram_keeps_nearly_twice_as_many_conversations_in_q8_0(path):
    """34 bytes for what takes 64: the same memory holds 1.88 times as many, less what is whole."""
    size, count = 60, 50

    def kept(kind, limit):
        types = {"cache_type_k": kind, "cache_type_v": kind}
        with engine(path, settings={"cache_ram": limit}, **types) as running:
            for seed in range(count):
                drawn(running, prompt(seed, size), max_tokens=1)
            host = running._seats.host
            entries = len(host)
            assert host.nbytes <= limit
            back = drawn(running, prompt(count - 2, size), max_tokens=1)
            assert back.cached_tokens == size - 1  # it was put away last, and comes back
            return entries

    with engine(path, settings={"cache_ram": 1 << 30}) as one:
        for seed in range(2):
            drawn(one, prompt(seed, size), max_tokens=1)
        state = one._seats.host.nbytes
    plain = kept("f16", 20 * state)
    assert plain == 20
    assert kept("q8_0", 20 * state) >= 1.8 * plain
