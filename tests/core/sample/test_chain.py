"""The chain in C against its definition, over random settings, orders, vocabularies and ties."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golem_core.sample import (
    NAMES,
    ORDER,
    Generator,
    NonFiniteLogits,
    ParamError,
    Sampler,
    SamplerParams,
    Workspace,
)
from golem_core.sample.dry import pack_heads
from tests.core.sample.naive import NaiveSampler


def between(low, high):
    return st.floats(low, high)


PARAMS = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**32 - 2)},
    optional={
        "temperature": st.sampled_from([0, 0.5, 1, 1.7]),
        "dynatemp_range": st.sampled_from([0, 0.5]),
        "dynatemp_exponent": st.sampled_from([1, 2]),
        "top_k": st.integers(0, 300),
        "top_p": between(0, 1),
        "min_p": between(0, 0.5),
        "top_n_sigma": st.sampled_from([-1, 0.5, 1, 2]),
        "xtc_probability": st.sampled_from([0, 0.5, 1]),
        "xtc_threshold": between(0, 0.3),
        "typical_p": st.sampled_from([1, 0.9, 0.2]),
        "repeat_last_n": st.integers(0, 20),
        "repeat_penalty": st.sampled_from([1, 1.3, 0.8]),
        "presence_penalty": st.sampled_from([0, 0.5, -0.5]),
        "frequency_penalty": st.sampled_from([0, 0.25]),
        "dry_multiplier": st.sampled_from([0, 1, 2.5]),
        "dry_base": st.sampled_from([1, 1.75, 4]),
        "dry_allowed_length": st.integers(0, 3),
        "dry_penalty_last_n": st.integers(0, 40),
        "mirostat": st.sampled_from([0, 0, 0, 1, 2]),
        "adaptive_target": st.sampled_from([-1, 0.3]),
        "min_keep": st.integers(0, 6),
        "logit_bias": st.lists(
            st.tuples(st.integers(0, 15), st.sampled_from([1.5, -2.0, -math.inf])), max_size=3
        ).map(tuple),
        "samplers": st.lists(st.sampled_from(NAMES), max_size=8).map(tuple) | st.just(ORDER),
    },
).map(lambda fields: SamplerParams(**fields))

HEADS = {3: [()], 5: [(1,), (2, 1)], 7: [(3,)]}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PARAMS, st.sampled_from([16, 33, 130, 1500]), st.integers(0, 1000), st.booleans())
def test_every_chain_draws_what_its_definition_draws(params, n_vocab, number, with_ties):
    rng = np.random.default_rng(number)
    prompt = rng.integers(0, 8, 30).tolist()  # few tokens, so that texts repeat
    fast = Sampler(params, n_vocab, heads=pack_heads(HEADS, n_vocab), prompt=prompt)
    slow = NaiveSampler(params, prompt, HEADS)
    for _ in range(4 if n_vocab < 1000 else 1):
        logits = (rng.standard_normal(n_vocab) * 3).astype(np.float32)
        if with_ties:
            logits = np.round(logits)
            logits[rng.integers(0, n_vocab, 3)] = -math.inf
        before = logits.copy()
        with np.errstate(all="ignore"):
            wanted = slow.sample(logits)
        assert fast.sample(logits) == wanted
        assert np.array_equal(logits, before)  # the executor's array is left alone


FOCUS = [
    {"dry_multiplier": 2, "dry_allowed_length": 1, "top_k": 0},
    {"dry_multiplier": 1, "dry_allowed_length": 0, "dry_base": 4, "temperature": 0},
    {"dry_multiplier": 1, "dry_penalty_last_n": 9, "samplers": ("top_k", "dry", "temperature")},
    {"mirostat": 1, "mirostat_tau": 2},
    {"mirostat": 2, "mirostat_tau": 0.5},  # often a single candidate, which takes no number
    {"samplers": ("top_k", "adaptive_p"), "adaptive_target": 0.4},
    {"samplers": ("min_p", "adaptive_p"), "adaptive_target": 0.1, "adaptive_decay": 0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05, "min_keep": 2},
    {"min_p": 0.8},  # often a single candidate, which takes numbers all the same
    {"repeat_penalty": 1.4, "repeat_last_n": 5, "samplers": ("top_k", "penalties")},
]


@pytest.mark.parametrize("fields", FOCUS, ids=str)
def test_long_answers_stay_with_the_definition(fields):
    """Histories, generators and running averages over many draws."""
    n_vocab = 9
    for seed in range(25):
        rng = np.random.default_rng(seed)
        params = SamplerParams(**{"seed": seed, "temperature": 0.7, **fields})
        prompt = rng.integers(0, n_vocab, 25).tolist()
        fast = Sampler(params, n_vocab, heads=pack_heads(HEADS, n_vocab), prompt=prompt)
        slow = NaiveSampler(params, prompt, HEADS)
        for _ in range(20):
            logits = (rng.standard_normal(n_vocab) * 2).astype(np.float32)
            with np.errstate(all="ignore"):
                assert fast.sample(logits) == slow.sample(logits)


@pytest.mark.parametrize("k", [1, 2, 40, 500, 20000, 60000, 70000])
def test_top_k_of_a_large_vocabulary_is_the_head_of_a_whole_sort(k):
    n_vocab = 65000
    rng = np.random.default_rng(k)
    logits = np.round(rng.standard_normal(n_vocab), 2).astype(np.float32)  # many ties
    logits[rng.integers(0, n_vocab, 1000)] = -math.inf
    params = SamplerParams(samplers=("top_k",), top_k=k, seed=1)
    sampler = Sampler(params, n_vocab, n_probs=k, post_sampling=True)
    sampler.sample(logits)
    best = np.argsort(-logits, kind="stable")[:k]
    best = best[np.isfinite(logits[best])]
    assert [token for token, _ in sampler.probs().top] == best.tolist()


@pytest.mark.parametrize("spread", [0.05, 3.0])
def test_top_p_of_a_large_vocabulary_keeps_the_shortest_head_that_reaches_p(spread):
    """With a wide spread a few hundred make it up, with a narrow one most of the vocabulary."""
    n_vocab = 65000
    logits = (np.random.default_rng(2).standard_normal(n_vocab) * spread).astype(np.float32)
    params = SamplerParams(samplers=("top_p",), top_p=0.6, seed=1)
    sampler = Sampler(params, n_vocab, n_probs=n_vocab, post_sampling=True)
    sampler.sample(logits)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum()
    order = np.argsort(-logits, kind="stable")
    kept = int(np.searchsorted(np.cumsum(p[order]), 0.6)) + 1
    mine = [token for token, _ in sampler.probs().top]
    assert abs(len(mine) - kept) <= 2  # float32 sums at the border
    assert mine == order[: len(mine)].tolist()


def test_penalties_count_the_prompt_and_every_drawn_token_within_the_window():
    params = SamplerParams(temperature=0, presence_penalty=1.0, repeat_last_n=3)
    sampler = Sampler(params, 5, prompt=[4, 0, 1])
    logits = np.array([0.9, 0.8, 0.7, 0.6, 0.5], np.float32)
    # Window 4 0 1 -> 2; 0 1 2 -> 3; 1 2 3 -> 0, which has left the window.
    assert [sampler.sample(logits) for _ in range(4)] == [2, 3, 0, 1]


def test_dry_keeps_a_repetition_from_going_on_and_a_breaker_lets_it():
    logits = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5], np.float32)
    params = SamplerParams(temperature=0, dry_multiplier=1.0)
    said = [5, 4, 3, 0, 1, 5, 4, 3]  # "5 4 3" was followed by 0
    assert Sampler(params, 6, heads=pack_heads({}, 6), prompt=said).sample(logits) == 1
    assert Sampler(params, 6, heads=pack_heads({4: [()]}, 6), prompt=said).sample(logits) == 0
    with pytest.raises(ValueError, match="dry_heads"):
        Sampler(params, 6, prompt=said)


def test_suppressed_tokens_and_end_tokens_under_ignore_eos_are_never_drawn():
    logits = np.array([5, 4, 3, 2], np.float32)
    params = SamplerParams(temperature=0, ignore_eos=True)
    assert Sampler(params, 4, eog=[0], suppress=[1]).sample(logits) == 2
    assert Sampler(SamplerParams(temperature=0), 4, eog=[0], suppress=[1]).sample(logits) == 0


def test_banning_every_token_is_refused():
    bans = tuple((i, -math.inf) for i in range(4))
    with pytest.raises(ParamError, match="every token is banned"):
        Sampler(SamplerParams(logit_bias=bans), 4)
    assert Sampler(SamplerParams(logit_bias=bans[:3]), 4).sample(np.zeros(4, np.float32)) == 3


@pytest.mark.parametrize("params", [SamplerParams(temperature=0), SamplerParams()])
@pytest.mark.parametrize(
    "row", [[1, math.nan, 0], [1, math.inf, 0], [-math.inf] * 3, [math.nan] * 3]
)
def test_rows_that_are_not_sound_are_refused(params, row):
    with pytest.raises(NonFiniteLogits):
        Sampler(params, 3).sample(np.array(row, np.float32))


@pytest.mark.parametrize("temperature", [0, 0.8, 1e-30, 1e-45])
def test_extreme_settings_still_draw_a_token(temperature):
    logits = np.array([3e38, -3e38, 3e38, -math.inf], np.float32)
    params = SamplerParams(
        temperature=temperature,
        repeat_penalty=1e-30,
        frequency_penalty=-3e38,
        logit_bias=((0, 3e38), (0, 3e38)),
        seed=4,
    )
    assert Sampler(params, 4, prompt=[0, 1, 2]).sample(logits) in (0, 1, 2)


def test_a_seed_gives_the_same_tokens_and_another_seed_others():
    rows = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float32)

    def tokens(seed):
        sampler = Sampler(SamplerParams(seed=seed, temperature=2, top_k=0, top_p=1, min_p=0), 100)
        return [sampler.sample(row) for row in rows]

    assert tokens(1) == tokens(1) != tokens(2)


def test_draws_follow_the_probabilities():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05])).astype(np.float32)
    sampler = Sampler(SamplerParams(seed=9, temperature=1, top_k=0, top_p=1, min_p=0), 4)
    counts = np.bincount([sampler.sample(logits) for _ in range(20000)], minlength=4)
    assert counts / 20000 == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.015)


def test_pick_many_draws_what_each_sampler_would_draw_alone():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6, 4000)).astype(np.float32)
    kinds = [
        SamplerParams(seed=i, **fields)
        for i, fields in enumerate(
            [{}, {"temperature": 0}, {"top_k": 0}, {"mirostat": 2}, {"top_k": 0, "top_p": 1}, {}]
        )
    ]
    alone = [Sampler(p, 4000).sample(row) for p, row in zip(kinds, rows, strict=True)]
    assert Workspace(4000).pick_many([Sampler(p, 4000) for p in kinds], rows) == alone


def test_shapes_that_do_not_fit_are_refused():
    workspace = Workspace(4)
    with pytest.raises(ValueError, match=r"logits of shape \(1, 3\)"):
        workspace.pick_many([Sampler(SamplerParams(), 4)], np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="logits of shape"):
        workspace.pick_many([], np.zeros((1, 4), np.float32))
    with pytest.raises(ValueError, match="a sampler over 3"):
        workspace.pick_many([Sampler(SamplerParams(), 3)], np.zeros((1, 4), np.float32))
    with pytest.raises(ValueError, match="token 4"):
        Sampler(SamplerParams(), 4).accept(4)


def test_the_generator_is_the_mersenne_twister():
    generator = Generator(5489)
    values = [generator.next32() for _ in range(10000)]
    assert values[-1] == 4123659995  # the value the C++ standard asks of std::mt19937
    reference = np.random.MT19937()
    reference._legacy_seeding(5489)
    assert values == reference.random_raw(10000).tolist()
    low, high = Generator(7), Generator(7)
    a, b = low.next32(), low.next32()
    assert high.double() == (a + b * 2.0**32) / 2.0**64
    assert Generator(7).float() == float(np.float32(a)) / 2**32
