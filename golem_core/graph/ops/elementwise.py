"""Elementwise ops, reductions and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.ops.catalogue import op
from golem_core.graph.values import Const, Shape, Value, show

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


UNARY = ("silu", "sigmoid", "tanh", "relu", "elu", "exp", "softplus")
UNARY += ("gelu_tanh", "gelu_erf", "gelu_quick")
PEAK_LANES = 64  # groups of a chunk, as in kernels/peaks.h and sample/chain.h
PEAK_CHUNK = 32 * PEAK_LANES  # logits


class ElementwiseOps:
    """Elementwise ops, reductions and the rest. All row-wise unless said."""

    @op(rowwise=True)
    def unary(self: Builder, x: Value, kind: str) -> Value:
        """kind(x): silu sigmoid tanh relu elu exp softplus gelu_tanh gelu_erf gelu_quick.

        softplus(x) is x above 20. gelu_quick(x) = x · sigmoid(1.702 x).
        """
        if kind not in UNARY:
            raise self.fail("unary", f"kind {kind!r} is none of {', '.join(UNARY)}")
        return self.emit("unary", (x,), [(x.shape, "f32")], kind=kind)[0]

    @op(rowwise=True)
    def gate(self: Builder, a: Value, b: Value, kind: str) -> Value:
        """kind(a) · b: SwiGLU, GeGLU, output gates."""
        if kind not in UNARY or a.shape != b.shape:
            raise self.fail("gate", f"{kind}({a!r}) times {b!r}")
        return self.emit("gate", (a, b), [(a.shape, "f32")], kind=kind)[0]

    @op(rowwise=True)
    def add(self: Builder, x: Value, y: Value | np.ndarray | float) -> Value:
        """x + y; y of x's shape, (rows, 1), (1, d), a constant (d,) or a number."""
        return self.emit("add", (x, _second(self, "add", x, y)), [(x.shape, "f32")])[0]

    @op(rowwise=True)
    def mul(self: Builder, x: Value, y: Value | np.ndarray | float) -> Value:
        """x · y; y as in add."""
        return self.emit("mul", (x, _second(self, "mul", x, y)), [(x.shape, "f32")])[0]

    @op(rowwise=True)
    def fma(
        self: Builder, x: Value, a: Value | np.ndarray | float, b: Value | np.ndarray | float
    ) -> Value:
        """x · a + b; a and b as in add. Modulation, gated residuals, layer scale."""
        seconds = (_second(self, "fma", x, y) for y in (a, b))
        return self.emit("fma", (x, *seconds), [(x.shape, "f32")])[0]

    @op(rowwise=True)
    def clamp(self: Builder, x: Value, low: float, high: float) -> Value:
        """min(max(x, low), high)."""
        if not low <= high:
            raise self.fail("clamp", f"from {low} to {high}")
        return self.emit("clamp", (x,), [(x.shape, "f32")], low=float(low), high=float(high))[0]

    @op(rowwise=True)
    def softcap(self: Builder, x: Value, cap: float) -> Value:
        """cap · tanh(x / cap)."""
        if not cap > 0:
            raise self.fail("softcap", f"a cap of {cap}")
        return self.emit("softcap", (x,), [(x.shape, "f32")], cap=float(cap))[0]

    @op(rowwise=True)
    def softmax(self: Builder, x: Value) -> Value:
        """exp(x - max) / Σ over the last axis."""
        return self.emit("softmax", (x,), [(x.shape, "f32")])[0]

    @op(rowwise=True)
    def top_k(self: Builder, x: Value, k: int) -> tuple[Value, Value]:
        """The k largest of each row, descending, ties to the lower id: (m, k) f32, (m, k) i32."""
        if len(x.shape) != 2 or not 1 <= k <= x.shape[1]:
            raise self.fail("top_k", f"the {k} largest of {x!r}")
        shape = (x.rows, k)
        return self.emit("top_k", (x,), [(shape, "f32"), (shape, "i32")], k=k)

    @op(rowwise=True)
    def peaks(self: Builder, x: Value) -> Value:
        """The best of every group of logits (m, v): (m, v // 2048 · 64).

        Peak 64 c + j is the largest of x[2048 c + 64 i + j], i = 0 … 31, NaN where one of them is
        NaN or +inf. What is left behind the last whole chunk has none. Whoever looks for the few
        best of many reads these first.
        """
        if len(x.shape) != 2 or x.shape[1] < PEAK_CHUNK:
            raise self.fail("peaks", f"chunks of {PEAK_CHUNK} of {x!r}")
        shape = (x.rows, x.shape[1] // PEAK_CHUNK * PEAK_LANES)
        return self.emit("peaks", (x,), [(shape, "f32")])[0]

    @op(rowwise=True)
    def reduce(
        self: Builder, x: Value, how: str = "sum", weights: np.ndarray | None = None
    ) -> Value:
        """Σ_j weights[j] · x[:, j] (or their mean) over the second axis; (s, k, d) -> (s, d)."""
        if len(x.shape) != 3 or how not in ("sum", "mean"):
            raise self.fail("reduce", f"{how} over the second axis of {x!r}")
        if weights is not None and weights.shape != (x.shape[1],):
            raise self.fail("reduce", f"{weights.shape} weights for {x!r}")
        extra = None if weights is None else Const(weights)
        return self.emit("reduce", (x, extra), [((x.rows, x.shape[2]), "f32")], how=how)[0]

    @op()
    def pool(self: Builder, x: Value, offsets: Value) -> Value:
        """The mean of each text's rows, summed in order; x (n, d), offsets (s + 1,) -> (s, d)."""
        if len(x.shape) != 2 or offsets.dtype != "i32" or len(offsets.shape) != 1:
            raise self.fail("pool", f"{x!r} at offsets {offsets!r}")
        return self.emit("pool", (x, offsets), [((offsets.rows + -1, x.shape[1]), "f32")])[0]


def _second(b: Builder, name: str, x: Value, y) -> Value | Const:
    """The second operand of an elementwise op, checked to broadcast over x."""
    if not isinstance(y, Value):
        y = Const(y)
        if y.shape not in ((), (1,), (x.shape[-1],)):
            raise b.fail(name, f"a constant {show(y.shape)} against {x!r}")
        return y
    shape: Shape = y.shape
    same = shape == x.shape
    column = len(shape) == len(x.shape) and shape[0] == x.rows and all(e == 1 for e in shape[1:])
    row = shape[0] == 1 and shape[1:] == x.shape[1:]
    if not (same or column or row) or y.dtype != "f32":
        raise b.fail(name, f"{y!r} against {x!r}")
    return y
