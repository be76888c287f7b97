"""Norms, rotary positions and attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.ops.catalogue import op
from golem_core.graph.values import Const, Value
from golem_core.state.declare import Ring

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


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


def _vector(b: Builder, name: str, x: Value, vector: np.ndarray | None) -> None:
    if vector is not None and vector.shape != (x.shape[-1],):
        raise b.fail(name, f"a weight {vector.shape} for the last axis of {x!r}")
