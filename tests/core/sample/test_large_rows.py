"""Rows of a large vocabulary, in every order they may come in, against numpy and the C library."""

import math

import numpy as np
import pytest

from golem_core.sample import NonFiniteLogits, Sampler, SamplerParams, Workspace
from tests.core.sample.naive import NaiveSampler, expf

V = 10007  # whole chunks of the scan, and a rest


def mixed():
    return (np.random.default_rng(1).standard_normal(V) * 3).astype(np.float32)


def with_holes(share):
    row = mixed()
    row[np.random.default_rng(2).random(V) < share] = -math.inf
    return row


def one_finite(at):
    row = np.full(V, -math.inf, np.float32)
    row[at] = -7
    return row


ROWS = {
    "mixed": mixed(),
    "ascending": np.sort(mixed()),
    "descending": np.sort(mixed())[::-1].copy(),
    "ties": np.round(mixed()),
    "all equal": np.full(V, -2.5, np.float32),
    "signs of zero": np.where(np.arange(V) % 3, 0.0, -0.0).astype(np.float32),
    "denormal": mixed() * np.float32(1e-41),
    "half banned": with_holes(0.5),
    "nearly all banned": with_holes(0.999),
    "first alone": one_finite(0),
    "last alone": one_finite(V - 1),
    "best in the rest": np.concatenate([mixed()[:-1], np.float32([20])]),
    "extremes": np.concatenate([mixed()[:-2], np.float32([3.4e38, -3.4e38])]),
}


@pytest.fixture(params=ROWS)
def row(request):
    return ROWS[request.param]


def test_the_first_of_the_best_is_drawn_at_temperature_0(row):
    assert Sampler(SamplerParams(temperature=0), V).sample(row) == np.argmax(row)


def test_what_changed_in_a_row_is_seen_whatever_row_came_before(row):
    """Also when the same memory holds another row."""
    plain = Sampler(SamplerParams(temperature=0), V)
    biased = Sampler(SamplerParams(temperature=0, logit_bias=((4321, math.inf),)), V)
    workspace, memory = Workspace(V), np.empty((1, V), np.float32)
    for _ in range(2):
        for values in (row, -np.nan_to_num(row, neginf=0)):
            memory[0] = values
            assert workspace.pick_many([plain], memory) == [np.argmax(values)]
            if values[4321] > -math.inf and values.max() < 1e38:
                assert workspace.pick_many([biased], memory) == [4321]


@pytest.mark.parametrize("k", [1, 40, 160, 700, 2600, 9000, V])
def test_top_k_is_the_head_of_a_stable_sort(row, k):
    params = SamplerParams(samplers=("top_k",), top_k=k, seed=1)
    sampler = Sampler(params, V, n_probs=V, post_sampling=True)
    sampler.sample(row)
    best = np.argsort(-row, kind="stable")[:k]
    weights = np.exp(row[best].astype(np.float64) - row.max())
    left = {token for token, _ in sampler.probs().top}
    certain = weights > 1e-44
    assert set(best[certain].tolist()) <= left <= set(best.tolist())


@pytest.mark.parametrize("at", [0, 1, 64, 2047, 2048, 8191, 8192, V - 1])
@pytest.mark.parametrize("wrong", [math.nan, -math.nan, math.inf])
def test_one_unsound_logit_anywhere_is_found(at, wrong):
    row = mixed()
    row[at] = wrong
    for params in (SamplerParams(temperature=0), SamplerParams()):
        with pytest.raises(NonFiniteLogits):
            Sampler(params, V).sample(row)


def test_probabilities_are_those_of_the_c_library_s_exponential():
    """Down to where they vanish: float32 weights, summed in float64 in the row's order."""
    row = -np.linspace(0, 110, V).astype(np.float32)
    params = SamplerParams(samplers=(), seed=1)
    sampler = Sampler(params, V, n_probs=V, post_sampling=True)
    sampler.sample(row)
    weights = np.array([expf(x) for x in row], np.float64)
    total = 0.0
    for weight in weights:
        total += weight
    wanted = (weights / total).astype(np.float32)
    got = np.zeros(V, np.float32)
    for token, p in sampler.probs().top:
        got[token] = p
    assert np.array_equal(got, wanted)
    assert 0 < wanted[wanted > 0].min() < 1e-44  # denormal ones are among them


CHAINS = [
    {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1.3},
    {"top_k": 0, "top_p": 0.9, "min_p": 0},
    {"top_k": 0, "top_p": 1, "min_p": 0, "top_n_sigma": 1},
    {"top_n_sigma": 1},
    {"top_k": 3000, "top_n_sigma": 2, "top_p": 1, "min_p": 0},
    {"samplers": ("top_n_sigma",), "top_n_sigma": 1.5},
    {"samplers": ("top_n_sigma", "top_k", "typ_p"), "top_n_sigma": 2, "top_k": 0, "typical_p": 0.5},
    {"samplers": ("top_k", "typ_p", "top_n_sigma"), "top_n_sigma": 1, "typical_p": 0.9},
    {"top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 0.7},
    {"top_k": 0, "top_p": 1, "min_p": 0, "xtc_probability": 1, "xtc_threshold": 0.001},
    {"top_k": 0, "top_p": 1, "min_p": 0, "dynatemp_range": 0.5},
    {"top_k": 0, "top_p": 0.5, "min_p": 0, "min_keep": 4000},
    {"top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 0.2, "min_keep": 5000},
    {"mirostat": 1},
    {"mirostat": 2, "mirostat_tau": 3},
    {"samplers": ("adaptive_p",), "adaptive_target": 0.2},
]


@pytest.mark.parametrize("fields", CHAINS, ids=str)
@pytest.mark.parametrize(
    "name",
    ["mixed", "ascending", "descending", "ties", "all equal", "half banned", "best in the rest"],
)
def test_chains_over_all_of_a_row_draw_what_their_definition_draws(fields, name):
    params = SamplerParams(**{"seed": 11, "temperature": 0.8, **fields})
    fast, slow = Sampler(params, V), NaiveSampler(params)
    with np.errstate(all="ignore"):
        assert fast.sample(ROWS[name]) == slow.sample(ROWS[name])
