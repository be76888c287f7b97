"""From planned ops to records: one method an op, and where activations are quantised."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from golem_core.cpu._executor import SPLIT
from golem_core.cpu.records import Q8_BYTES, Buffer, FinishCode, Operand, Record, SegmentCode
from golem_core.graph.plan import Plan, Segment
from golem_core.graph.program import Node, Program
from golem_core.graph.values import Const, Dim, Extent, ProgramError, Value, extent_at
from golem_core.graph.weights import Weight
from golem_core.state import States
from golem_core.state.declare import Ring

FLOAT_TYPES = (0, 1, 30)  # F32, F16, BF16: their products take f32 activations
COLUMNS = 16  # columns a product kernel takes at once, as in products.h
CHUNK_BYTES = 256 << 10  # weights a unit reads at most: they stay in a core's cache for all columns
CHUNK = 512  # keys of a chunk, as in attend.h
STAGED = 64  # groups of a chunk at most where results are quantised in the store


class Constants:
    """Small arrays of a plan in one block, each on a 64-byte boundary."""

    def __init__(self):
        self._parts: list[np.ndarray] = []
        self._places: dict[bytes, int] = {}
        self.size = 0

    def place(self, array: np.ndarray) -> int:
        """Byte offset of the array's elements."""
        data = np.ascontiguousarray(array)
        key = data.tobytes()
        if key not in self._places:
            self._places[key] = self.size
            self._parts.append(data)
            self.size += -(-max(data.nbytes, 4) // 64) * 64
        return self._places[key]

    def block(self) -> np.ndarray:
        """All of them as bytes."""
        whole = np.zeros(self.size, np.uint8)
        for key, at in self._places.items():
            whole[at : at + len(key)] = np.frombuffer(key, np.uint8)
        return whole


class Lowering:
    """Makes the records of a plan. fuse: quantise in the stores of what makes the activations."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        *,
        threads: int,
        maxima: dict[str, int],
        fuse: bool,
        group_bytes: Callable[[Weight], int],
        states: States,
        attend_scratch: Callable[[int, int, int, int], int],
        attend_part_bytes: Callable[[int, int], int],
    ):
        self.program = program
        self.threads = threads
        self.maxima = maxima
        self.fuse = fuse
        self.group_bytes = group_bytes
        self.states = states
        self.attend_scratch = attend_scratch
        self.attend_part_bytes = attend_part_bytes
        self.constants = Constants()
        self.buffers: dict[int, Buffer] = {}
        self.inputs: dict[str, Buffer] = {}
        self.values: list[Value] = []  # roots that have a buffer
        self.records: list[Record] = []
        self._codes: dict[tuple, Buffer] = {}
        self._makers: dict[int, Record] = {}  # buffer -> the record that made it, by id()
        self._pinned = {v.root.id for v in plan.outputs.values()}
        for node in plan.nodes:
            _OPS[node.op](self, node)
        for value in plan.outputs.values():
            self.buffer(value).pinned = True
        self._drop_unread()

    # ---- operands

    def buffer(self, value: Value) -> Buffer:
        """The memory of a value's root."""
        root = value.root
        if root.id not in self.buffers:
            made = Buffer(root.name, root.rows, root.width * 4, root.id in self._pinned)
            self.buffers[root.id] = made
            self.values.append(root)
            if root.node is None:
                self.inputs[root.name] = made
        return self.buffers[root.id]

    def operand(self, value: Value, spans: int = 1) -> Operand:
        """A value whose rows are ``spans`` pieces of consecutive elements."""
        span = _span_stride(value, spans)
        if span is None:
            raise ProgramError(f"{value!r} has rows that are no {spans} even pieces")
        return Operand(self.buffer(value), value.offset * 4, value.strides[0], span)

    def constant(self, array: np.ndarray) -> Operand:
        return Operand(None, self.constants.place(array))

    def second(self, operand: Value | Const | None, like: Value, spans: int) -> Operand | None:
        """An operand that broadcasts over ``like``: same shape, (rows, 1), (1, d), (d,), number."""
        if operand is None:
            return None
        if isinstance(operand, Const):
            at = self.constants.place(operand.array)
            return Operand(None, at, 0, 0, 1 if operand.array.size > 1 else 0)
        if operand.shape == like.shape:
            return self.operand(operand, spans)
        row = 0 if operand.shape[0] == 1 else operand.strides[0]
        if all(e == 1 for e in operand.inner) and operand.inner != like.inner:
            return Operand(self.buffer(operand), operand.offset * 4, row, 0, 0)
        return Operand(
            self.buffer(operand), operand.offset * 4, row, _span_stride(operand, spans) or 0
        )

    def even(self, value: Value, spans: int) -> Value:
        """The value itself, or a copy of it whose rows are that many even pieces."""
        if value.strides[-1] == 1 and _span_stride(value, spans) is not None:
            return value
        copy = Value(
            -len(self.buffers) - 1, f"{value.name} copied", value.shape, value.dtype, value
        )
        self._copy_record(value, copy, "copy")
        return copy

    def add(self, record: Record) -> Record:
        self.records.append(record)
        for buffer in record.written():
            self._makers[id(buffer)] = record
        return record

    # ---- rows

    def _copy_record(self, x: Value, y: Value, site: str, offset: int = 0, before=None, whole=None):
        """Elements of x into y (or into ``whole``, whose strides are y's, from an offset on)."""
        if len(x.shape) > 4:
            raise ProgramError(f"{site}: a copy of {len(x.inner)} inner axes; at most 3")
        target = y if whole is None else whole
        pad = (1,) * (3 - len(x.inner))
        strides_in = (*(0 for _ in pad), *x.strides[1:])
        strides_out = (*(0 for _ in pad), *target.strides[1:])
        sizes = (*pad, *x.inner)
        self.add(
            Record(
                "copy",
                site,
                x.rows,
                1,
                x.width,
                [Operand(self.buffer(x), x.offset * 4, x.strides[0], x.strides[0])],
                [
                    Operand(
                        self.buffer(target),
                        (target.offset + offset) * 4,
                        target.strides[0],
                        target.strides[0],
                        1,
                        before,
                    )
                ],
                ints=(*sizes, *strides_in, *strides_out),
            )
        )

    def copy(self, node: Node):
        self._copy_record(node.inputs[0], node.outputs[0], node.site)

    def concat(self, node: Node):
        (y,), axis = node.outputs, node.attrs["axis"]
        at: Extent = 0
        for x in node.inputs:
            if axis:
                self._copy_record(x, x, node.site, at * y.strides[axis], whole=y)
                at += x.shape[axis]
            else:
                self._copy_record(x, x, node.site, before=at, whole=y)
                at = at + x.rows

    def rows(self, node: Node):
        ids, weights = node.inputs
        k = 1 if len(ids.shape) == 1 else ids.shape[1]
        (y,) = node.outputs
        step = 1 if len(ids.shape) == 1 else ids.strides[1]
        at = Operand(self.buffer(ids), ids.offset * 4, ids.strides[0], 0, step)
        by = None
        if weights is not None:
            by = Operand(
                self.buffer(weights), weights.offset * 4, weights.strides[0], 0, weights.strides[1]
            )
        tables = node.weights if len(node.weights) == k else node.weights * k
        self.add(
            Record(
                "rows",
                node.site,
                y.rows,
                1,
                y.width,
                [at, by],
                [self.operand(y)],
                (node.attrs["scale"],),
                (k,),
                tables=tuple(tables),
                scratch=y.width * 4,
            )
        )

    def overlay(self, node: Node):
        x, media, place = node.inputs
        x, media = self.even(x, 1), self.even(media, 1)
        (y,) = node.outputs
        self.add(
            Record(
                "overlay",
                node.site,
                y.rows,
                1,
                y.width,
                [self.operand(x), self.operand(media), self._ids(place)],
                [self.operand(y)],
                extents={0: media.rows},
                elsewhere=(1,),
            )
        )

    def _ids(self, value: Value) -> Operand:
        return Operand(self.buffer(value), value.offset * 4, value.strides[0])

    def pick(self, node: Node):
        x, at = node.inputs
        (y,) = node.outputs
        x = self.even(x, 1)
        self.add(
            Record(
                "pick",
                node.site,
                y.rows,
                1,
                y.width,
                [self.operand(x), self._ids(at)],
                [self.operand(y)],
                extents={0: x.rows},
                elsewhere=(0,),
            )
        )

    # ---- products

    def codes(self, x: Value) -> Buffer:
        """x as 8-bit codes, made once: in the store of what makes x, or by a record of its own."""
        key = (x.root.id, x.shape, x.offset, x.strides)
        if key not in self._codes:
            x = self.even(x, 1)
            rows = x.rows
            made = Buffer(f"{x.name} quantised", rows, x.width // 32 * Q8_BYTES)
            self._codes[key] = made
            if not (self.fuse and self._quantise_in_store(x, made)):
                self.add(
                    Record(
                        "quantise",
                        f"{x.name}",
                        rows,
                        1,
                        x.width,
                        [self.operand(x)],
                        [Operand(made)],
                    )
                )
        return self._codes[key]

    def _quantise_in_store(self, x: Value, made: Buffer) -> bool:
        """Rules T and A: has the record that stores x quantise it too, where its units allow it."""
        buffer = self.buffer(x)
        maker = self._makers.get(id(buffer))
        whole = x.rows == x.root.rows and x.width == x.root.width and x.rows_contiguous
        if maker is None or not whole:
            return False
        if maker.kind == "attend" and maker.ints[3] % 32 == 0 and maker.outs[1] is None:
            maker.outs[1] = Operand(made)
        elif maker.kind == "linear" and x.width % 32 == 0:
            (segment,) = (s for s in maker.segments if s.store.buffer is buffer)
            segment.quantised = made
            self._cut(maker)
        else:
            return False
        self._makers[id(made)] = maker
        return True

    def linear(self, node: Node):
        x, segments = node.inputs[0], node.attrs["segments"]
        types = {w.type.id for w in node.weights}
        plain = codes = None
        if types & set(FLOAT_TYPES):
            x = self.even(x, 1)
            plain = self.operand(x)
        if types - set(FLOAT_TYPES):
            codes = Operand(self.codes(x))
        record = Record(
            "linear",
            node.site,
            node.outputs[0].rows,
            1,
            x.width,
            [plain, codes],
            segments=[self._segment(s) for s in segments],
            whole=True,
        )
        self._cut(record)
        self.add(record)

    def _segment(self, s: Segment) -> SegmentCode:
        finishes = []
        for f in s.finishes:
            code = FinishCode(f.op, f.attrs.get("kind"))
            if f.op == "clamp":
                code.a, code.b = f.attrs["low"], f.attrs["high"]
            elif f.op == "softcap":
                code.a = f.attrs["cap"]
            elif f.operand is not None:
                code.operand = self.second(f.operand, s.output, 1)
            finishes.append(code)
        return SegmentCode(s.weight, s.pair, s.gate, finishes, self.operand(s.output))

    def _cut(self, record: Record) -> None:
        """Sizes the chunks of a linear: at least four a worker, none larger than a cache."""
        groups = sum(s.groups for s in record.segments)
        share = max(1, groups // (4 * self.threads))
        first = 0
        for s in record.segments:
            size = self.group_bytes(s.weight) + (self.group_bytes(s.pair) if s.pair else 0)
            s.chunk = max(1, min(share, CHUNK_BYTES // size, s.groups))
            if s.quantised is not None:
                s.chunk = min(-(-s.chunk // 2) * 2, STAGED)
                record.scratch = max(record.scratch, COLUMNS * s.chunk * 16 * 4)
            s.first_unit = first
            first += -(-s.groups // s.chunk)

    def linear_by_expert(self, node: Node):
        x, experts = node.inputs
        (w,), (y,) = node.weights, node.outputs
        k, own = experts.shape[1], len(x.shape) == 3
        rows = x.rows
        if own:
            # every pair has a column of its own: (n, k, in) as (n·k, in)
            if not (x.rows_contiguous and x.strides[0] == x.width):
                x = self._copied(x)
            strides = (x.strides[1], 1)
            x = Value(x.id, x.name, (rows * k, w.width), x.dtype, x.node, x.root, x.offset, strides)
        plain = codes = None
        if w.type.id in FLOAT_TYPES:
            x = self.even(x, 1)
            plain = self.operand(x)
            gathered = COLUMNS * w.width * 4
        else:
            codes = Operand(self.codes(x))
            gathered = COLUMNS * w.width // 32 * Q8_BYTES
        pairs = Operand(
            self.buffer(experts), experts.offset * 4, experts.strides[0], 0, experts.strides[1]
        )
        gathered = -(-gathered // 64) * 64
        most = extent_at(rows, self.maxima)
        store = Operand(self.buffer(y), 0, w.out)
        segment = SegmentCode(w, None, None, [], store)
        size = self.group_bytes(w)
        segment.chunk = max(1, min(segment.groups // 4, CHUNK_BYTES // size))
        self.add(
            Record(
                "experts",
                node.site,
                rows,
                1,
                w.width,
                [plain, codes, pairs],
                ints=(k, w.shape[0], int(own), most, gathered),
                segments=[segment],
                scratch=-(-(w.shape[0] + 1 + most * k) * 4 // 64) * 64 + 64 + gathered,
                whole=True,
            )
        )

    def _copied(self, x: Value) -> Value:
        copy = Value(-len(self.buffers) - 1, f"{x.name} copied", x.shape, x.dtype, x)
        self._copy_record(x, copy, "copy")
        return copy

    def route(self, node: Node):
        logits, extra = node.inputs
        logits = self.even(logits, 1)
        experts, weights = node.outputs
        self.add(
            Record(
                "route",
                node.site,
                logits.rows,
                1,
                logits.width,
                [self.operand(logits), None if extra is None else self.constant(extra.array)],
                [self.operand(experts), self.operand(weights)],
                (node.attrs["scale"],),
                (node.attrs["k"], int(node.attrs["normalise"])),
                scratch=logits.width * 4,
            )
        )

    def combine(self, node: Node):
        y, weights = node.inputs
        k, width = y.inner
        y = y if y.strides[2] == 1 else self._copied(y)
        by = Operand(
            self.buffer(weights), weights.offset * 4, weights.strides[0], 0, weights.strides[1]
        )
        self.add(
            Record(
                "combine",
                node.site,
                y.rows,
                1,
                width,
                [Operand(self.buffer(y), y.offset * 4, y.strides[0], y.strides[1]), by],
                [self.operand(node.outputs[0])],
                ints=(k,),
            )
        )

    # ---- norms, positions, attention

    def norm(self, node: Node):
        x, *vectors = node.inputs
        spans = math.prod(x.inner[:-1])
        x = self.even(x, spans)
        ins = [self.operand(x, spans)]
        ins += [None if v is None else self.constant(v.array) for v in vectors]
        self.add(
            Record(
                node.op,
                node.site,
                x.rows,
                spans,
                x.shape[-1],
                ins,
                [self.operand(node.outputs[0], spans)],
                (node.attrs["eps"], node.attrs.get("floor", 0.0)),
            )
        )

    def softmax(self, node: Node):
        (x,) = node.inputs
        spans = math.prod(x.inner[:-1])
        x = self.even(x, spans)
        self.add(
            Record(
                "softmax",
                node.site,
                x.rows,
                spans,
                x.shape[-1],
                [self.operand(x, spans)],
                [self.operand(node.outputs[0], spans)],
            )
        )

    def rope_table(self, node: Node):
        positions, freq = node.inputs
        (y,) = node.outputs
        step = positions.strides[1] if len(positions.shape) > 1 else 1
        self.add(
            Record(
                "rope_table",
                node.site,
                y.rows,
                1,
                y.width,
                [
                    Operand(
                        self.buffer(positions), positions.offset * 4, positions.strides[0], 0, step
                    )
                ],
                [self.operand(y)],
                (node.attrs["scale"],),
                arrays=[freq.array, node.attrs["axis"]],
            )
        )

    def rope(self, node: Node):
        x, table = node.inputs
        spans = x.shape[1]
        x = self.even(x, spans)
        self.add(
            Record(
                "rope",
                node.site,
                x.rows,
                spans,
                x.shape[2],
                [
                    self.operand(x, spans),
                    Operand(self.buffer(table), table.offset * 4, table.strides[0]),
                ],
                [self.operand(node.outputs[0], spans)],
                ints=(
                    int(node.attrs["pairing"] == "adjacent"),
                    node.attrs["parts"],
                    table.shape[1],
                ),
            )
        )

    def store(self, node: Node):
        for side, x in enumerate(node.inputs):
            spans = x.shape[1]
            x = self.even(x, spans)
            self.add(
                Record(
                    "store",
                    node.site,
                    x.rows,
                    spans,
                    x.shape[2],
                    [self.operand(x, spans)],
                    ints=(side,),
                    ring=node.attrs["ring"],
                    writes_ring=True,
                )
            )

    def attend(self, node: Node):
        q, k, v, until, offsets, rel = node.inputs
        (y,) = node.outputs
        ring = node.attrs["ring"]
        declared = self.program.states[ring] if ring else None
        if isinstance(declared, Ring):
            heads, dv = declared.heads, declared.v
        else:
            heads, dv = k.shape[1], v.shape[2]
        q, k, v = (
            None if x is None else x if x.strides[-1] == 1 else self._copied(x) for x in (q, k, v)
        )
        spans = q.shape[1]
        rels = 0 if rel is None else rel.shape[0]
        back, ahead = node.attrs["back"], node.attrs["ahead"]
        softcap = node.attrs["softcap"]
        row = [
            None if x is None else Operand(self.buffer(x), x.offset * 4, x.strides[0], x.strides[1])
            for x in (q, k, v)
        ]
        ids = [None if x is None else self._ids(x) for x in (until, offsets)]
        self.add(
            Record(
                "attend",
                node.site,
                q.rows,
                spans,
                dv,
                [*row, *ids],
                [self.operand(y, spans), None, self._chunks(ring, dv, spans // heads)],
                (node.attrs["scale"], 0.0 if softcap is None else softcap),
                (
                    spans,
                    heads,
                    q.shape[2],
                    dv,
                    -1 if back is None else back,
                    -1 if ahead is None else ahead,
                    node.attrs["step"],
                    node.attrs["group"] or 0,
                    rels,
                    int(ring is not None),
                ),
                extents={} if offsets is None else {10: offsets.rows + -1},
                arrays=[] if rel is None else [rel.array],
                ring=ring,
                reads_ring=ring is not None,
                scratch=self.attend_scratch(q.shape[2], dv, spans // heads, rels),
                whole=True,
            )
        )

    def _chunks(self, ring: str | None, dv: int, share: int) -> Operand | None:
        """Room for the results of every chunk of keys, where columns are too few for the workers."""
        if ring is None:
            return None
        chunks = self.states.rings[ring].capacity // CHUNK + 2
        size = SPLIT * self.threads * chunks * self.attend_part_bytes(dv, share)
        return Operand(Buffer(f"chunks of {ring}", 1, size))

    # ---- elementwise and the rest

    def elementwise(self, node: Node):
        x, *others = node.inputs
        (y,) = node.outputs
        same = [v for v in (x, *others) if isinstance(v, Value) and v.inner == x.inner]
        flat = all(v.rows_contiguous for v in same) and not any(
            isinstance(v, Const) and v.array.size > 1 and len(x.inner) > 1 for v in others
        )
        spans = 1 if flat else math.prod(x.inner[:-1])
        x, *others = (
            self.even(v, spans) if isinstance(v, Value) and v.inner == x.inner else v
            for v in (x, *others)
        )
        attrs = node.attrs
        floats = (attrs["low"], attrs["high"]) if node.op == "clamp" else (attrs.get("cap", 0.0),)
        record = Record(
            node.op,
            node.site,
            x.rows,
            spans,
            x.width // spans,
            [self.operand(x, spans), *(self.second(v, x, spans) for v in others)],
            [self.operand(y, spans)],
            floats,
        )
        if "kind" in attrs:
            record.ints = (UNARY_KINDS[attrs["kind"]],)
        self.add(record)

    def top_k(self, node: Node):
        x = self.even(node.inputs[0], 1)
        outs = [self.operand(v) for v in node.outputs]
        self.add(
            Record(
                "top_k",
                node.site,
                x.rows,
                1,
                x.width,
                [self.operand(x)],
                outs,
                ints=(node.attrs["k"],),
            )
        )

    def reduce(self, node: Node):
        x, weights = node.inputs
        x = x if x.strides[2] == 1 else self._copied(x)
        self.add(
            Record(
                "reduce",
                node.site,
                x.rows,
                1,
                x.shape[2],
                [
                    Operand(self.buffer(x), x.offset * 4, x.strides[0], x.strides[1]),
                    None if weights is None else self.constant(weights.array),
                ],
                [self.operand(node.outputs[0])],
                ints=(x.shape[1], int(node.attrs["how"] == "mean")),
            )
        )

    def pool(self, node: Node):
        x, offsets = node.inputs
        x = self.even(x, 1)
        (y,) = node.outputs
        self.add(
            Record(
                "pool",
                node.site,
                y.rows,
                1,
                y.width,
                [self.operand(x), self._ids(offsets)],
                [self.operand(y)],
                elsewhere=(0, 1),
            )
        )

    # ---- after all ops

    def _drop_unread(self) -> None:
        """Stores that only made a quantised copy's source keep no f32."""
        read = {id(b) for r in self.records for b in r.read()}

        def kept(operand: Operand | None) -> Operand | None:
            unread = operand is not None and id(operand.buffer) not in read
            return None if unread and not operand.buffer.pinned else operand

        for record in self.records:
            for segment in record.segments:
                if segment.quantised is not None:
                    segment.store = kept(segment.store)
            if record.kind == "attend" and record.outs[1] is not None:
                record.outs[0] = kept(record.outs[0])


def _span_stride(value: Value, spans: int) -> int | None:
    """Elements from one of ``spans`` even pieces of a row to the next; None where they are not."""
    if value.strides[-1] != 1:
        return None
    if value.rows_contiguous:
        return value.width // spans
    if spans == 1:
        return None
    # The leading inner axes must make up the spans with one stride, the others lie together.
    taken, axis = 1, 0
    while taken < spans:
        taken *= value.inner[axis]
        axis += 1
    rest = math.prod(value.inner[axis:])
    inner = value.strides[1:]
    if taken != spans or (axis < len(inner) and inner[axis:] != _packed(value.inner[axis:])):
        return None
    for i in range(axis - 1):
        if inner[i] != inner[i + 1] * value.inner[i + 1]:
            return None
    return inner[axis - 1] if rest else None


def _packed(inner: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(inner[i + 1 :]) for i in range(len(inner)))


UNARY_KINDS = {
    kind: i
    for i, kind in enumerate(
        "silu sigmoid tanh relu elu exp softplus gelu_tanh gelu_erf gelu_quick".split()
    )
}

_OPS: dict[str, Callable[[Lowering, Node], None]] = {
    "rms_norm": Lowering.norm,
    "layer_norm": Lowering.norm,
    **{
        name: Lowering.elementwise
        for name in ("unary", "gate", "add", "mul", "fma", "clamp", "softcap")
    },
    **{
        name: getattr(Lowering, name)
        for name in (
            "copy concat rows overlay pick linear linear_by_expert route combine softmax "
            "rope_table rope store attend top_k reduce pool"
        ).split()
    },
}

__all__ = ["Constants", "Dim", "Lowering"]
