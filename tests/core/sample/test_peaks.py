"""Rows that are changed where they lie and put back, and maxima that come with them."""

import math

import numpy as np
import pytest

from golem_core.graph.builder import Builder
from golem_core.reference import ReferenceExecutor
from golem_core.sample import NonFiniteLogits, Sampler, SamplerParams, Workspace

V = 3 * 2048 + 77  # whole chunks, and a rest that has no peaks
CHANGES = {
    "none": {},
    "a ban of the best": {"logit_bias": ((5000, -math.inf),)},
    "biases up and down": {"logit_bias": ((5000, -9.0), (64, 30.0), (V - 1, 4.0), (64, -25.0))},
    "penalties": {"repeat_penalty": 1.7, "presence_penalty": 2.0, "repeat_last_n": 64},
    "more than are put back": {"logit_bias": tuple((i, 1.0) for i in range(0, V, 3))},
    "all of them, after a few": {
        "logit_bias": ((7, 3.0),),
        "samplers": ("penalties", "temperature", "top_k"),
        "temperature": 0.5,
    },
    "the best wins": {"temperature": 0.0, "logit_bias": ((5000, -math.inf),)},
}


@pytest.fixture(params=CHANGES)
def params(request):
    return SamplerParams(**{"seed": 3, **CHANGES[request.param]})


@pytest.fixture
def rows():
    rows = np.random.default_rng(4).standard_normal((2, V)).astype(np.float32)
    rows[:, 5000] = 12  # the best, unless something is changed
    return rows


def peaks_of(rows):
    """(m, V // 2048 * 64): by the op's meaning, written down anew."""
    groups = rows[:, : V // 2048 * 2048].reshape(len(rows), V // 2048, 32, 64)
    sound = (groups < math.inf).all(axis=2)
    best = np.where(sound, groups.max(axis=2), math.nan)
    return best.reshape(len(rows), -1).astype(np.float32)


def test_the_op_makes_what_samplers_expect(rows):
    """Their idea of a group is the op's: in C here, in numpy there."""
    rows[0, 77], rows[1, 2048 + 5] = math.nan, math.inf
    p = Builder("peaks")
    p.output("y", p.peaks(p.input("x", (p.axis("m", 2), V))))
    made = ReferenceExecutor(p.build()).run({"x": rows}, ("y",))["y"]
    np.testing.assert_array_equal(made, peaks_of(rows))
    assert made.shape == (2, 192)


def test_rows_without_a_whole_chunk_are_refused():
    p = Builder("peaks")
    with pytest.raises(ValueError, match="chunks of 2048"):
        p.peaks(p.input("x", (p.axis("m", 2), 2047)))


def drawn(params, rows, peaks=None, draws=40):
    """Tokens, and what they competed with, of one sampler over both rows in turns."""
    sampler = Sampler(params, V, prompt=[5000, 17, 64], n_probs=3)
    workspace, told = Workspace(V), []
    for i in range(draws):
        told += [workspace.pick_many([sampler], rows, [i % 2], peaks), sampler.probs()]
    return told


def test_a_row_that_may_be_written_to_is_what_it_was_afterwards(params, rows):
    before = rows.tobytes()
    drawn(params, rows)
    assert rows.tobytes() == before


def test_one_that_may_not_be_gives_the_same_draws(params, rows):
    fixed = rows.copy()
    fixed.flags.writeable = False
    assert drawn(params, rows) == drawn(params, fixed)


def test_peaks_change_no_draw(params, rows):
    assert drawn(params, rows, peaks_of(rows)) == drawn(params, rows)


@pytest.mark.parametrize("place", [0, 2047, 4100, V - 1])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_unsound_row_is_refused_by_its_peaks_too(rows, place, value):
    rows[1, place] = value
    with pytest.raises(NonFiniteLogits, match="row 1"):
        drawn(SamplerParams(), rows, peaks_of(rows))


def test_a_row_is_put_back_when_the_draw_of_another_fails(rows):
    rows[1, 5] = math.nan
    before = rows.tobytes()
    biased = SamplerParams(logit_bias=((5000, -math.inf),))
    with pytest.raises(NonFiniteLogits):
        Workspace(V).pick_many([Sampler(biased, V), Sampler(biased, V)], rows)
    assert rows.tobytes() == before


def test_peaks_of_other_rows_are_refused(rows):
    with pytest.raises(ValueError, match=r"peaks of shape \(1, 192\) for 2 rows of 192"):
        drawn(SamplerParams(), rows, peaks_of(rows)[:1])
