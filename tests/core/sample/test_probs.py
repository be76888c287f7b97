"""What a drawn token competed with: before and after sampling."""

import numpy as np
import pytest

from golem_core.sample import NonFiniteLogits, Sampler, SamplerParams, Workspace
from tests.core.sample.test_golden import CASES, V


def log_softmax(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_log_probabilities_are_those_of_the_raw_logits(temperature):
    rng = np.random.default_rng(5)
    rows = (rng.standard_normal((5, 70000)) * 4).astype(np.float32)
    params = SamplerParams(
        temperature=temperature, seed=2, logit_bias=((3, 50.0),), repeat_penalty=1.5
    )
    sampler = Sampler(params, 70000, n_probs=8, prompt=[1, 2])
    for row in rows:
        token = sampler.sample(row)
        truth = log_softmax(row)
        probs = sampler.probs()
        best = np.argsort(-row, kind="stable")[:8]
        assert [i for i, _ in probs.top] == best.tolist()
        assert [p for _, p in probs.top] == pytest.approx(truth[best], abs=2e-5)
        assert probs.drawn == pytest.approx(truth[token], abs=2e-5)


def test_log_probabilities_are_what_llama_server_reported():
    for case, rows in CASES[:3]:
        params = SamplerParams.resolve({}, case["params"])
        sampler = Sampler(params, V, suppress=case["banned"], n_probs=V)
        for row in rows:
            sampler.sample(row)
            mine = dict(sampler.probs().top)
            assert [mine[i] for i in range(V)] == pytest.approx(row, abs=2e-5)


def test_after_sampling_only_what_the_chain_left_is_reported():
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    params = SamplerParams(seed=1, temperature=1, top_k=3, top_p=1, min_p=0)
    sampler = Sampler(params, 4, n_probs=4, post_sampling=True)
    token = sampler.sample(row)
    probs = sampler.probs()
    assert probs.top == tuple(
        (i, pytest.approx(p)) for i, p in enumerate([0.4 / 0.9, 0.3 / 0.9, 0.2 / 0.9])
    )
    assert probs.drawn == dict(probs.top)[token]


def test_at_temperature_0_the_one_that_is_left_is_certain():
    sampler = Sampler(SamplerParams(temperature=0), 4, n_probs=3, post_sampling=True)
    assert sampler.sample(np.array([1, 3, 2, 0], np.float32)) == 1
    assert sampler.probs() == (1.0, ((1, 1.0),))


def test_a_probability_of_zero_is_the_lowest_float32():
    row = np.array([0, -1000], np.float32)
    sampler = Sampler(SamplerParams(temperature=0), 2, n_probs=2)
    sampler.sample(row)
    assert sampler.probs().top == ((0, 0.0), (1, float(np.finfo(np.float32).min)))


def test_nothing_is_reported_unasked():
    sampler = Sampler(SamplerParams(), 4)
    sampler.sample(np.zeros(4, np.float32))
    assert sampler.probs() is None


def test_known_tokens_are_told_as_drawn_ones_are():
    rng = np.random.default_rng(6)
    rows = (rng.standard_normal((5, 70000)) * 4).astype(np.float32)
    samplers = [Sampler(SamplerParams(seed=i), 70000, n_probs=7) for i in range(5)]
    drawn = [sampler.sample(row) for sampler, row in zip(samplers, rows, strict=True)]
    told = Workspace(70000).score(rows, np.array(drawn, np.int32), 7)
    assert told == [sampler.probs() for sampler in samplers]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_rows_that_are_no_scores_are_refused(wrong):
    rows = np.zeros((3, 4), np.float32)
    rows[2, 1] = wrong
    with pytest.raises(NonFiniteLogits, match="row 2"):
        Workspace(4).score(rows, np.array([0, 1, 2], np.int32), 2)
    with pytest.raises(NonFiniteLogits, match="row 0"):
        Workspace(4).score(np.full((1, 4), -np.inf, np.float32), np.array([1], np.int32), 2)
    for tokens in ([4], [-1], [0, 1]):
        with pytest.raises(ValueError, match="token"):
            Workspace(4).score(rows[:1], np.array(tokens, np.int32), 2)
