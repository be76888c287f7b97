"""Peaks beside a product: what unsound logits do to them, and that the product stays as it is."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, features
from golem_core.graph.builder import Builder
from golem_core.graph.ops import PEAK_CHUNK, PEAK_LANES
from golem_core.graph.plan import make_plan
from golem_core.graph.values import ProgramError
from tests.core.cpu.decoders import Maker

SETS = features()["available"] + features()["emulated"]
V = 2 * PEAK_CHUNK + 48


def best(x):
    """The peaks of rows (m, V), written down anew: lane by lane."""
    whole = x.shape[1] // PEAK_CHUNK * PEAK_CHUNK
    lanes = [x[:, at : at + PEAK_CHUNK] for at in range(0, whole, PEAK_CHUNK)]
    groups = [chunk[:, j::PEAK_LANES] for chunk in lanes for j in range(PEAK_LANES)]
    return np.stack([np.where((g < np.inf).all(1), g.max(1), np.nan) for g in groups], axis=1)


def test_a_row_without_a_whole_chunk_has_no_peaks():
    p = Builder("narrow")
    with pytest.raises(ProgramError, match="chunks of 2048"):
        p.peaks(p.input("x", (p.axis("n", 4), PEAK_CHUNK - 1)))


@pytest.mark.parametrize("isa", SETS)
def test_what_is_not_sound_shows_in_its_own_group(isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    p = Builder("peaks")
    p.output("y", p.peaks(p.input("x", (p.axis("n", 8), V))))
    program = p.build()
    x = np.random.default_rng(1).standard_normal((5, V)).astype(np.float32)
    x[1, 64::64] = x[1, 5] = -np.inf  # lane 0 but for its first, one of lane 5
    x[2] = -np.inf
    x[3, [0, 70, V - 1]] = np.nan, np.inf, np.nan  # the last one is in no group
    x[4, [PEAK_CHUNK - 1, PEAK_CHUNK]] = np.inf, np.nan  # last of a chunk, first of the next
    wanted = best(x)
    assert np.flatnonzero(np.isnan(wanted[3])).tolist() == [0, 6]
    assert np.flatnonzero(np.isnan(wanted[4])).tolist() == [63, 64]
    for threads in (1, 2, 7):
        with CpuExecutor(program, threads=threads) as executor:
            assert np.array_equal(executor.run({"x": x}, ("y",))["y"], wanted, equal_nan=True)
            alone = executor.run({"x": x[3:4]}, ("y",))["y"]
            assert np.array_equal(alone, wanted[3:4], equal_nan=True)


@pytest.mark.parametrize("plan", ["", "plain"])
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_logits_are_made_as_without_peaks(rows, plan, monkeypatch):
    """Same ops but for one at the end, same bits; the cap stays in the product's store."""
    monkeypatch.setenv("GOLEM_PLAN", plan)
    p, w = Builder("head"), Maker("Q4_0")
    x = p.input("x", (p.axis("n", 40), 256))
    logits = p.softcap(p.linear(x, w.matrix(V, 256)), 30.0)
    p.output("logits", logits)
    p.output("peaks", p.peaks(logits))
    program = p.build()
    plans = [make_plan(program, names).nodes for names in (("logits",), ("logits", "peaks"))]
    assert [node.op for node in plans[0]] == ["linear"]
    assert [node.op for node in plans[1]] == ["linear", "peaks"]
    inputs = {"x": np.random.default_rng(2).standard_normal((rows, 256)).astype(np.float32)}
    with CpuExecutor(program, threads=2) as executor:
        alone = executor.run(inputs, ("logits",))["logits"].copy()
        both = executor.run(inputs, ("logits", "peaks"))
        assert np.array_equal(both["logits"], alone)
        assert np.array_equal(both["peaks"], best(alone))
