"""What every op means: its operands, the shape it makes, its formula, who uses it.

The classes here are mixins of the builder: an op is a method that checks its operands where the
author wrote it and appends a node. Everything is f32 in, f32 out, accumulated in f32 unless said.
An op that is row-wise reads only its own row, so picking rows may move before it. ``OPS`` lists
them; the executors are tested against golem_core.reference op by op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.values import (
    Const,
    Dim,
    Shape,
    Value,
    contiguous_strides,
    show,
)
from golem_core.graph.weights import Weight
from golem_core.state.declare import Ring

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


@dataclass(frozen=True)
class Op:
    """An entry of the catalogue. rowwise: row i of the result depends on row i alone."""

    name: str
    rowwise: bool
    doc: str


OPS: dict[str, Op] = {}

UNARY = ("silu", "sigmoid", "tanh", "relu", "elu", "exp", "softplus")
UNARY += ("gelu_tanh", "gelu_erf", "gelu_quick")


def op(*, rowwise: bool = False) -> Callable:
    """Enters a builder method into the catalogue."""

    def enter(method):
        OPS[method.__name__] = Op(method.__name__, rowwise, method.__doc__)
        return method

    return enter


@dataclass(frozen=True, eq=False)
class Rope:
    """Angles of a rotary embedding: angle i of a column = positions[axis[i]] * freq[i].

    freq: (p,) f32, base, linear and YaRN scaling and frequency factors already in it (0: the pair
    does not turn). axis: (p,) which of several positions, None for the only one. pairing: "halves"
    turns (i, i + p), "adjacent" (2i, 2i + 1). parts: the head is cut in that many pieces, each
    with its share of freq. scale multiplies sine and cosine.
    """

    freq: np.ndarray
    pairing: str = "halves"
    axis: np.ndarray | None = None
    parts: int = 1
    scale: float = 1.0

    @classmethod
    def of(
        cls,
        width: int,
        base: float,
        *,
        pairing: str = "halves",
        scale: float = 1.0,
        factors: np.ndarray | None = None,
    ) -> Rope:
        """The usual case: width / 2 pairs, freq_i = scale * base^(-2i / width) / factors_i."""
        freq = scale * base ** (-np.arange(0, width, 2, dtype=np.float64) / width)
        if factors is not None:
            if factors.shape != freq.shape:
                raise ValueError(f"{factors.shape} rope factors for {freq.shape} pairs")
            freq = freq / factors
        return cls(freq.astype(np.float32), pairing)


class ViewOps:
    """Views: the same elements under another shape. They cost nothing."""

    def heads(self: Builder, x: Value, count: int) -> Value:
        """(n, h·d) -> (n, h, d)."""
        if len(x.shape) != 2 or x.shape[1] % count:
            raise self.fail("heads", f"{x!r} cannot be cut into {count} heads")
        return self.reshape(x, (count, x.shape[1] // count))

    def flat(self: Builder, x: Value) -> Value:
        """(n, a, b …) -> (n, a·b·…); copies where the elements of a row do not lie together."""
        return self.reshape(x, (x.width,))

    def reshape(self: Builder, x: Value, inner: Sequence[int]) -> Value:
        """Another cut of the inner axes: (n, *inner)."""
        inner = tuple(inner)
        if math.prod(inner) != x.width:
            raise self.fail("reshape", f"{x!r} cannot become {show((x.rows, *inner))}")
        strides = _reshaped_strides(x, inner)
        if strides is None:
            x = self.copy(x)
            strides = contiguous_strides((x.rows, *inner))
        return self.view("reshape", x, (x.rows, *inner), 0, strides)

    def slice(self: Builder, x: Value, start: int, stop: int, axis: int = -1) -> Value:
        """Elements start .. stop-1 of an axis; of the outermost only where it is no symbol."""
        axis %= len(x.shape)
        extent = x.shape[axis]
        if isinstance(extent, Dim) or not 0 <= start < stop <= extent:
            raise self.fail("slice", f"{start} to {stop} of axis {axis} of {x!r}")
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
        return self.view("slice", x, shape, start * x.strides[axis], x.strides)

    def split(self: Builder, x: Value, sizes: Sequence[int], axis: int = -1) -> tuple[Value, ...]:
        """Consecutive slices of the given sizes; they must use the axis up."""
        axis %= len(x.shape)
        if sum(sizes) != x.shape[axis]:
            raise self.fail("split", f"sizes {tuple(sizes)} do not add up to axis {axis} of {x!r}")
        ends = np.cumsum(sizes).tolist()
        return tuple(
            self.slice(x, end - size, end, axis) for end, size in zip(ends, sizes, strict=True)
        )

    def rows_of(self: Builder, x: Value, factor: int) -> Value:
        """(s, k, d) -> (k·s, d): the second axis joins the outermost."""
        if len(x.shape) < 2 or x.shape[1] != factor or not x.rows_contiguous or x.is_view:
            raise self.fail("rows_of", f"{x!r} cannot give {factor} rows a row")
        shape = (x.rows * factor, *x.shape[2:])
        return self.view("rows_of", x, shape, 0, contiguous_strides(shape))

    def grouped(self: Builder, x: Value, factor: int) -> Value:
        """(k·s, d) -> (s, k, d): k consecutive rows become one."""
        if x.is_view:
            x = self.copy(x)
        rows = x.rows.exact_div(factor) if isinstance(x.rows, Dim) else x.rows // factor
        if not isinstance(x.rows, Dim) and x.rows % factor:
            raise self.fail("grouped", f"{factor} does not divide the rows of {x!r}")
        shape = (rows, factor, *x.inner)
        return self.view("grouped", x, shape, 0, contiguous_strides(shape))

    @op(rowwise=True)
    def copy(self: Builder, x: Value) -> Value:
        """The same elements, lying together."""
        return self.emit("copy", (x,), [(x.shape, x.dtype)])[0]

    def permute(self: Builder, x: Value, order: Sequence[int]) -> Value:
        """The inner axes in another order: result axis i is inner axis order[i] of x. Copies."""
        if sorted(order) != list(range(len(x.inner))):
            raise self.fail("permute", f"order {tuple(order)} of the inner axes of {x!r}")
        axes = [0, *(o + 1 for o in order)]
        shape = tuple(x.shape[a] for a in axes)
        turned = self.view("permute", x, shape, 0, tuple(x.strides[a] for a in axes))
        return self.copy(turned)

    @op()
    def concat(self: Builder, parts: Sequence[Value], axis: int = -1) -> Value:
        """The parts one after the other along an axis."""
        axis %= len(parts[0].shape)
        for x in parts[1:]:
            if (*x.shape[:axis], *x.shape[axis + 1 :]) != (
                *parts[0].shape[:axis],
                *parts[0].shape[axis + 1 :],
            ) or x.dtype != parts[0].dtype:
                raise self.fail("concat", f"{x!r} does not continue {parts[0]!r} on axis {axis}")
        extent = parts[0].shape[axis]
        for x in parts[1:]:
            extent = extent + x.shape[axis]
        shape = (*parts[0].shape[:axis], extent, *parts[0].shape[axis + 1 :])
        return self.emit("concat", parts, [(shape, parts[0].dtype)], axis=axis)[0]


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
        shape = ((ids.rows, tables[0].width), "f32")
        return self.emit("rows", (ids, weights), [shape], weights=tables, scale=float(scale))[0]

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

        scale and bias are the weight's own. Every family.
        """
        if len(w.shape) != 2 or len(x.shape) != 2 or x.shape[1] != w.width:
            raise self.fail(
                "linear",
                f"input {x!r}, weight {w.name} is (out {w.out}, in {w.width}): the weight's in "
                "must equal the input's last axis",
            )
        return self.emit("linear", (x,), [((x.rows, w.out), "f32")], weights=(w,))[0]

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
        ):
            raise self.fail(
                "linear_by_expert", f"input {x!r}, experts {experts!r}, {w.name} {show(w.shape)}"
            )
        shape = (x.rows, experts.shape[1], w.out)
        return self.emit("linear_by_expert", (x, experts), [(shape, "f32")], weights=(w,))[0]

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


class AttentionOps:
    """Norms, rotary positions and attention."""

    @op(rowwise=True)
    def rms_norm(
        self: Builder, x: Value, weight: np.ndarray | None, eps: float, floor: float = 0.0
    ) -> Value:
        """y = x / max(sqrt(mean(x²) + eps), floor) · weight over the last axis.

        The sum of squares is taken in f64. On (n, H, D) it norms each head by itself.
        """
        _vector(self, "rms_norm", x, weight)
        return self.emit(
            "rms_norm",
            (x, None if weight is None else Const(weight)),
            [(x.shape, "f32")],
            eps=float(eps),
            floor=float(floor),
        )[0]

    @op(rowwise=True)
    def layer_norm(
        self: Builder,
        x: Value,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
    ) -> Value:
        """y = (x - mean) / sqrt(mean((x - mean)²) + eps) · weight + bias over the last axis."""
        _vector(self, "layer_norm", x, weight)
        _vector(self, "layer_norm", x, bias)
        consts = (None if v is None else Const(v) for v in (weight, bias))
        return self.emit("layer_norm", (x, *consts), [(x.shape, "f32")], eps=float(eps))[0]

    @op(rowwise=True)
    def rope_table(self: Builder, positions: Value, spec: Rope) -> Value:
        """(n, p, 2): cosine and sine of positions[c, axis_i] · freq_i (in f32), times the scale.

        Written by rope; one a pass serves all layers of the same angles.
        """
        axes = 1 if len(positions.shape) == 1 else positions.shape[1]
        axis = np.zeros(len(spec.freq), np.int32) if spec.axis is None else spec.axis
        if positions.dtype != "i32" or axis.max(initial=0) >= axes:
            raise self.fail("rope", f"positions {positions!r} for {int(axis.max()) + 1} axes")
        return self.emit(
            "rope_table",
            (positions, Const(spec.freq)),
            [((positions.rows, len(spec.freq), 2), "f32")],
            axis=np.ascontiguousarray(axis, np.int32),
            scale=float(spec.scale),
        )[0]

    @op(rowwise=True)
    def rope(self: Builder, x: Value, positions: Value, spec: Rope) -> Value:
        """Turns pairs (a, b) of each head: (a cos - b sin, a sin + b cos); the rest is copied.

        x: (n, H, D). With parts = 2 each half of the head is turned by its half of the angles.
        """
        pairs, parts = len(spec.freq), spec.parts
        if len(x.shape) != 3 or pairs % parts or 2 * pairs > x.shape[2] or x.shape[2] % parts:
            raise self.fail("rope", f"{pairs} pairs in {parts} part(s) of the heads of {x!r}")
        if spec.pairing not in ("halves", "adjacent"):
            raise self.fail("rope", f"pairing {spec.pairing!r} is neither halves nor adjacent")
        table = self.rope_table(positions, spec)
        return self.emit("rope", (x, table), [(x.shape, "f32")], pairing=spec.pairing, parts=parts)[
            0
        ]

    @op()
    def attend(
        self: Builder,
        q: Value,
        k: Value | None = None,
        v: Value | None = None,
        ring: Ring | None = None,
        *,
        scale: float,
        back: int | None = None,
        ahead: int | None = 0,
        step: int = 1,
        until: Value | None = None,
        offsets: Value | None = None,
        group: int | None = None,
        rel: np.ndarray | None = None,
        softcap: float | None = None,
    ) -> Value:
        """Softmax attention over an interval of keys in one sequence; (n, H, D) -> (n, H, Dv).

        With i a query's index and j a key's: keys lo(i) ≤ j ≤ hi(i), where
        lo = (⌊i / step⌋ + 1) · step - 1 - back (None: 0) and hi = until[c], else i + ahead
        (None: the end). s = scale · (q·k + q·rel[i - j]), s = softcap · tanh(s / softcap), softmax,
        weighted sum of v. Query head h reads key head ⌊h · KV / H⌋.

        With a ring, k (n, KV, D) and v (n, KV, Dv) are stored first and the keys are the slot's;
        without k and v the ring of another attend is read. Without a ring the keys are this pass's
        rows: of the same text (offsets, (s + 1,) i32), of the same ``group`` rows, or all.
        """
        self._check_attend(q, k, v, ring, offsets, group, until)
        if rel is not None and rel.shape[1:] != q.inner:
            raise self.fail("attend", f"rel {rel.shape} for queries {q!r}")
        dv = v.shape[2] if v is not None else ring.v
        reads = () if ring is None else (ring.name,)
        return self.emit(
            "attend",
            (q, k, v, until, offsets, None if rel is None else Const(rel)),
            [((q.rows, q.shape[1], dv), "f32")],
            reads=reads,
            writes=reads if k is not None else (),
            ring=None if ring is None else ring.name,
            scale=float(scale),
            back=back,
            ahead=ahead,
            step=step,
            group=group,
            softcap=None if softcap is None else float(softcap),
        )[0]

    def _check_attend(self: Builder, q, k, v, ring, offsets, group, until):
        if len(q.shape) != 3 or (k is None) != (v is None):
            raise self.fail("attend", f"queries {q!r}, keys {k!r}, values {v!r}")
        if ring is None and k is None:
            raise self.fail("attend", "neither a ring nor keys of this pass")
        if ring is not None:
            self.state("attend", ring.name)
            if offsets is not None or group is not None:
                raise self.fail("attend", "a ring's sequences are its slots: no offsets, no group")
        heads, d = (ring.heads, ring.k) if k is None else k.shape[1:]
        if d != q.shape[2] or q.shape[1] % heads:
            raise self.fail("attend", f"queries {q!r} on {heads} key heads of {d}")
        if k is not None and (k.shape[:2] != v.shape[:2] or k.rows != q.rows):
            raise self.fail("attend", f"queries {q!r}, keys {k!r}, values {v!r}")
        if ring is not None and k is not None:
            got = (k.shape[1], k.shape[2], v.shape[2])
            if got != (ring.heads, ring.k, ring.v):
                raise self.fail(
                    "attend",
                    f"ring {ring.name!r} was declared with {ring.heads} heads of {ring.k} and "
                    f"{ring.v}, k and v have {got[0]} heads of {got[1]} and {got[2]}",
                )
        if until is not None and (until.shape != (q.rows,) or until.dtype != "i32"):
            raise self.fail("attend", f"until {until!r} for queries {q!r}")


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


def _vector(b: Builder, name: str, x: Value, vector: np.ndarray | None) -> None:
    if vector is not None and vector.shape != (x.shape[-1],):
        raise b.fail(name, f"a weight {vector.shape} for the last axis of {x!r}")


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


def _reshaped_strides(x: Value, inner: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show x's rows in another cut, None where only a copy can."""
    if x.rows_contiguous:
        return (x.strides[0], *contiguous_strides((1, *inner))[1:])
    # One axis cut in two, the others kept: the split halves share the old axis's stride.
    strides: list[int] = []
    left = list(zip(x.inner, x.strides[1:], strict=True))
    want = list(inner)
    while left:
        size, stride = left.pop(0)
        taken = []
        while math.prod(taken) < size and want:
            taken.append(want.pop(0))
        if math.prod(taken) != size:
            return None
        for i in range(len(taken)):
            strides.append(stride * math.prod(taken[i + 1 :]))
    return (x.strides[0], *strides) if not want else None
