"""Elementary functions and f16 rounding: near the truth, and of the same bits on every set."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, features
from golem_core.graph.builder import Builder
from golem_core.graph.ops import UNARY
from golem_core.reference import ReferenceExecutor

SETS = features()["available"] + features()["emulated"]
POINTS = np.concatenate(
    [
        np.linspace(-100, 100, 4000),
        np.linspace(-1, 1, 4000),
        [0, -0.0, 1e-30, -1e-30, 88.7, 89, -87.3, -104, 3e38, -3e38, np.inf, -np.inf, np.nan],
    ]
).astype(np.float32)
# Ends in a lane of its own, and gives every vector length a tail.
GRID = np.resize(POINTS, (len(POINTS) // 13 + 1, 13))


def program(kind: str):
    p = Builder("function")
    p.output("y", p.unary(p.input("x", (p.axis("n", len(GRID)), 13)), kind))
    return p.build()


def apply(kind: str, isa: str, monkeypatch) -> np.ndarray:
    monkeypatch.setenv("GOLEM_CPU", isa)
    with CpuExecutor(program(kind), threads=1) as ex:
        return ex.run({"x": GRID}, ("y",))["y"].copy()


@pytest.mark.parametrize("kind", UNARY)
def test_functions_have_the_same_bits_on_every_instruction_set(kind, monkeypatch):
    made = [apply(kind, isa, monkeypatch) for isa in SETS]
    for other in made[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), made[0].view(np.uint32))


@pytest.mark.parametrize("kind", UNARY)
def test_functions_are_off_by_two_units_in_the_last_place_at_most(kind, monkeypatch):
    """The tails of gelu, where the formula itself cancels, by 5e-7 of their argument."""
    mine = apply(kind, SETS[-1], monkeypatch)
    truth = ReferenceExecutor(program(kind)).run({"x": GRID}, ("y",))["y"]
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(truth))
    infinite = np.isinf(truth)
    np.testing.assert_array_equal(mine[infinite], truth[infinite])
    at = np.isfinite(truth)
    error = np.abs(mine[at].astype(np.float64) - truth[at])
    if kind.startswith("gelu"):
        assert error.max() < 1e-6
    else:
        assert (error <= 2 * np.maximum(np.spacing(np.abs(truth[at])), 1e-36)).all()


@pytest.mark.parametrize("isa", SETS)
def test_rings_round_to_the_nearest_half_ties_to_even(isa, monkeypatch):
    """Subnormals, overflow and ties included; 20 values a head leave a tail in every vector."""
    monkeypatch.setenv("GOLEM_CPU", isa)
    rng = np.random.default_rng(0)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    near = np.concatenate([np.nextafter(ties, 0), ties, np.nextafter(ties, np.float32(1e9))])
    special = [0, -0.0, 65519.9, 65520, 7e4, 1e30, np.inf, 2.0**-24, 2.0**-25, 1e-10]
    values = np.concatenate([near, special, rng.standard_normal(999)]).astype(np.float32)
    values *= rng.choice([-1, 1], values.size).astype(np.float32)
    n = 64
    columns = np.resize(values, (-(-values.size // (n * 20)), n, 1, 20))
    p = Builder("rounding")
    q, k, v = (p.input(s, (p.axis("n", n), 1, 20)) for s in "qkv")
    p.output("y", p.attend(q, k, v, p.ring("kv", 1, 20), scale=1.0))
    built = p.build()
    with CpuExecutor(built, slots=1, context=n, threads=1) as ex, np.errstate(over="ignore"):
        for some in columns:
            runs = np.array([[0, 0, n, 0, 1]], np.int32)
            ex.run({"q": some, "k": some, "v": some[::-1], "runs": runs}, ("y",))
            ring = ex.states.rings["kv"]
            for kept, given in zip(ring.lines(0, np.arange(n)), (some, some[::-1]), strict=True):
                rounded = given[:, 0].astype(np.float16)
                np.testing.assert_array_equal(kept[:, 0].view(np.uint16), rounded.view(np.uint16))
