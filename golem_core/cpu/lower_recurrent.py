"""Lowering of the ops that run along the columns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.cpu._executor import UNARY_KINDS
from golem_core.cpu.records import Record
from golem_core.graph.program import Node

if TYPE_CHECKING:
    from golem_core.cpu.lower import Lowering

LANES = 16  # of f32, as in simd.h
PIECE, COLUMNS = 64, 16  # rows and columns of a block of the delta rule, as in delta.h


def conv1d(lowering: Lowering, node: Node) -> None:
    """A convolution; where channels mix, the window moves on in a record of its own."""
    x, w, bias = node.inputs
    (y,), a = node.outputs, node.attrs
    out, each, taps = w.shape
    alone = a["groups"] == out == x.width
    unary = a.get("unary")
    ints = (
        *(out, taps, a["stride"], a["dilation"], a["groups"], a["rate"], a["before"]),
        int(a["start"] == "first"),
        -1 if unary is None else UNARY_KINDS[unary],
        x.width,
    )
    x = lowering.even(x)
    ins, outs = [lowering.operand(x)], [lowering.operand(y)]
    kept = {"ring": a["window"], "writes_ring": a["window"] is not None}
    record = Record("conv1d", node.site, x.rows, 1, x.width, ins, outs, ints=ints, whole=True)
    record.arrays = [_kernel(w.array, a["groups"], alone)]
    if bias is not None:
        record.arrays.append(bias.array)
    rows = x.width if alone else each  # of zeros; and a pointer a tap
    record.scratch = -(-rows * 4 // 64) * 64 + -(-taps * 8 // 64) * 64
    record.ring, record.reads_ring = a["window"], a["window"] is not None
    record.writes_ring = alone and record.reads_ring
    lowering.add(record)
    if record.reads_ring and not alone:
        moved = Record("window", node.site, x.rows, 1, x.width, ins, ints=ints, whole=True, **kept)
        lowering.add(moved)


def delta_rule(lowering: Lowering, node: Node) -> None:
    """A record over (run, value head, piece of its values); it keeps the matrix itself."""
    q, k, v, *gates = node.inputs
    (y,), a = node.outputs, node.attrs
    keys, size, (heads, values) = k.shape[1], k.shape[2], v.inner
    ins = [
        *(lowering.operand(lowering.even(x, x.shape[1]), x.shape[1]) for x in (q, k, v)),
        *(lowering.operand(lowering.even(x, heads), heads) for x in gates),
    ]
    ints = (keys, heads, size, values, int(a["grouped"]))
    outs, floats = [lowering.operand(y, heads)], (a["scale"],)
    record = Record("delta_rule", node.site, y.rows, 1, y.width, ins, outs, floats, ints)
    record.ring, record.reads_ring, record.writes_ring = a["matrix"], True, True
    record.whole = True
    record.scratch = (2 * -(-size // LANES) * LANES + 2 * PIECE) * COLUMNS * 4
    lowering.add(record)


def _kernel(w: np.ndarray, groups: int, alone: bool) -> np.ndarray:
    """(taps, channels), or (groups, taps, in / groups, out / groups padded to whole vectors)."""
    out, each, taps = w.shape
    if alone:
        return w[:, 0].T
    by_group = w.reshape(groups, out // groups, each, taps).transpose(0, 3, 2, 1)
    return np.pad(by_group, ((0, 0), (0, 0), (0, 0), (0, -(out // groups) % LANES)))
