"""Drafts change how fast an answer is drawn and nothing else of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request, Thinking
from golem_core.schedule.draft import Drafting
from golem_core.schedule.pace import Prices
from tests.core.schedule.fakes import EOG, WAIT, FakeClock, FakeModel, Gate, ask, together

SCHEMA = {
    "type": "array",
    "items": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]},
    "minItems": 4,
    "maxItems": 9,
}
PROMPT = "a cat, a dog, a cat, a cow, a cat, a dog, a dog, a cow, a cat, "


class Parrot(FakeModel):
    """Mostly says what it said after the same three tokens before, and not always; in few letters,
    so that it often comes back to what it said."""

    loyalty = 6.0
    letters = b"abcd ,"

    def __post_init__(self):
        super().__post_init__()
        noise = self.executor.logits

        def logits(history):
            row = noise(history)
            row -= 20
            row[list(self.letters)] += 20
            tokens = [t for t in history[1:] if isinstance(t, int)]
            for end in range(len(tokens) - 2, 2, -1):
                if tokens[end - 2 : end + 1] == tokens[-3:]:
                    row[tokens[end + 1]] += self.loyalty
                    break
            return row

        self.executor.logits = logits


def eager(model, draft, **options):
    """An engine to which passes seem to take no time, so that every guess is acted on."""
    return Engine(model, draft=draft, clock=FakeClock(), **options)


def everything(job):
    """All that is told of an answer but for times and what was drafted."""
    steps = [step[:6] for step in job]
    r = job.result
    ends = (r.text, r.tokens, r.finish_reason, r.stop_type, r.stopping_word, r.truncated)
    return steps, ends, r.resampled


PARAMS = {
    "greedy": SamplerParams(temperature=0),
    "seeded": SamplerParams(seed=7, temperature=1),
    "wild": SamplerParams(seed=7, temperature=2.5, top_k=0, min_p=0),
    "penalties": SamplerParams(
        seed=7, temperature=0.9, repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.1
    ),
    "dry": SamplerParams(seed=7, temperature=1, dry_multiplier=0.8),
    "xtc": SamplerParams(seed=7, temperature=1, xtc_probability=0.5),
    "mirostat": SamplerParams(seed=7, mirostat=2),
    "schema": SamplerParams(seed=7, temperature=1.5, json_schema=SCHEMA),
    "grammar": SamplerParams(seed=7, temperature=1.5, grammar='root ::= ("ab, " | "ad, ")+'),
}
FIELDS = {
    "plain": {},
    "stop": {"stop": ["aad", "zzz"]},
    "probs": {"n_probs": 3},
    "post": {"n_probs": 3, "post_sampling_probs": True},
    "full": {"max_tokens": -1},
    "thought": {"thinking": Thinking(("<", ">"), inside=True, budget=20, closing=list(b" so>"))},
}


@pytest.mark.parametrize("options", [{}, {"window": 16}, {"recurrent": True}])
@pytest.mark.parametrize("params", PARAMS)
def test_an_answer_is_the_same_with_drafts_and_without(params, options):
    told, stats = [], []
    for draft in ("off", "ngram"):
        with eager(Parrot(context=320, **options), draft) as engine:
            told.append(
                [
                    everything(engine.submit(ask(PROMPT, params=PARAMS[params], max_tokens=90)))
                    for _ in range(2)
                ]
            )
            stats.append(engine.stats)
    assert told[0] == told[1]
    assert stats[0].drafted == 0 < stats[1].accepted < stats[1].drafted
    assert stats[1].drawn == stats[0].drawn and stats[1].passes < stats[0].passes
    assert stats[1].columns > stats[0].columns


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("fields", FIELDS)
def test_its_ends_and_reports_are_the_same_too(fields, recurrent):
    asked = {"params": PARAMS["seeded"], "max_tokens": 100, **FIELDS[fields]}
    told = []
    for draft in ("off", "ngram"):
        with eager(Parrot(context=256, recurrent=recurrent), draft) as engine:
            first = everything(engine.submit(ask(PROMPT, **asked)))
            text = PROMPT + first[1][0]
            told.append((first, everything(engine.submit(ask(text[:240], **asked)))))
            drafted = engine.stats.drafted
    assert told[0] == told[1]
    assert drafted


@pytest.mark.parametrize("options", [{}, {"window": 24}, {"recurrent": True}])
def test_several_conversations_in_a_pass(options):
    """Some draw fast and some slowly, and one is read beside them."""
    prompts = [PROMPT, "a b c d e f g " * 3, "nothing here comes twice", PROMPT[::-1], "x" * 200]
    asked = [
        ask(prompt, params=params, max_tokens=60)
        for prompt, params in zip(prompts, [*PARAMS.values()][:5], strict=True)
    ]
    with eager(Parrot(context=512, **options), "off") as engine:
        alone = [everything(engine.submit(request)) for request in asked]
    model = Parrot(slots=4, context=512, scored=24, **options)
    with eager(model, "ngram") as engine:
        gate = Gate(model.executor)
        jobs = together(engine, gate, asked)
        gate.open()
        assert [everything(job) for job in jobs] == alone
        assert engine.stats.accepted
    widest = max(len(seen.outputs) for seen in model.executor.seen)
    assert 4 < widest <= 24


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.floats(0, 3),
    st.integers(0, 12),
    st.integers(1, 70),
    st.sampled_from([{}, {"window": 16}, {"recurrent": True}]),
)
def test_whatever_is_accepted(seed, temperature, longest, length, options):
    params = SamplerParams(seed=seed, temperature=temperature)
    told = []
    for draft in ("off", "ngram"):
        model = Parrot(context=200, pass_width=16, scored=16, **options)
        with eager(model, draft, draft_n=longest) as engine:
            first = engine.submit(ask(PROMPT, params=params, max_tokens=length))
            turn = ask(PROMPT[:40] + "and", params=params, max_tokens=length)
            told.append([everything(job) for job in (first, engine.submit(turn))])
    assert told[0] == told[1]


def test_the_cache_after_a_refused_draft_is_good_for_the_next_turn():
    for options in ({}, {"window": 16}, {"recurrent": True}):
        with eager(Parrot(context=512, **options), "ngram") as engine:
            params = PARAMS["seeded"]
            first = engine.submit(ask(PROMPT, params=params, max_tokens=50)).wait(WAIT)
            turn = PROMPT + first.text + " And now?"
            warm = engine.submit(ask(turn, params=params, max_tokens=30)).wait(WAIT)
            cold = engine.submit(ask(turn, params=params, max_tokens=30, cache_prompt=False))
            assert warm.tokens == cold.wait(WAIT).tokens
            assert warm.cached_tokens >= len(PROMPT) + 30
            assert engine.stats.accepted < engine.stats.drafted


def test_timings_tell_what_was_drafted():
    with eager(Parrot(), "ngram") as engine:
        result = engine.submit(ask(PROMPT, max_tokens=50)).wait(WAIT)
        assert result.timings()["draft_n"] == result.drafted_tokens == engine.stats.drafted > 0
        assert result.timings()["draft_n_accepted"] == result.accepted_tokens
    with eager(Parrot(), "off") as engine:
        assert "draft_n" not in engine.submit(ask(PROMPT, max_tokens=5)).wait(WAIT).timings()


def test_a_cancelled_answer_stops_inside_a_draft():
    model = Parrot(context=512)
    model.executor.script = lambda history: ord("z")
    with eager(model, "ngram") as engine:
        gate = Gate(model.executor)
        job = engine.submit(ask("zzzz", max_tokens=-1))
        gate.step()
        gate.wait_for_pass()
        job.cancel()
        gate.open()
        assert job.wait(WAIT).finish_reason == "cancelled"
        assert engine.busy == 0


def test_nothing_past_an_end_is_drafted():
    model = Parrot()
    with eager(model, "ngram") as engine:
        ids = [*b"abcd", EOG] * 4 + [*b"abc"]
        engine.submit(Request(ids, max_tokens=9, params=PARAMS["seeded"])).wait(WAIT)
    drawn = [
        seen.tokens[first : first + count]
        for seen in model.executor.seen
        for _, first, count, _, role in seen.runs
        if role == 0
    ]
    assert drawn and all(EOG not in tokens for tokens in drawn)


# ---- whether it pays ----


class Known:
    """A drafter of given chances."""

    def __init__(self, *chances):
        self.chances = list(np.cumprod(chances))

    def guess(self, most):
        return [1] * min(most, len(self.chances)), self.chances[:most]


class Talker:
    def __init__(self, *chances, room=99):
        self.drafter = Known(*chances)
        self.drawing, self.width, self.draftable = True, 1, room
        self.draft = []

    def without_end(self, tokens):
        return tokens


def planned(prices, *answers, longest=0, columns=64):
    drafting = Drafting("ngram", longest, columns, prices)
    drafting.plan(answers)
    return [len(answer.draft) for answer in answers]


def prices(**seconds):
    made = Prices()
    for columns, took in seconds.items():
        made.saw(int(columns[1:]), took)
    return made


def test_a_draft_is_fed_when_its_tokens_are_worth_their_time():
    flat = prices(w1=1.0, w8=1.1)
    steep = prices(w1=1.0, w8=8.0)
    assert planned(flat, Talker(0.9, 0.9, 0.9, 0.9)) == [4]
    assert planned(flat, Talker(0.05, 0.05)) == [1]
    assert planned(steep, Talker(0.9, 0.9, 0.9, 0.9)) == [0]
    assert planned(prices(w1=1.0, w2=1.5, w8=4.5), Talker(0.9, 0.9, 0.1, 0.1)) == [2]


def test_who_is_likelier_gets_the_columns():
    made = prices(w3=1.0, w4=1.2, w9=2.2)
    assert planned(made, Talker(0.99, 0.99, 0.98), Talker(0.3), Talker(0.1)) == [3, 0, 0]


def test_drafts_keep_to_what_a_pass_can_score_and_an_answer_may_draw():
    sure = (0.99,) * 40
    flat = prices(w1=1.0)
    assert planned(flat, Talker(*sure)) == [15]
    assert planned(flat, Talker(*sure), longest=4) == [4]
    assert planned(flat, Talker(*sure, room=2)) == [2]
    assert planned(flat, Talker(*sure), columns=8) == [7]
    assert planned(flat, *(Talker(*sure) for _ in range(4)), columns=8) == [1] * 4


def test_what_cannot_be_drafted_is_refused_by_name():
    with pytest.raises(ValueError, match="draft='fast': it is one of auto, ngram, mtp, off"):
        Engine(FakeModel(), draft="fast")
    with pytest.raises(ValueError, match="drafts of 64 tokens: at most 31"):
        Engine(FakeModel(pass_width=32), draft="auto", draft_n=64)
