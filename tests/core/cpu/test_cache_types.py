"""Keys and values kept in other types than f16: what lies in the ring, and what is read of it."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, features
from golem_core.formats.blocks import by_name, dequantise, quantise
from golem_core.graph.builder import Builder
from golem_core.graph.program import Program
from golem_core.model.memory import estimate_program
from golem_core.state import Ring, StateError, States
from golem_core.state.kinds import CACHE_TYPES, turns
from tests.core.cpu.decoders import decoder, one_pass
from tests.rounding import hadamard

SETS = features()["available"] + features()["emulated"]
HEADS, KV, COLUMNS = 4, 2, 90


def attention(d: int, dv: int) -> Program:
    """Attention alone: queries, keys and values are given."""
    p = Builder("attention")
    n = p.axis("n", 128)
    q, k, v = (
        p.input(name, (n, h, w))
        for name, h, w in zip("qkv", (HEADS, KV, KV), (d, d, dv), strict=True)
    )
    ring = p.ring("kv", KV, d, dv)
    p.output("y", p.attend(q, k, v, ring, scale=d**-0.5))
    return p.build()


def turned(x: np.ndarray, n: int) -> np.ndarray:
    if not n:
        return x
    return (x.reshape(*x.shape[:-1], -1, n) @ hadamard(n)).reshape(x.shape)


def lines(array: np.ndarray, kind: str, width: int) -> np.ndarray:
    """What lines of a ring hold, as f32."""
    if kind == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if CACHE_TYPES[kind].block:
        return dequantise(array, by_name(kind.upper()))
    return array.astype(np.float32)


def reference(q, k, v, scale):
    """Causal attention of (n, heads, d) over (kv, n, d) in f64."""
    n = len(q)
    out = np.zeros((n, HEADS, v.shape[-1]))
    for h in range(HEADS):
        s = scale * q[:, h].astype(np.float64) @ k[h * KV // HEADS].T
        s[np.triu_indices(n, 1)] = -np.inf
        p = np.exp(s - s.max(1, keepdims=True))
        out[:, h] = (p / p.sum(1, keepdims=True)) @ v[h * KV // HEADS]
    return out


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize(
    ("type_k", "type_v"),
    [(t, t) for t in CACHE_TYPES] + [("q8_0", "f16"), ("f16", "q4_0"), ("f32", "q8_0")],
)
@pytest.mark.parametrize(("d", "dv"), [(64, 64), (128, 128), (192, 96), (96, 32)])
def test_the_result_is_that_of_the_lines_in_the_ring(d, dv, type_k, type_v, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    rng = np.random.default_rng(d)
    q, k, v = (
        rng.standard_normal((COLUMNS, h, w)).astype(np.float32)
        for h, w in ((HEADS, d), (KV, d), (KV, dv))
    )
    ex = CpuExecutor(attention(d, dv), context=128, threads=2, cache=(type_k, type_v))
    rows, at = [], 0
    for count, role in ((70, 1), (1, 0), (1, 0), (18, 1)):
        cut = slice(at, at + count)
        runs = np.array([[0, 0, count, at, role]], np.int32)
        given = {"runs": runs, "q": q[cut], "k": k[cut], "v": v[cut]}
        rows.append(ex.run(given, wanted=("y",))["y"].copy())
        at += count
    ring = ex.states.rings["kv"]
    turn_k, turn_v = ex.states.turn_k, ex.states.turn_v
    kept_k, kept_v = ring.lines(0, np.arange(COLUMNS))
    kept_k = lines(kept_k, type_k, d).transpose(1, 0, 2)
    kept_v = lines(kept_v, type_v, dv).transpose(1, 0, 2)
    # half a step of each type, as a share of the largest value of a block, or of the value
    steps = {"f16": 2**-11, "f32": 0, "bf16": 2**-8, "q8_0": 0.51 / 127, "q4_0": 1 / 8}
    for kept, given, kind, n in ((kept_k, k, type_k, turn_k), (kept_v, v, type_v, turn_v)):
        wanted = turned(given.astype(np.float64).transpose(1, 0, 2), n)
        most = np.abs(wanted).reshape(*wanted.shape[:-1], -1, 32).max(-1).repeat(32, -1)
        scale = most if CACHE_TYPES[kind].block else np.abs(wanted)
        least = 2**-11 * bool(CACHE_TYPES[kind].block)  # the scale is f16
        assert (np.abs(kept - wanted) <= scale * (steps[kind] * 1.01 + least) + 1e-6).all()
    expected = turned(reference(turned(q, turn_k), kept_k, kept_v, d**-0.5), turn_v)
    np.testing.assert_allclose(np.concatenate(rows), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_lines_in_blocks_are_the_formats_own_encoding_of_what_was_given(
    kind, role, isa, monkeypatch
):
    """Bit for bit, where nothing is turned: equal values and very different ones, too."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    rng, count = np.random.default_rng(5), 8
    q, k, v = (
        rng.standard_normal((count, h, w)).astype(np.float32)
        for h, w in ((HEADS, 96), (KV, 96), (KV, 32))
    )
    k[1], v[2], k[3, :, 5] = 3, -0.25, 300
    ex = CpuExecutor(attention(96, 32), context=64, threads=2, cache=(kind, kind))
    parts = [slice(0, count)] if role else [slice(i, i + 1) for i in range(count)]
    for part in parts:
        runs = np.array([[0, 0, part.stop - part.start, part.start, role]], np.int32)
        ex.run({"runs": runs, "q": q[part], "k": k[part], "v": v[part]}, wanted=("y",))
    for kept, given in zip(ex.states.rings["kv"].lines(0, np.arange(count)), (k, v), strict=True):
        np.testing.assert_array_equal(kept, quantise(given, by_name(kind.upper())))


@pytest.mark.parametrize(
    ("kind", "sizes", "k", "v"),
    [
        ("q8_0", [128, 128], 128, 64),
        ("q8_0", [256], 256, 64),
        ("q8_0", [192], 64, 64),
        ("q8_0", [64], 64, 64),
        ("q8_0", [96], 0, 0),
        ("q8_0", [256, 512], 0, 0),
        ("q4_0", [128], 128, 64),
        ("f16", [128], 0, 0),
        ("f32", [128], 0, 0),
    ],
)
def test_what_is_turned_together_is_llama_cpps_rule(kind, sizes, k, v):
    rings = [Ring(str(size), 1, size, size) for size in sizes]
    assert [turns(CACHE_TYPES[kind], rings, side) for side in "kv"] == [k, v]


@pytest.mark.parametrize(
    ("kind", "share"), [("f32", 2), ("bf16", 1), ("q8_0", 34 / 64), ("q4_0", 18 / 64)]
)
def test_memory_of_a_cache_against_that_of_f16(kind, share):
    ring = Ring("kv", 8, 128, 128)
    size = States([ring], 2, 640, 64, kind, kind).nbytes
    assert size == share * States([ring], 2, 640, 64).nbytes
    program = decoder()
    told = [estimate_program(program, 2, 640, 128, (t, t)) for t in ("f16", kind)]
    assert told[1].rings == share * told[0].rings
    assert told[1].per_position == share * told[0].per_position


def test_a_head_that_is_no_multiple_of_a_block_is_refused():
    with pytest.raises(StateError, match="a q8_0 cache needs a head size that is a multiple of 32"):
        States([Ring("kv", 1, 80, 80)], 1, 64, 8, "q8_0")


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", ["bf16", "q8_0", "q4_0"])
def test_columns_have_the_same_bits_however_the_prompt_was_cut(kind, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)

    def logits(pieces, threads):
        program = decoder(window=64)
        options = {"slots": 2, "context": 600, "threads": threads, "maxima": {"n": 128, "m": 128}}
        ex = CpuExecutor(program, cache=(kind, kind), **options)
        rows, at = [], 0
        for count, role in [(c, 1) for c in pieces] + [(1, 0)] * 3:
            rows += list(ex.run(one_pass((1, count, at, role)))["logits"].copy())
            at += count
        return np.array(rows)

    whole = logits([120], 1)
    for pieces, threads in (([120], 2), ([50, 70], 2), ([1, 63, 56], 7)):
        np.testing.assert_array_equal(logits(pieces, threads), whole)
