"""Every op runs on the reference executor, and the ones with a closed form equal it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golem_core.graph.builder import Builder
from golem_core.graph.ops import OPS, Rope
from golem_core.graph.weights import Rotation, Weight
from golem_core.reference import ReferenceExecutor
from tests.core.ops.strategies import CASES, Case


def run(case: Case) -> list[dict[str, np.ndarray]]:
    """The outputs of every pass of a case on the reference executor."""
    executor = ReferenceExecutor(
        case.program, slots=case.slots, context=case.context, maxima=case.maxima
    )
    return [
        {k: v.copy() for k, v in executor.run(inputs, case.outputs).items()}
        for inputs in case.passes
    ]


def test_every_op_has_a_strategy():
    assert set(CASES) | {"rope_table"} == set(OPS)


@pytest.mark.parametrize("op", sorted(CASES))
def test_reference_runs_every_case_with_the_declared_shapes(op):
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(CASES[op]())
    def check(case):
        for made, inputs in zip(run(case), case.passes, strict=True):
            n = len(next(iter(inputs.values())))
            for name in case.outputs:
                value = case.program.outputs[name]
                assert made[name].shape[1:] == value.inner
                assert np.isfinite(made[name]).all()
                if str(value.rows) == "n" and "runs" not in inputs:
                    assert made[name].shape[0] in (n, *(len(a) for a in inputs.values()))

    check()


def one(write, **inputs) -> np.ndarray:
    """The result of one op on a pass of these inputs."""
    p = Builder("one")
    n = p.axis("n", 64)
    values = {
        name: p.input(name, (n, *a.shape[1:]), "i32" if a.dtype.kind == "i" else "f32")
        for name, a in inputs.items()
    }
    p.output("y", write(p, **values))
    return ReferenceExecutor(p.build()).run(inputs, ("y",))["y"]


def test_rope_keeps_the_length_of_every_pair_and_turns_by_position_times_frequency():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 2, 8)).astype(np.float32)
    at = np.array([0, 1, 2, 7, 100], np.int32)
    spec = Rope.of(8, 10000.0, pairing="adjacent")
    y = one(lambda p, x, at: p.rope(x, at, spec), x=x, at=at)
    z, w = x[..., 0::2] + 1j * x[..., 1::2], y[..., 0::2] + 1j * y[..., 1::2]
    turn = np.exp(1j * at[:, None] * 10000.0 ** (-np.arange(4) / 4))
    np.testing.assert_allclose(w, z * turn[:, None], atol=1e-5)


def test_attention_to_one_key_is_its_value():
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((6, 2, 4)).astype(np.float32) for _ in range(3))
    y = one(lambda p, q, k, v: p.attend(q, k, v, scale=1.0, back=0), q=q, k=k, v=v)
    np.testing.assert_array_equal(y, v)


def test_causal_attention_with_equal_scores_is_a_running_mean():
    v = np.arange(12, dtype=np.float32).reshape(6, 1, 2)
    zero = np.zeros((6, 1, 3), np.float32)
    y = one(lambda p, q, k, v: p.attend(q, k, v, scale=1.0), q=zero, k=zero, v=v)
    mean = np.cumsum(v[:, 0], 0) / np.arange(1, 7)[:, None]
    np.testing.assert_allclose(y[:, 0], mean, rtol=1e-6)


@given(st.integers(1, 20), st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_attention_fed_in_pieces_equals_attention_fed_at_once(n, piece):
    rng = np.random.default_rng(n * 31 + piece)
    q, k, v = (rng.standard_normal((n, 2, 8)).astype(np.float32) for _ in range(3))

    def program(ring):
        p = Builder("attend")
        a = [p.input(s, (p.axis("n", 64), 2, 8)) for s in "qkv"]
        held = p.ring("kv", 2, 8, window=6) if ring else None
        p.output("y", p.attend(*a, held, scale=0.3, back=5))
        return p.build()

    whole = ReferenceExecutor(program(False)).run({"q": q, "k": k, "v": v}, ("y",))["y"]
    fed = ReferenceExecutor(program(True), slots=2, context=32, maxima={"n": 8})
    parts = []
    for a in range(0, n, piece):
        b = min(a + piece, n)
        runs = np.array([[1, 0, b - a, a, 1]], np.int32)
        inputs = {"runs": runs, "q": q[a:b], "k": k[a:b], "v": v[a:b]}
        parts.append(fed.run(inputs, ("y",))["y"].copy())
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)


def test_route_takes_the_largest_and_breaks_ties_to_the_lower_index():
    logits = np.log(np.array([[1, 4, 4, 2]], np.float32))
    p = Builder("route")
    x = p.input("x", (p.axis("n", 4), 4))
    experts, weights = p.route(x, 3, normalise=True)
    p.output("experts", experts)
    p.output("weights", weights)
    made = ReferenceExecutor(p.build()).run({"x": logits}, ("experts", "weights"))
    assert made["experts"].tolist() == [[1, 2, 3]]
    np.testing.assert_allclose(made["weights"], [[0.4, 0.4, 0.2]], rtol=1e-6)


def test_a_causal_convolution_is_the_start_of_a_full_one_of_the_turned_kernel():
    rng = np.random.default_rng(4)
    x, kernel = rng.standard_normal((9, 1)).astype(np.float32), rng.standard_normal(4)
    y = one(lambda p, x: p.conv1d(x, kernel.reshape(1, 1, 4)), x=x)
    np.testing.assert_allclose(y[:, 0], np.convolve(x[:, 0], kernel[::-1])[:9], rtol=1e-5)


def test_before_the_first_row_lie_zeros_or_the_first_row_again():
    x, ones = np.array([[5], [7], [1], [2]], np.float32), np.ones((1, 1, 4), np.float32)
    zeros = one(lambda p, x: p.conv1d(x, ones, stride=1), x=x)
    first = one(lambda p, x: p.conv1d(x, ones, stride=1, start="first"), x=x)
    assert zeros[:, 0].tolist() == [5, 12, 13, 15]
    assert first[:, 0].tolist() == [20, 22, 18, 15]


def test_the_delta_rule_stores_values_under_keys_of_length_one_and_finds_them_again():
    """Orthonormal keys, no decay, beta 1: the query of a key gives its newest value."""
    p = Builder("delta")
    n = p.axis("n", 8)
    q, k, v = p.input("q", (n, 1, 4)), p.input("k", (n, 1, 4)), p.input("v", (n, 2, 3))
    gates = p.input("decay", (n, 2)), p.input("beta", (n, 2))
    p.output("y", p.delta_rule(q, k, v, *gates, "m", scale=1.0))
    keys = np.eye(4, dtype=np.float32)[[0, 1, 0, 2]][:, None]
    values = np.random.default_rng(3).standard_normal((4, 2, 3)).astype(np.float32)
    asked = np.eye(4, dtype=np.float32)[[0, 0, 0, 1]][:, None]
    inputs = {"q": asked, "k": keys, "v": values, "runs": np.array([[0, 0, 4, 0, 1]], np.int32)}
    inputs |= {"decay": np.zeros((4, 2), np.float32), "beta": np.ones((4, 2), np.float32)}
    made = ReferenceExecutor(p.build(), slots=1, context=8).run(inputs, ("y",))["y"]
    np.testing.assert_allclose(made, values[[0, 0, 2, 1]], atol=1e-6)


def test_tiled_heads_take_key_heads_in_turn_and_grouped_ones_in_groups():
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((6, 2, 4)).astype(np.float32) for _ in "qk")
    v = rng.standard_normal((6, 6, 3)).astype(np.float32)
    gates = [-rng.random((6, 6)).astype(np.float32), rng.random((6, 6)).astype(np.float32)]

    def run(heads, order):
        p = Builder("delta")
        n = p.axis("n", 8)
        given = {"q": q, "k": k, "v": v[:, order]}
        given |= {name: g[:, order] for name, g in zip(("decay", "beta"), gates, strict=True)}
        values = [p.input(name, (n, *a.shape[1:])) for name, a in given.items()]
        p.output("y", p.delta_rule(*values, "m", scale=0.5, heads=heads))
        given["runs"] = np.array([[0, 0, 6, 0, 1]], np.int32)
        return ReferenceExecutor(p.build(), slots=1, context=8).run(given, ("y",))["y"]

    grouped, turn = run("grouped", np.arange(6)), np.array([0, 3, 1, 4, 2, 5])
    np.testing.assert_allclose(run("tiled", turn), grouped[:, turn], rtol=1e-6)


def test_a_rotation_undoes_itself_and_keeps_lengths():
    rng = np.random.default_rng(6)
    x, signs = rng.standard_normal((3, 512)).astype(np.float32), rng.choice([-1.0, 1.0], 512)
    for kind, block in (("sylvester", 128), ("h4", 256)):
        rotation = Rotation(kind, block, signs.astype(np.float32))
        turned = one(lambda p, x, r=rotation: p.hadamard(x, r), x=x)
        np.testing.assert_allclose((turned**2).sum(1), (x**2).sum(1), rtol=1e-5)
        assert np.abs(turned - x).max() > 0.5
        back = one(lambda p, x, r=rotation: p.hadamard(x, r, inverse=True), x=turned)
        np.testing.assert_allclose(back, x, atol=1e-5)


def test_a_rotated_weight_multiplies_as_the_plain_one():
    """W' = W s H: W' (H (s x)) = W x; rows of a table are turned back when they are read."""
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal((5, 64)).astype(np.float32) for _ in range(2))
    signs = rng.choice([-1.0, 1.0], 64).astype(np.float32)
    h = np.ones((1, 1))
    while len(h) < 64:
        h = np.kron([[1, 1], [1, -1]], h)
    rotation = Rotation("sylvester", 64, signs)
    folded = replace(Weight.of("w", (w * signs) @ h / 8), rotation=rotation)
    made = one(lambda p, x: p.linear(x, folded), x=x)
    np.testing.assert_allclose(made, x @ w.T, atol=1e-4)
    rows = one(lambda p, at: p.rows(folded, at), at=np.array([4, 0], np.int32))
    np.testing.assert_allclose(rows, w[[4, 0]], atol=1e-5)
