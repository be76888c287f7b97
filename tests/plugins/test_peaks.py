"""Decoders have peaks beside their logits where the vocabulary has whole chunks of them."""

from dataclasses import replace

import numpy as np
import pytest

from golem_core.model import open_decoder
from golem_core.model.outputs import drawn_from
from tests.plugins import tiny

TOKENS = [5, 17, 42, 8]
BOTH = ("logits", "peaks")


@pytest.fixture
def wide(tmp_path, monkeypatch):
    """A model of a chunk and a rest."""
    monkeypatch.setitem(tiny.SHAPES, "wide", replace(tiny.SHAPES["qwen3-tied"], vocabulary=2100))
    monkeypatch.setitem(tiny._GAIN, "wide", 4.8)
    return tiny.write(tmp_path / "wide.gguf", "wide")


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_peaks_are_of_the_logits_of_each_scored_column(wide, kind):
    executor = tiny.executor(kind, tiny.decoder(wide))
    made = tiny.run(executor, (0, 0, TOKENS, 1), wanted=BOTH)
    assert made["peaks"].shape == (4, 64)
    assert np.array_equal(made["peaks"], made["logits"][:, :2048].reshape(4, 32, 64).max(1))
    if kind == "cpu":
        with executor.twin(4, BOTH) as twin:
            again = tiny.run(twin, (0, 0, TOKENS, 1), wanted=BOTH)
        assert np.array_equal(again["peaks"], made["peaks"])
    assert np.array_equal(tiny.run(executor, (0, 0, TOKENS, 1))["logits"], made["logits"])
    executor.close()


def test_a_vocabulary_below_a_chunk_has_none(tmp_path):
    program = tiny.decoder(tiny.write(tmp_path / "tiny.gguf", "qwen3-tied")).program(8, 8)
    assert drawn_from(program.outputs) == ("logits",)


def test_the_plan_that_is_drawn_from_is_made_at_load(wide, monkeypatch):
    """Nothing is left to plan by the first pass, with and without scored columns."""
    model = open_decoder(wide, context=64, threads=1)
    try:
        monkeypatch.setattr("golem_core.cpu.executor.CompiledPlan", None)
        wanted = drawn_from(model.program.outputs)
        assert wanted == BOTH
        inputs = {
            "runs": np.array([[0, 0, 4, 0, 1]], np.int32),
            "tokens": np.array(TOKENS, np.int32),
        }
        for outputs in ([], [3]):
            made = model.executor.run({**inputs, "outputs": np.array(outputs, np.int32)}, wanted)
            assert made["peaks"].shape == (len(outputs), 64)
    finally:
        model.close()
