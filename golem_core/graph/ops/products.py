"""Rows of tables, and products with weights, plain and by expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.ops.catalogue import op
from golem_core.graph.values import Const, Value, show
from golem_core.graph.weights import Rotation, Weight

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


class RowOps:
    """Rows of tables and of activations."""

    @op(rowwise=True)
    def rows(
        self: Builder,
        table: Weight | Sequence[Weight],
        ids: Value,
        weights: Value | None = None,
        scale: float = 1.0,
    ) -> Value:
        """y[c] = scale · Σ_j weights[c, j] · table_j[ids[c, j]], added in order j.

        table: (V, d) of any block type, or one for each of k ids (a single table serves all k).
        ids: (n,) or (n, k) i32. weights: (n, k) or None for 1. -> (n, d). All embeddings.
        """
        tables = (table,) if isinstance(table, Weight) else tuple(table)
        k = 1 if len(ids.shape) == 1 else ids.shape[1]
        if ids.dtype != "i32" or len(ids.shape) > 2 or len(tables) not in (1, k):
            raise self.fail("rows", f"{len(tables)} table(s) and ids {ids!r}")
        if len({t.width for t in tables}) != 1 or any(len(t.shape) != 2 for t in tables):
            raise self.fail("rows", "tables must be matrices of one width")
        if weights is not None and weights.shape != (ids.rows, k):
            raise self.fail("rows", f"weights {weights!r} for ids {ids!r}")
        rotation = tables[0].rotation
        if any(t.rotation is not rotation for t in tables):
            raise self.fail("rows", "tables that were folded with different rotations")
        shape = ((ids.rows, tables[0].width), "f32")
        tables = tuple(map(_plain, tables))
        y = self.emit("rows", (ids, weights), [shape], weights=tables, scale=float(scale))[0]
        return y if rotation is None else self.hadamard(y, rotation, inverse=True)

    @op(rowwise=True)
    def overlay(self: Builder, x: Value, embeddings: Value, place: Value) -> Value:
        """y[c] = x[c] where place[c] < 0, else embeddings[place[c]]: media rows among tokens.

        x: (n, E). embeddings: (e, E). place: (n,) i32.
        """
        if embeddings.inner != x.inner or place.shape != (x.rows,) or place.dtype != "i32":
            raise self.fail("overlay", f"{embeddings!r} at {place!r} over {x!r}")
        return self.emit("overlay", (x, embeddings, place), [(x.shape, "f32")])[0]

    @op()
    def pick(self: Builder, x: Value, at: Value) -> Value:
        """y[i] = x[at[i]]: x (n, …), at (m,) i32 -> (m, …). The rows that are scored."""
        if at.dtype != "i32" or len(at.shape) != 1:
            raise self.fail("pick", f"rows {at!r} of {x!r}")
        return self.emit("pick", (x, at), [((at.rows, *x.inner), x.dtype)])[0]


class ProductOps:
    """Products with weights, plain and by expert."""

    @op(rowwise=True)
    def linear(self: Builder, x: Value, w: Weight) -> Value:
        """y[c, o] = scale[o] · Σ_i W[o, i] · x[c, i] + bias[o]; x (n, in) -> (n, out).

        scale and bias are the weight's own. Every family. A weight with a clip stands for
        clamp(W · clamp(x, clip[0], clip[1]), clip[2], clip[3]) + bias: gemma4's towers.
        """
        if len(w.shape) != 2 or len(x.shape) != 2 or x.shape[1] != w.width:
            raise self.fail(
                "linear",
                f"input {x!r}, weight {w.name} is (out {w.out}, in {w.width}): the weight's in "
                "must equal the input's last axis",
            )
        if w.clip is not None:
            return self._clipped(x, w)
        x = self._rotated(x, w)
        return self.emit("linear", (x,), [((x.rows, w.out), "f32")], weights=(_plain(w),))[0]

    def _clipped(self: Builder, x: Value, w: Weight) -> Value:
        """The product between its bounds, as ops of its own."""

        def bounded(value: Value, low: float, high: float) -> Value:
            return value if (low, high) == (-np.inf, np.inf) else self.clamp(value, low, high)

        y = self.linear(bounded(x, *w.clip[:2]), replace(w, clip=None, bias=None))
        y = bounded(y, *w.clip[2:])
        return y if w.bias is None else self.add(y, w.bias)

    @op(rowwise=True)
    def linear_by_expert(self: Builder, x: Value, w: Weight, experts: Value) -> Value:
        """y[c, j] = W[experts[c, j]] · x[c] (or x[c, j]); x (n, in) or (n, k, in) -> (n, k, out).

        w: (X, out, in). experts: (n, k) i32. Mixtures of experts.
        """
        if (
            len(w.shape) != 3
            or experts.dtype != "i32"
            or len(experts.shape) != 2
            or x.shape[-1] != w.width
            or (len(x.shape) == 3 and x.shape[1] != experts.shape[1])
            or w.clip is not None
        ):
            raise self.fail(
                "linear_by_expert", f"input {x!r}, experts {experts!r}, {w.name} {show(w.shape)}"
            )
        shape = (x.rows, experts.shape[1], w.out)
        x, weights = self._rotated(x, w), (_plain(w),)
        return self.emit("linear_by_expert", (x, experts), [(shape, "f32")], weights=weights)[0]

    def _rotated(self: Builder, x: Value, w: Weight) -> Value:
        """What a weight multiplies instead of x; equal rotations of one x are done once."""
        rotation = w.rotation
        if rotation is None:
            return x
        if rotation.turned is not None:
            a, b, c = rotation.turned
            x = self.flat(self.permute(self.reshape(x, (a, b, c)), (1, 0, 2)))
        return self.hadamard(x, rotation)

    @op(rowwise=True)
    def hadamard(self: Builder, x: Value, rotation: Rotation, inverse: bool = False) -> Value:
        """Each block of the last axis by a Hadamard matrix: H (s · x), inverse s · (H x).

        H is symmetric and its own inverse; see Rotation. Written by linear and rows where a weight
        was folded with a rotation.
        """
        block, signs = rotation.block, rotation.signs
        steps = {"sylvester": 2, "h4": 4}.get(rotation.kind)
        if steps is None or not _is_power(block, steps) or x.shape[-1] % block:
            raise self.fail("hadamard", f"blocks of {block} by {rotation.kind!r} of {x!r}")
        if signs is not None and signs.shape != (x.shape[-1],):
            raise self.fail("hadamard", f"signs {signs.shape} for {x!r}")
        return self.emit(
            "hadamard",
            (x, None if signs is None else Const(signs)),
            [(x.shape, "f32")],
            block=block,
            step=steps,
            inverse=inverse,
        )[0]

    @op(rowwise=True)
    def route(
        self: Builder,
        logits: Value,
        k: int,
        *,
        normalise: bool,
        scale: float = 1.0,
        expert_scale: np.ndarray | None = None,
    ) -> tuple[Value, Value]:
        """The k experts of each row and their weights: ((n, k) i32, (n, k) f32).

        Softmax over all X logits, the k largest (ties: the lower index) in descending order; if
        normalise, divided by max(their sum, 2^-14); then times scale and expert_scale[expert].
        """
        if len(logits.shape) != 2 or not 1 <= k <= logits.shape[1]:
            raise self.fail("route", f"the {k} largest of {logits!r}")
        shape = (logits.rows, k)
        extra = None if expert_scale is None else Const(expert_scale)
        return self.emit(
            "route",
            (logits, extra),
            [(shape, "i32"), (shape, "f32")],
            k=k,
            normalise=normalise,
            scale=float(scale),
        )

    @op(rowwise=True)
    def combine(self: Builder, y: Value, weights: Value) -> Value:
        """((w0·y0 + w1·y1) + …) in order of selection; y (n, k, d), weights (n, k) -> (n, d)."""
        if len(y.shape) != 3 or weights.shape != y.shape[:2]:
            raise self.fail("combine", f"{y!r} by {weights!r}")
        return self.emit("combine", (y, weights), [((y.rows, y.shape[2]), "f32")])[0]


def _plain(w: Weight) -> Weight:
    """The weight without its rotation, which was done to what it multiplies."""
    return w if w.rotation is None else replace(w, rotation=None)


def _is_power(number: int, base: int) -> bool:
    while number > 1 and number % base == 0:
        number //= base
    return number == 1
