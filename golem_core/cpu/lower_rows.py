"""Lowering of the ops that compute each row, or each head of a row, by itself."""

from __future__ import annotations

import math
from dataclasses import replace

from golem_core.cpu._executor import UNARY_KINDS
from golem_core.cpu.operands import Operands
from golem_core.cpu.records import Operand, Record
from golem_core.graph.ops import PEAK_CHUNK, PEAK_LANES
from golem_core.graph.program import Node
from golem_core.graph.values import Const, Extent, Value


class RowLowering(Operands):
    """One method an op: the node's operands as a row record's."""

    def row(
        self,
        node: Node,
        like: Value,
        ins: list[Operand | None],
        *,
        spans: int = 1,
        width: int | None = None,
        floats: tuple[float, ...] = (),
        ints: tuple[int, ...] = (),
        **more,
    ) -> Record:
        """A record over the rows of ``like`` that makes all of the node's outputs."""
        width = like.width // spans if width is None else width
        outs = [self.operand(y, spans) for y in node.outputs]
        record = Record(
            node.op, node.site, like.rows, spans, width, ins, outs, floats, ints, **more
        )
        return self.add(record)

    # ---- rows and copies

    def copy(self, node: Node):
        self.copy_into(node.inputs[0], node.outputs[0], node.site)

    def concat(self, node: Node):
        (y,), axis = node.outputs, node.attrs["axis"]
        at: Extent = 0
        for x in node.inputs:
            if axis:
                self.copy_into(x, y, node.site, at * y.strides[axis])
                at += x.shape[axis]
            else:
                self.copy_into(x, y, node.site, before=at)
                at = at + x.rows

    def rows(self, node: Node):
        ids, weights = node.inputs
        (y,) = node.outputs
        k = 1 if len(ids.shape) == 1 else ids.shape[1]
        tables = tuple(node.weights if len(node.weights) == k else node.weights * k)
        ins = [self.strided(ids), None if weights is None else self.strided(weights)]
        scale, scratch = (node.attrs["scale"],), y.width * 4
        self.row(node, y, ins, floats=scale, ints=(k,), tables=tables, scratch=scratch)

    def overlay(self, node: Node):
        x, media, place = node.inputs
        ins = [self.operand(self.even(x)), self.operand(self.even(media)), self.strided(place)]
        self.row(node, node.outputs[0], ins, extents={0: media.rows}, elsewhere=(1,))

    def pick(self, node: Node):
        x, at = node.inputs
        ins = [self.operand(self.even(x)), self.strided(at)]
        self.row(node, node.outputs[0], ins, extents={0: x.rows}, elsewhere=(0,))

    # ---- norms and positions

    def norm(self, node: Node):
        x, *vectors = node.inputs
        spans = math.prod(x.inner[:-1])
        ins = [self.operand(self.even(x, spans), spans), *map(self.constant, vectors)]
        floats = (node.attrs["eps"], node.attrs.get("floor", 0.0))
        self.row(node, x, ins, spans=spans, floats=floats)

    def hadamard(self, node: Node):
        x, signs = node.inputs
        spans = math.prod(x.inner[:-1])
        ins = [self.operand(self.even(x, spans), spans), self.constant(signs)]
        ints = (node.attrs["block"], node.attrs["step"], int(node.attrs["inverse"]))
        self.row(node, x, ins, spans=spans, ints=ints)

    def softmax(self, node: Node):
        (x,) = node.inputs
        spans = math.prod(x.inner[:-1])
        self.row(node, x, [self.operand(self.even(x, spans), spans)], spans=spans)

    def rope_table(self, node: Node):
        positions, freq = node.inputs
        arrays, scale = [freq.array, node.attrs["axis"]], (node.attrs["scale"],)
        ins = [self.strided(positions)]
        self.row(node, node.outputs[0], ins, floats=scale, arrays=arrays)

    def rope(self, node: Node):
        x, table = node.inputs
        spans = x.shape[1]
        angles = Operand(self.buffer(table), table.offset * 4, table.strides[0])
        ins = [self.operand(self.even(x, spans), spans), angles]
        adjacent = int(node.attrs["pairing"] == "adjacent")
        self.row(node, x, ins, spans=spans, ints=(adjacent, node.attrs["parts"], table.shape[1]))

    def store(self, node: Node):
        for side, x in enumerate(node.inputs):
            spans = x.shape[1]
            ins = [self.operand(self.even(x, spans), spans)]
            more = {"ring": node.attrs["ring"], "writes_ring": True}
            self.row(node, x, ins, spans=spans, ints=(side,), **more)

    # ---- elementwise

    def elementwise(self, node: Node):
        x, *others = node.inputs
        alike = [v for v in (x, *others) if isinstance(v, Value) and v.inner == x.inner]
        vectors = any(isinstance(v, Const) and v.array.size > 1 for v in others)
        flat = all(v.rows_contiguous for v in alike) and not (vectors and len(x.inner) > 1)
        spans = 1 if flat else math.prod(x.inner[:-1])
        x, *others = (
            self.even(v, spans) if isinstance(v, Value) and v.inner == x.inner else v
            for v in (x, *others)
        )
        attrs = node.attrs
        floats = (attrs["low"], attrs["high"]) if node.op == "clamp" else (attrs.get("cap", 0.0),)
        ints = (UNARY_KINDS[attrs["kind"]],) if "kind" in attrs else ()
        ins = [self.operand(x, spans), *(self.second(v, x, spans) for v in others)]
        self.row(node, x, ins, spans=spans, floats=floats, ints=ints)

    # ---- choices and sums

    def route(self, node: Node):
        logits, extra = node.inputs
        ins = [self.operand(self.even(logits)), self.constant(extra)]
        ints = (node.attrs["k"], int(node.attrs["normalise"]))
        scale, scratch = (node.attrs["scale"],), logits.width * 4
        self.row(node, logits, ins, floats=scale, ints=ints, scratch=scratch)

    def combine(self, node: Node):
        y, weights = node.inputs
        y = y if y.strides[2] == 1 else self.copied(y)
        ins = [self.strided(y), self.strided(weights)]
        self.row(node, y, ins, width=y.shape[2], ints=(y.shape[1],))

    def top_k(self, node: Node):
        (x,) = node.inputs
        self.row(node, x, [self.operand(self.even(x))], ints=(node.attrs["k"],))

    def peaks(self, node: Node):
        (x,), (y,) = node.inputs, node.outputs
        chunks = y.width // PEAK_LANES
        logits = replace(self.operand(self.even(x)), span=PEAK_CHUNK)
        self.row(node, x, [logits], spans=chunks, width=PEAK_CHUNK)

    def reduce(self, node: Node):
        x, weights = node.inputs
        x = x if x.strides[2] == 1 else self.copied(x)
        ints = (x.shape[1], int(node.attrs["how"] == "mean"))
        self.row(node, x, [self.strided(x), self.constant(weights)], width=x.shape[2], ints=ints)

    def pool(self, node: Node):
        x, offsets = node.inputs
        ins = [self.operand(self.even(x)), self.strided(offsets)]
        self.row(node, node.outputs[0], ins, extents={0: x.rows}, elsewhere=(0, 1))
