"""Products of float weights over many columns: how close, and the same bits in any company."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, _executor, features
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.weights import Weight, Weights
from golem_core.reference import ReferenceExecutor

SETS = features()["available"] + features()["emulated"]
TYPES = ("F32", "F16", "BF16")
MAX_N = 700


def weight(rng, name, out, width, kind, **more):
    type = by_name(kind)
    return Weight(name, (out, width), type, random_blocks((out, width), type, rng, 0.1), **more)


def tower(kind, width=80):
    """A gated feed-forward with bias, scale, residual and bounds."""
    rng = np.random.default_rng(5)
    p = Builder("tower")
    x = p.input("x", (p.axis("n", MAX_N), width))
    bias = rng.standard_normal(100).astype(np.float32)
    gate = weight(rng, "gate", 100, width, kind, bias=bias)
    up = weight(rng, "up", 100, width, kind, clip=(-1.5, 1.25, -np.inf, np.inf))
    down = weight(rng, "down", width, 100, kind, scale=np.float32(0.5).reshape(()))
    same = weight(rng, "same", 100, width, kind)
    p.output("pair", p.gate(p.linear(x, gate), p.linear(x, same), "gelu_quick"))
    y = p.gate(p.linear(x, gate), p.linear(x, up), "silu")
    p.output("y", p.add(x, p.linear(y, down)))
    return p.build()


def columns(count, width=80):
    return np.random.default_rng(count).standard_normal((count, width)).astype(np.float32)


def run(program, x, **options):
    executor = CpuExecutor(program, **options)
    made = {k: v.copy() for k, v in executor.run({"x": x}, ("y", "pair")).items()}
    executor.close()
    return made


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", TYPES)
def test_products_equal_the_reference(kind, isa, monkeypatch):
    """To f32's rounding; where BF16 meets BF16, to that of the columns to 8 bits of mantissa."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    program = tower(kind)
    rounded = kind == "BF16" and _executor.panel(isa)[1]
    for count in (1, 11, 12, 13, 500):
        x = columns(count)
        mine, truth = (
            run(program, x, threads=2),
            ReferenceExecutor(program).run({"x": x}, ("y", "pair")),
        )
        for name in truth:
            error = np.sqrt(np.mean((mine[name] - truth[name]) ** 2) / np.mean(truth[name] ** 2))
            assert error < (3e-3 if rounded else 1e-6), (count, name)


@pytest.mark.skipif(not _executor.panel(SETS[-1])[1], reason="no product of BF16 by BF16 here")
def test_bf16_weights_meet_columns_rounded_to_bf16_and_nothing_else_is_rounded(monkeypatch):
    """Columns that BF16 holds exactly give what f32 gives; an odd width loses no element."""
    monkeypatch.setenv("GOLEM_CPU", SETS[-1])
    rng = np.random.default_rng(9)
    p = Builder("one")
    x = p.input("x", (p.axis("n", 64), 33))
    p.output("y", p.rms_norm(p.linear(x, weight(rng, "w", 20, 33, "BF16")), None, 1e-6))
    program = p.build()
    bits = rng.standard_normal((40, 33)).astype(np.float32).view(np.uint32) & 0xFFFF0000
    inputs = {"x": bits.view(np.float32)}
    with CpuExecutor(program, threads=1) as executor:
        mine = executor.run(inputs, ("y",))["y"]
        truth = ReferenceExecutor(program).run(inputs, ("y",))["y"]
        np.testing.assert_allclose(mine, truth, atol=2e-6 * np.abs(truth).max())


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("kept", [False, True], ids=["tower", "ring"])
def test_a_towers_attention_rounds_to_bf16_where_its_products_do(kind, kept, isa, monkeypatch):
    """Columns that see themselves alone give their own values: as they are, or rounded."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    rng = np.random.default_rng(5)
    p = Builder("attention")
    n = p.columns if kept else p.axis("n", 64)
    q, k, v = (p.input(name, (n, 2, 32)) for name in "qkv")
    ring = p.ring("kv", 2, 32, window=1) if kept else None
    back = 0
    p.output("y", p.attend(q, k, v, ring, scale=1.0, back=back))
    p.output("z", p.linear(p.flat(q), weight(rng, "w", 8, 64, kind)))
    inputs = {name: rng.standard_normal((40, 2, 32)).astype(np.float32) for name in "qkv"}
    if kept:
        inputs["runs"] = np.array([[0, 0, 40, 0, 1]], np.int32)
    program = p.build()
    maxima = {"n": 64, "m": 64} if kept else None
    with CpuExecutor(program, threads=2, maxima=maxima, cache=("f32", "f32")) as executor:
        mine = executor.run(inputs, ("y", "z"))["y"].copy()
    bits = inputs["v"].view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    expected = rounded if kind == "BF16" and _executor.panel(isa)[1] and not kept else inputs["v"]
    np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", TYPES)
def test_a_column_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(
    kind, isa, monkeypatch
):
    monkeypatch.setenv("GOLEM_CPU", isa)
    program, x = tower(kind), columns(300)
    whole = run(program, x, threads=1)
    for threads in (2, 7):
        for name, array in run(program, x, threads=threads).items():
            np.testing.assert_array_equal(array, whole[name])
    for piece in (slice(0, 1), slice(7, 20), slice(255, 300)):
        for name, array in run(program, np.ascontiguousarray(x[piece]), threads=2).items():
            np.testing.assert_array_equal(array, whole[name][piece])


def test_unfused_records_give_the_same_bits(monkeypatch):
    program, x = tower("F16"), columns(50)
    fused = run(program, x, threads=2)
    monkeypatch.setenv("GOLEM_PLAN", "plain")
    for name, array in run(program, x, threads=2).items():
        np.testing.assert_array_equal(array, fused[name])


def test_a_weight_of_a_file_is_clipped_where_the_file_says_so():
    """clamp(W clamp(x, least, most), least, most) + bias; bounds that are missing are none."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((4, 3)).astype(np.float32)

    class Tensor:
        def __init__(self, name, array):
            array = np.ascontiguousarray(array, np.float32)
            self.name, self.shape, self.type = name, array.shape, by_name("F32")
            self.data = array.view(np.uint8).reshape(*array.shape[:-1], -1)

    tensors = {"q.weight": w, "q.bias": np.arange(4), "q.input_max": [0.5], "q.output_min": [-0.25]}
    weights = Weights({name: Tensor(name, array) for name, array in tensors.items()})
    found = weights.linear("q")
    assert found.clip == (-np.inf, 0.5, -0.25, np.inf)
    p = Builder("clipped")
    p.output("y", p.linear(p.input("x", (p.axis("n", 8), 3)), found))
    x = rng.standard_normal((8, 3)).astype(np.float32)
    wanted = np.maximum(np.minimum(x, 0.5) @ w.T, -0.25) + np.arange(4)
    made = ReferenceExecutor(p.build()).run({"x": x}, ("y",))["y"]
    np.testing.assert_allclose(made, wanted, rtol=1e-6)
    assert weights.unused() == []


@pytest.mark.parametrize("isa", [isa for isa in SETS if isa.startswith("amx")])
def test_bf16_tiles_round_as_the_manual_of_the_instruction_says(isa, monkeypatch):
    """Of 32 elements the even and the odd ones are summed apart from zero by fused multiply-adds,
    both added, and that added to the sum of the elements before."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    rng = np.random.default_rng(12)
    p = Builder("one")
    x = p.input("x", (p.axis("n", 64), 70))
    w = weight(rng, "w", 40, 70, "BF16")
    one = Weight("one", (40, 40), by_name("F32"), np.eye(40, dtype=np.float32).view(np.uint8))
    p.output("y", p.linear(p.linear(x, w), one))  # what leaves a program itself is of f32 products
    bits = rng.standard_normal((30, 70)).astype(np.float32).view(np.uint32) & 0xFFFF0000
    columns, rows = bits.view(np.float32), (w.data.view(np.uint16).astype(np.uint32) << 16)
    rows = rows.view(np.float32).astype(np.float64)
    total = np.zeros((30, 40), np.float32)
    for first in range(0, 70, 32):
        halves = np.zeros((2, 30, 40), np.float32)
        for k in range(first, min(first + 32, 70)):  # exact in f64, then rounded once
            product = columns[:, k, None].astype(np.float64) * rows[:, k]
            halves[k % 2] = (halves[k % 2] + product).astype(np.float32)
        total += halves[0] + halves[1]
    with CpuExecutor(p.build(), threads=1) as executor:
        np.testing.assert_array_equal(executor.run({"x": columns}, ("y",))["y"], total)
