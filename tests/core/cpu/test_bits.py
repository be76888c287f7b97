"""A column's bits depend on its own tokens and its role, on nothing else a pass may hold."""

import itertools

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, features
from tests.core.cpu.decoders import decoder, one_pass

SHAPES = {
    "llama": {},
    "qwen3": {"head_norms": True, "kind": "Q4_K"},
    "moe": {"head_norms": True, "experts": 5, "kind": "Q8_0", "hidden": 128},
    "gemma3": {"post_norms": True, "window": 64, "kv": 1, "heads": 2, "d": 96, "width": 192},
    "f32": {"kind": "F32", "width": 96, "d": 20, "hidden": 100},
}
SETS = features()["available"] + features()["emulated"]


def executor(shape: str, **options) -> CpuExecutor:
    settings = dict(SHAPES[shape])
    options = {"slots": 4, "context": 1200, "threads": 2, "maxima": {"n": 128, "m": 128}} | options
    return CpuExecutor(decoder(settings.pop("kind", "Q4_0"), **settings), **options)


def conversation(ex: CpuExecutor, slot: int, pieces, draws: int) -> list[np.ndarray]:
    """Logits of every column of one slot: a prompt in the given pieces, then drawn columns."""
    at, rows = 0, []
    for count, role in [(c, 1) for c in pieces] + [(1, 0)] * draws:
        rows += list(ex.run(one_pass((slot, count, at, role)))["logits"].copy())
        at += count
    return rows


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("isa", SETS)
def test_columns_have_the_same_bits_alone_and_in_any_batch(shape, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    alone = [
        conversation(executor(shape), slot, pieces, 6)
        for slot, pieces in enumerate([(40,), (7,), (100,)])
    ]
    ex = executor(shape)
    batch: dict[int, list] = {0: [], 1: [], 2: []}
    passes = [
        [(2, 60, 0, 1), (1, 7, 0, 1)],
        [(1, 1, 7, 0), (2, 40, 60, 1), (0, 3, 0, 1)],
        [(2, 1, 100, 0), (1, 1, 8, 0), (0, 37, 3, 1)],
    ]
    passes += [[(s, 1, [40, 9, 101][s] + i, 0) for s in (i % 3, (i + 2) % 3)] for i in range(1)]
    for runs in passes:
        logits = ex.run(one_pass(*runs))["logits"]
        at = 0
        for slot, count, _, _ in runs:
            batch[slot] += list(logits[at : at + count].copy())
            at += count
    for slot, rows in batch.items():
        assert len(rows) >= 8
        for mine, theirs in zip(rows, alone[slot], strict=False):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_any_number_of_threads_gives_the_same_bits(shape):
    made = [conversation(executor(shape, threads=t), 1, (90, 20), 3) for t in (1, 2, 7)]
    for other in made[1:]:
        np.testing.assert_array_equal(made[0], other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("isa", SETS)
def test_drawn_columns_have_the_same_bits_one_a_pass_and_several(shape, isa, monkeypatch):
    """A draft is checked in one pass and must give what drawing token by token gives. What was
    refused is written over by other tokens."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    ex = executor(shape)
    for slot, prompt in ((0, 30), (1, 600), (2, 90)):
        for at in range(0, prompt, 60):
            ex.run(one_pass((slot, min(60, prompt - at), at, 1)))
    alone = {
        (slot, at + i): ex.run(one_pass((slot, 1, at + i, 0)))["logits"][0].copy()
        for slot, at in ((0, 30), (1, 600), (2, 90))
        for i in range(20)
    }
    passes = [
        [(0, 5, 30, 0)],
        [(1, 16, 600, 0), (0, 1, 35, 0)],
        [(2, 9, 90, 0), (0, 7, 36, 0), (1, 2, 616, 0), (3, 40, 0, 1)],
        [(0, 3, 43, 0)],
    ]
    for runs in passes:
        logits = ex.run(one_pass(*runs))["logits"]
        row = 0
        for slot, count, at, role in runs:
            for i in range(count if role == 0 else 0):
                np.testing.assert_array_equal(logits[row + i], alone[slot, at + i])
            row += count


@pytest.mark.parametrize("shape", SHAPES)
def test_unfused_plans_give_the_same_bits(shape, monkeypatch):
    fused = conversation(executor(shape), 0, (33, 50), 3)
    monkeypatch.setenv("GOLEM_PLAN", "plain")
    np.testing.assert_array_equal(fused, conversation(executor(shape), 0, (33, 50), 3))


@pytest.mark.parametrize("shape", SHAPES)
def test_prompts_have_the_same_bits_however_they_are_cut(shape):
    whole = conversation(executor(shape), 0, (120,), 0)
    for pieces in ((1, 119), (64, 56), (17,) * 7 + (1,)):
        np.testing.assert_array_equal(whole, conversation(executor(shape), 0, pieces, 0))


def test_long_contexts_have_the_same_bits_whoever_takes_their_chunks():
    """1100 positions are three chunks of keys: shared out with 7 threads, not with one."""
    made = [conversation(executor("llama", threads=t), 0, (110,) * 10, 4)[-4:] for t in (1, 2, 7)]
    for other in made[1:]:
        np.testing.assert_array_equal(made[0], other)


def test_narrow_and_wide_executors_give_the_same_bits():
    made = [
        conversation(executor("llama", maxima={"n": n, "m": n}), 0, (10, 10), 2)
        for n in (12, 16, 64)
    ]
    for other in made[1:]:
        np.testing.assert_array_equal(made[0], other)


@pytest.mark.parametrize("isa", SETS)
def test_a_prompt_longer_than_its_window_has_the_same_bits_in_pieces(isa, monkeypatch):
    """In a tile of many columns the later ones see nothing of the first keys, and the first nothing
    of the later ones: what they have no weight for must not reach them."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    program = decoder("Q4_0", window=20, n=192)
    options = {"slots": 1, "context": 256, "threads": 2}
    with CpuExecutor(program, **options) as whole, CpuExecutor(program, **options) as cut:
        everything = whole.run(one_pass((0, 190, 0, 1)))["logits"].copy()
        ends = (0, 1, 38, 101, 102, 165, 190)
        for first, end in itertools.pairwise(ends):
            piece = cut.run(one_pass((0, end - first, first, 1)))["logits"]
            np.testing.assert_array_equal(piece, everything[first:end])


@pytest.mark.parametrize("isa", [name for name in SETS if name.startswith(("avx512", "amx"))])
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_that_a_cache_keeps_give_the_same_bits(shape, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    found = []
    for size in (0, 1 << 60):
        monkeypatch.setattr("golem_core.cpu.compile.last_cache", lambda size=size: size)
        ex = executor(shape)
        drawn = [[(slot, 1, at, 0) for slot in range(3)] for at in range(3)]
        found.append(
            [ex.run(one_pass(*runs))["logits"].copy() for runs in [[(3, 50, 0, 1)], *drawn]]
        )
    for memory, cache in zip(*found, strict=True):
        np.testing.assert_array_equal(memory, cache)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("kept", [False, True], ids=["memory", "cache"])
def test_any_few_columns_of_float_weights_have_the_bits_of_one(kept, kind, isa, monkeypatch):
    """Kernels differ in how many columns they take at a time, and in how many groups of weights."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    monkeypatch.setattr("golem_core.cpu.compile.last_cache", lambda: (1 << 60) * kept)
    program = decoder(kind, blocks=1, width=96, d=32, hidden=152)
    with CpuExecutor(program, slots=1, context=64, threads=2) as ex:
        for role in (0, 1):
            alone = [ex.run(one_pass((0, 1, at, role)))["logits"][0].copy() for at in range(18)]
            for count in range(1, 19):
                together = ex.run(one_pass((0, count, 0, role)))["logits"]
                np.testing.assert_array_equal(together, alone[:count])
