"""The measures themselves: a wrong divergence or ratio would make every published figure wrong."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import benchmarks
import ref
from benchmarks import invented_laya
from benchmarks.bandwidth import PlainRead
from benchmarks.compare import disturbed
from benchmarks.soak import growth, memory_verdict
from golem_core.text.tokenizer_json import JsonTokenizer
from golem_plugins.laya.checkpoint import TYPES
from golem_plugins.laya.rows import RowBuilder, Specials
from ref.requantise import recipe
from ref.truth import against_recorded, compare, recorded_of


def test_divergence_of_two_outcomes_is_the_formula():
    """Logits (0, x) are a coin with p = sigmoid(x); KL of two coins is known."""
    p, q = 0.8, 0.3
    truth = np.array([[0.0, np.log(p / (1 - p))]], np.float32)
    other = np.array([[5.0, 5.0 + np.log(q / (1 - q))]], np.float32)  # a shift changes nothing
    got = compare(truth, other)
    expected = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert got.mean_kl == pytest.approx(expected, rel=1e-5)
    assert (got.top1, got.positions) == (0.0, 1)


def test_figures_cover_every_position():
    """70 positions, more than are compared at a time, 7 of them changed by one large step."""
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 3, (70, 40)).astype(np.float32)
    other = truth.copy()
    other[::10, :] = -other[::10, :]
    got = compare(truth, other)
    assert got.positions == 70
    assert got.top1 == pytest.approx(63 / 70)
    assert got.p99_kl > got.mean_kl > 0
    assert compare(truth, truth).mean_kl == pytest.approx(0, abs=1e-12)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 5\)"):
        compare(np.zeros((3, 4), np.float32), np.zeros((3, 5), np.float32))


def test_recorded_distribution_is_found_by_its_ids(tmp_path):
    """A truth.json entry is the one whose ids are the text's; its best tokens are log-softmax."""
    entry = {"ids": [4, 5], "top": [[[1, -0.5]], [[0, -1.0]]]}
    path = tmp_path / "truth.json"
    path.write_text(json.dumps({"models": {"a": {"ids": [4]}, "b": entry}}))
    assert recorded_of(path, np.array([4, 5])) == entry
    assert recorded_of(path, np.array([9])) == {}
    logits = np.log(np.array([[1 - np.exp(-0.5), np.exp(-0.5)], [np.exp(-1), 1 - np.exp(-1)]]))
    assert against_recorded(logits.astype(np.float32), entry["top"]) < 1e-6


def test_coarse_types_take_the_last_third_of_the_blocks():
    kind, *flags = recipe("TQ2_0", 6)
    assert kind == "Q8_0"
    assert flags == ["--pure", "--tensor-type", r"blk\.(4|5)\.ffn_down=tq2_0"]
    assert recipe("Q4_K", 6) == ("Q4_K_S", "--pure")


def test_a_round_is_disturbed_when_its_best_reads_vary():
    steady = [10.0, 3.0, 9.9, 9.0, 2.0, 9.5]  # a slow read among good ones says nothing
    assert not disturbed(steady, 3)
    assert disturbed([*steady, 8.0, 7.0, 8.0], 3)


def test_plain_read_reads_every_byte_once():
    """The sum of what is read is the exclusive or of the memory, whatever the threads."""
    memory = np.random.default_rng(5).integers(0, 1 << 63, 8 * 1001, np.uint64)
    offset = -memory.ctypes.data % 64 // 8
    whole = memory[offset : offset + (len(memory) - offset) // 8 * 8]
    for threads in (1, 2, 3):
        reader = PlainRead([memory], threads)
        assert reader.bytes == whole.nbytes
        assert reader.read() > 0
        assert reader.sum == np.bitwise_xor.reduce(whole)


@pytest.mark.parametrize("positions", [200, 225, 226, 227])
def test_the_request_that_laya_is_timed_with_has_the_positions_it_says(positions):
    specials = Specials(cls=1, sep=2, mask=4, mask_text="[MASK]")
    builder = RowBuilder(JsonTokenizer(invented_laya._tokenizer()), specials, TYPES)
    body = invented_laya.request(positions)
    state = builder.encode(body["state"])
    rows = [
        builder.row(name, question, state, False, 512, 192)
        for name, question in body["questions"].items()
    ]
    assert sum(len(row.tokens) for row in rows) == positions


@pytest.mark.parametrize("package", [benchmarks, ref], ids=lambda package: package.__name__)
def test_every_script_still_fits_what_it_stands_on(package):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


@pytest.mark.parametrize(("last", "kept"), [(1.04, True), (1.06, False)])
def test_memory_of_a_short_soak_is_judged_by_its_ends(last, kept):
    sizes = [10**8] * 30 + [2 * 10**8] * 60 + [int(last * 10**8)] * 30
    assert memory_verdict(every_second(sizes)) == ("memory grows by less than 5 %", kept)


@pytest.mark.parametrize(("step", "kept"), [(10_000, True), (20_000, False)])
def test_memory_of_a_long_soak_is_judged_by_its_slope(step, kept):
    """Bytes a second: 0.6 and 1.2 MB a minute, after two in which caches fill."""
    sizes = [10**6 * second for second in range(120)] + [10**9 + step * s for s in range(120)]
    found = memory_verdict(every_second(sizes))
    assert found == ("memory grows by less than 1 MB a minute", kept)


def test_memory_that_saws_does_not_grow():
    """A model that leaves now and then takes a hundred megabytes with it."""
    saw = [10**9 - 10**8 * (second % 37 == 0) for second in range(600)]
    assert growth(every_second(saw)) == 0


def every_second(sizes):
    return [(float(second), size) for second, size in enumerate(sizes)]


def test_the_soak_is_run_by_its_path_from_anywhere(tmp_path):
    command = [sys.executable, str(Path(ref.__path__[0]) / "soak.py"), "-h"]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert (done.returncode, "--minutes" in done.stdout) == (0, True), done.stderr
