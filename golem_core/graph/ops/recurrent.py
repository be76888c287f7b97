"""Ops along the columns of a conversation: what they remember between passes is a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.ops.catalogue import op
from golem_core.graph.values import Const, Dim, Extent, Value
from golem_core.state.declare import Matrix, Window

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


class RecurrentOps:
    """Convolutions over columns, and the delta rule."""

    @op()
    def conv1d(
        self: Builder,
        x: Value,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        window: str | None = None,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        start: str = "zeros",
    ) -> Value:
        """Causal convolution of rows: x (k·n, in), w (out, in / groups, K) -> (k·n / stride, out).

        y[o] = bias + Σ_j w[:, :, j] · x[o · stride + j · dilation - P], a cross-correlation whose
        last tap is the newest row; P = (K - 1) · dilation + 1 - stride rows lie before the first.
        With a window, the name of a state it declares, those are the last P rows of the slot's
        passes before; a run at index 0 has zeros there (start "zeros") or its first row repeated
        ("first"). Without a window all rows are one sequence that starts so. Output channel c of
        group ⌊c · groups / out⌋ reads that group's inputs.
        """
        if len(x.shape) != 2 or w.ndim != 3 or x.dtype != "f32":
            raise self.fail("conv1d", f"a kernel {w.shape} over {x!r}; wanted (out, in, K)")
        out, each, taps = w.shape
        if groups < 1 or each * groups != x.shape[1] or out % groups or not taps:
            raise self.fail("conv1d", f"a kernel {w.shape} in {groups} groups over {x!r}")
        if bias is not None and bias.shape != (out,):
            raise self.fail("conv1d", f"a bias {bias.shape} for {out} channels")
        before = (taps - 1) * dilation + 1 - stride
        if stride < 1 or dilation < 1 or before < 0:
            raise self.fail("conv1d", f"stride {stride} and dilation {dilation} of {taps} taps")
        if start not in ("zeros", "first"):
            raise self.fail("conv1d", f"start {start!r} is neither zeros nor first")
        rate = 0 if window is None else self._rate("conv1d", x)
        kept = ()
        if rate % stride:
            raise self.fail("conv1d", f"stride {stride} does not divide the rate {rate} of x")
        if window is not None and before:
            self.declare(Window(window, before, x.shape[1]))
            kept = (window,)
        consts = (Const(w), None if bias is None else Const(bias))
        return self.emit(
            "conv1d",
            (x, *consts),
            [((_share(self, x.rows, stride), out), "f32")],
            reads=kept,
            writes=kept,
            window=window if kept else None,
            rate=rate,
            before=before,
            stride=stride,
            dilation=dilation,
            groups=groups,
            start=start,
        )[0]

    @op()
    def delta_rule(
        self: Builder,
        q: Value,
        k: Value,
        v: Value,
        decay: Value,
        beta: Value,
        matrix: str,
        *,
        scale: float,
        heads: str = "tiled",
    ) -> Value:
        """The gated delta rule: q, k (n, NK, S), v (n, NV, Sv), decay, beta (n, NV) -> (n, NV, Sv).

        Column by column of a run, for every value head with a matrix M (Sv, S) of its own:
        M = e^decay · M; d = beta · (v - M k); M = M + d kᵀ; y = scale · M q. matrix names the state
        it declares, (NV, Sv, S) a slot; a run at index 0 starts from zeros. Value head h reads key
        head h mod NK (heads "tiled") or ⌊h · NK / NV⌋ ("grouped").
        """
        shapes = [x.shape for x in (q, k, v, decay, beta)]
        if [len(s) for s in shapes] != [3, 3, 3, 2, 2] or len({s[0] for s in shapes}) != 1:
            raise self.fail("delta_rule", f"q {q!r}, k {k!r}, v {v!r}, {decay!r}, {beta!r}")
        keys, size, (count, values) = k.shape[1], k.shape[2], v.inner
        if q.shape != k.shape or decay.inner != (count,) or beta.inner != (count,) or count % keys:
            raise self.fail("delta_rule", f"q {q!r}, k {k!r}, v {v!r}, {decay!r}, {beta!r}")
        if self._rate("delta_rule", q) != 1:
            raise self.fail("delta_rule", f"{q!r} has several rows for a column of the pass")
        if heads not in ("tiled", "grouped"):
            raise self.fail("delta_rule", f"heads {heads!r} are neither tiled nor grouped")
        self.declare(Matrix(matrix, count, values, size))
        return self.emit(
            "delta_rule",
            (q, k, v, decay, beta),
            [(v.shape, "f32")],
            reads=(matrix,),
            writes=(matrix,),
            matrix=matrix,
            scale=float(scale),
            grouped=heads == "grouped",
        )[0]

    def _rate(self: Builder, op: str, x: Value) -> int:
        """Rows of x that a column of the pass has."""
        rows = x.rows
        if isinstance(rows, Dim) and rows.divisor == 1 and not rows.const and len(rows.terms) == 1:
            symbol, factor = rows.terms[0]
            if symbol == "n":
                return factor
        raise self.fail(op, f"a state needs rows that are columns of the pass; x is {x!r}")


def _share(b: Builder, rows: Extent, stride: int) -> Extent:
    if isinstance(rows, Dim):
        return rows.exact_div(stride)
    if rows % stride:
        raise b.fail("conv1d", f"stride {stride} does not divide {rows} rows")
    return rows // stride
