"""Lowering of products with float weights over many columns: panels, gemm, conv2d.

Programs without states (towers, encoders, decoders of pictures) run all their float products so;
those of a conversation stay with the kernels that are made for a few columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_core.cpu.records import Buffer, Operand, Record, SegmentCode
from golem_core.graph.plan import Segment
from golem_core.graph.program import Node
from golem_core.graph.values import Value
from golem_core.graph.weights import Weight

if TYPE_CHECKING:
    from golem_core.cpu.lower import Lowering

F32, F16, BF16 = 0, 1, 30  # GGML's type ids
UNPACKED = 384 << 10  # bytes of weights a unit keeps at hand: they stay in a core's second cache
GROUPS = 8  # groups of a unit at most, as in gemm.h
MAP_PANELS = 4  # panels of output pixels a unit of conv2d gathers, as in conv2d.h
GROUP_LINE = 64  # bytes of a line of 16 rows


def dense_types(panel: tuple[int, bool, bool]) -> set[int]:
    """Weights whose products go through panels. Where linear takes two groups of F16 at once it is
    as fast and need not unpack them."""
    return {F32, BF16} if panel[2] else {F32, F16, BF16}


def is_dense(s: Segment, types: set[int]) -> bool:
    """Whether a product is one of float weights, both of one type where it is a pair."""
    kinds = {w.type.id for w in (s.weight, s.pair) if w is not None}
    return len(kinds) == 1 and kinds <= types


def gemm(lowering: Lowering, node: Node, segments: list[Segment]) -> None:
    """Products of one x as records over its panels.

    Where BF16 meets BF16, what leaves the program is not rounded on its way: that costs little, and
    makes a tower's rows closer to those of f32.
    """
    bf16 = lowering.panel[1]
    rounded = [
        s
        for s in segments
        if bf16 and s.weight.type.id == BF16 and s.output.root.id not in lowering.pinned
    ]
    for some, pairs in ((rounded, True), ([s for s in segments if s not in rounded], False)):
        if some:
            _products(lowering, node, some, pairs)


def _products(lowering: Lowering, node: Node, segments: list[Segment], pairs: bool) -> None:
    x = node.inputs[0]
    panels = _panels(lowering, x, lowering.panel[0], pairs)
    ins = [None, panels] if pairs else [panels, None]
    rows = segments[0].output.rows
    record = Record("gemm", node.site, rows, 1, x.width, ins, ints=(int(pairs),), whole=True)
    lines = (x.width + 1) // 2 if pairs else x.width
    for s in segments:
        code = lowering.segment(s)
        each = lines * GROUP_LINE * (1 if s.pair is None else 2)
        code.chunk = _chunk(code, UNPACKED // each, lowering.threads)
        record.segments.append(code)
        if s.weight.type.id != F32:
            record.scratch = max(record.scratch, code.chunk * each)
    lowering.add(record)


def _chunk(code: SegmentCode, fitting: int, threads: int) -> int:
    """Groups of a unit: an even number where there are enough for every worker."""
    most = min(fitting, GROUPS, -(-code.groups // (2 * threads)))
    return max(2, most // 2 * 2)


def _panels(lowering: Lowering, x: Value, size: int, pairs: bool) -> Operand:
    """x packed for gemm, made once: of f32, or of BF16 in pairs."""
    key = (x.root.id, x.shape, x.offset, x.strides, "pairs" if pairs else "panels")
    if key not in lowering.packed:
        x = lowering.even(x)
        row = ((x.width + 1) // 2 if pairs else x.width) * 4
        made = Buffer(f"{x.name} packed", x.rows, row, spare=size * row)
        outs = [None, Operand(made)] if pairs else [Operand(made), None]
        lowering.add(Record("pack", x.name, x.rows, 1, x.width, [lowering.operand(x)], outs))
        lowering.packed[key] = made
    return Operand(lowering.packed[key])


def conv2d(lowering: Lowering, node: Node) -> None:
    """A convolution of a map: its kernel's matrix times what each output pixel sees."""
    (x,), (y,), (w,), a = node.inputs, node.outputs, node.weights, node.attrs
    x = lowering.even(x)
    high, wide = a["size"]
    ints = (*x.inner, high, wide, a["stride"], a["pad"], a["up"], y.shape[1])
    ins = [lowering.operand(x)]
    record = Record("conv2d", node.site, y.rows, 1, y.width, ins, ints=ints, whole=True)
    record.extents = {len(ints): x.rows}
    record.segments = [_map_segment(lowering, w, y)]
    record.scratch = MAP_PANELS * lowering.panel[0] * w.width * 4
    lowering.add(record)


def _map_segment(lowering: Lowering, w: Weight, y: Value) -> SegmentCode:
    """Rows of the store are pixels."""
    return SegmentCode(w, None, None, [], Operand(lowering.buffer(y), y.offset * 4, w.out))
