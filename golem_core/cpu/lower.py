"""From planned ops to records: products and attention, and where activations are quantised."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from golem_core.cpu._executor import COLUMNS, PROMPT_BLOCK, Q8_BYTES, ROUNDED, SPLIT, TOGETHER
from golem_core.cpu.lower_dense import conv2d, dense_types, gemm, is_dense
from golem_core.cpu.lower_recurrent import conv1d, delta_rule
from golem_core.cpu.lower_rows import RowLowering
from golem_core.cpu.records import Buffer, FinishCode, Operand, Record, SegmentCode
from golem_core.graph.plan import Plan, Segment
from golem_core.graph.program import Node, Program
from golem_core.graph.values import Value, extent_at
from golem_core.graph.weights import Weight
from golem_core.state import States

BF16 = 30  # GGML's type id
FLOAT_TYPES = {0, 1, BF16}  # F32, F16, BF16: their products take f32 activations
CHUNK_BYTES = 256 << 10  # weights a unit reads at most: they stay in a core's cache for all columns
STAGED = PROMPT_BLOCK // 16  # groups of a chunk at most where results are quantised in the store
CHUNK = 512  # keys of a drawn column's chunk, as in attend.h


class Lowering(RowLowering):
    """Makes the records of a plan.

    threads: workers to share out to. maxima: the most each symbol is bound to. fuse: quantise in
    the stores of what makes the activations. group_bytes: of a repacked weight. attend_scratch,
    attend_part_bytes: what the kernels of the instruction set ask for. panel: columns of a panel
    of gemm, whether it multiplies BF16 by itself, and whether linear takes two groups of float
    weights at once. prompt_records: that a prompt column has for 32 values.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        *,
        threads: int,
        maxima: Mapping[str, int],
        fuse: bool,
        states: States,
        group_bytes: Callable[[Weight], int],
        attend_scratch: Callable[[int, int, int, int], int],
        attend_part_bytes: Callable[[int, int], int],
        panel: tuple[int, bool, bool],
        prompt_records: int,
    ):
        super().__init__({v.root.id for v in plan.outputs.values()})
        self.program = program
        self.threads = threads
        self.maxima = maxima
        self.fuse = fuse
        self.states = states
        self.group_bytes = group_bytes
        self.attend_scratch = attend_scratch
        self.attend_part_bytes = attend_part_bytes
        self.panel = panel
        self.prompt_records = prompt_records
        self.packed: dict[tuple, Buffer] = {}
        self._codes: dict[tuple, Buffer] = {}
        # Where products round their columns to 8 bits, attention may round what it multiplies, and
        # so may a tower's where they round them to BF16.
        kinds = {
            w.type.id
            for node in program.nodes
            if node.op in ("linear", "linear_by_expert")
            for w in node.weights
        }
        self._rounds = bool(kinds - FLOAT_TYPES)
        self._rounds_stateless = self._rounds or (BF16 in kinds and panel[1])
        for node in plan.nodes:
            _OPS[node.op](self, node)
        for value in plan.outputs.values():
            self.buffer(value).pinned = True
        self._drop_unread()

    # ---- quantised activations

    def codes(self, x: Value, planes: int = 1) -> Buffer:
        """x as 8-bit codes, made once: in the store of what makes x, or by a record of its own.

        With two planes every drawn column is followed by what its rounding left, rounded again;
        prompt columns are precise ones, where the set has those.
        """
        key = (x.root.id, x.shape, x.offset, x.strides, planes)
        if key not in self._codes:
            x = self.even(x)
            made = Buffer(
                f"{x.name} quantised",
                x.rows,
                x.width // 32 * Q8_BYTES * max(planes, self.prompt_records),
            )
            self._codes[key] = made
            stores = self._quantise_in_store, self._quantise_in_experts
            if planes > 1 or not any(store(x, made) for store in stores):
                self._quantise(x, made, planes)
        return self._codes[key]

    def _quantise(self, x: Value, made: Buffer, planes: int, prompts: bool = False) -> None:
        """A record that quantises x; prompts: its prompt rows only."""
        ins, outs, ints = [self.operand(x)], [Operand(made)], (planes, int(prompts))
        record = Record("quantise", x.name, x.rows, 1, x.width, ins, outs, ints=ints)
        record.prompts = prompts
        self.add(record)

    def _quantise_in_store(self, x: Value, made: Buffer) -> bool:
        """Rules T and A: has the record that stores x quantise it too, where its units allow it."""
        buffer = self.buffer(x)
        maker = self.makers.get(id(buffer))
        whole = x.rows == x.root.rows and x.width == x.root.width and x.rows_contiguous
        if maker is None or not whole or not self.fuse:
            return False
        if maker.kind == "attend" and maker.ints[3] % 32 == 0 and maker.outs[1] is None:
            maker.outs[1] = Operand(made)
            if not maker.ints[11] & TOGETHER:
                self._quantise(x, made, 1, prompts=True)
        elif maker.kind == "linear" and x.width % 32 == 0:
            (segment,) = (s for s in maker.segments if s.store.buffer is buffer)
            segment.quantised = made
            self._cut(maker)
        else:
            return False
        self.makers[id(made)] = maker
        return True

    def _quantise_in_experts(self, x: Value, made: Buffer) -> bool:
        """The same for what experts store for each of their columns."""
        maker = self.makers.get(id(self.buffer(x)))
        if maker is None or maker.kind != "experts" or not self.fuse:
            return False
        if x.width % 32 or x.width != maker.segments[0].weight.out or x.strides != (x.width, 1):
            return False
        maker.segments[0].quantised = made
        self._cut(maker)
        self.makers[id(made)] = maker
        return True

    def _activations(
        self, x: Value, weights: tuple[Weight, ...], planes: int = 1
    ) -> list[Operand | None]:
        """x as the weights' types want it: f32, codes, or both."""
        types = {w.type.id for w in weights}
        plain = self.operand(self.even(x)) if types & FLOAT_TYPES else None
        return [plain, Operand(self.codes(x, planes)) if types - FLOAT_TYPES else None]

    # ---- products

    def linear(self, node: Node):
        x, segments = node.inputs[0], list(node.attrs["segments"])
        if not self.program.states:
            dense = [s for s in segments if is_dense(s, dense_types(self.panel))]
            if dense:
                gemm(self, node, dense)
            segments = [s for s in segments if s not in dense]
            if not segments:
                return
        planes = 2 if node.attrs["precise"] else 1
        weights = tuple(w for s in segments for w in (s.weight, s.pair) if w is not None)
        ins = self._activations(x, weights, planes)
        segments = [self.segment(s) for s in segments]
        rows = node.outputs[0].rows
        record = Record("linear", node.site, rows, 1, x.width, ins, ints=(planes,), whole=True)
        record.segments = segments
        self._cut(record)
        self.add(record)

    def segment(self, s: Segment) -> SegmentCode:
        """A product, what follows it and where its results go."""
        store = self.operand(s.output)
        return SegmentCode(s.weight, s.pair, s.gate, self._finish_codes(s), store)

    def _finish_codes(self, s: Segment) -> list[FinishCode]:
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
        return finishes

    def _cut(self, record: Record) -> None:
        """Sizes the chunks of a product: at least four a worker, none larger than a cache.

        The chosen experts' chunks are shared out together, so a quarter of one is small enough.
        """
        groups = sum(s.groups for s in record.segments)
        parts = 4 if record.kind == "experts" else 4 * self.threads
        for s in record.segments:
            size = self.group_bytes(s.weight) + (self.group_bytes(s.pair) if s.pair else 0)
            s.chunk = max(1, min(groups // parts, CHUNK_BYTES // size, s.groups))
            s.chunk -= s.chunk > 1 and s.chunk % 2  # kernels may take two groups at once
            if s.quantised is not None:
                s.chunk = min(-(-s.chunk // 2) * 2, STAGED)  # whole blocks of 32 activations
                record.stage = COLUMNS * STAGED * 16 * 4

    def linear_by_expert(self, node: Node):
        x, experts = node.inputs
        (segment,) = node.attrs["segments"]
        w, y = segment.weight, segment.output
        k, own, rows = experts.shape[1], len(x.shape) == 3, x.rows
        if own:  # every pair has a column of its own: (n, k, in) as (n·k, in)
            if not (x.rows_contiguous and x.strides[0] == x.width):
                x = self.copied(x)
            shape, strides = (rows * k, w.width), (x.strides[1], 1)
            x = Value(x.id, x.name, shape, x.dtype, x.node, x.root, x.offset, strides)
        ins = [*self._activations(x, node.weights), self.strided(experts)]
        gathered = -(-COLUMNS * (w.width // 32) * Q8_BYTES * self.prompt_records // 64) * 64
        most = extent_at(rows, self.maxima)
        store = Operand(self.buffer(y), 0, w.out)
        ints = (k, w.shape[0], int(own), most, gathered)
        record = Record("experts", node.site, rows, 1, w.width, ins, ints=ints, whole=True)
        finishes = self._finish_codes(segment)
        record.segments = [SegmentCode(w, segment.pair, segment.gate, finishes, store)]
        record.scratch = -(-(w.shape[0] + 1 + most * k) * 4 // 64) * 64 + 64 + gathered
        self._cut(record)
        self.add(record)

    # ---- attention

    def attend(self, node: Node):
        q, k, v, until, offsets, rel, *picked = node.inputs
        (y,), attrs = node.outputs, node.attrs
        ring = attrs["ring"]
        heads = self.program.states[ring].heads if ring else k.shape[1]
        spans, dv = y.inner
        q, k, v = (None if x is None else self.even(x, x.shape[1]) for x in (q, k, v))
        ins = [None if x is None else self.strided(x) for x in (q, k, v, until, offsets, *picked)]
        outs = [self.operand(y, spans), None, self._chunks(ring, dv, spans // heads)]
        rels = 0 if rel is None else rel.shape[0]
        back, ahead = (-1 if a is None else a for a in (attrs["back"], attrs["ahead"]))
        group = attrs["group"] or 0
        shape = (spans, heads, q.shape[2], dv)
        # What one key head's queries give is quantised together, if it is whole blocks.
        how = TOGETHER * (spans // heads * dv % PROMPT_BLOCK == 0)
        how += ROUNDED * (self._rounds_stateless if ring is None else self._rounds)
        ints = (*shape, back, ahead, attrs["step"], group, rels, int(ring is not None), 0, how)
        floats = (attrs["scale"], attrs["softcap"] or 0.0)
        record = Record("attend", node.site, q.rows, spans, dv, ins, outs, floats, ints, whole=True)
        record.ring, record.reads_ring = ring, ring is not None
        record.scratch = self.attend_scratch(q.shape[2], dv, spans // heads, rels)
        if offsets is not None:
            record.extents = {10: offsets.rows + -1}
        if rel is not None:
            record.arrays = [rel.array]
        self.add(record)

    def _chunks(self, ring: str | None, dv: int, share: int) -> Operand | None:
        """Room for the results of chunks of keys, where columns are too few for the workers."""
        if ring is None:
            return None
        chunks = self.states.rings[ring].capacity // CHUNK + 2
        size = SPLIT * self.threads * chunks * self.attend_part_bytes(dv, share)
        return Operand(Buffer(f"chunks of {ring}", 1, size))

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


_OPS: dict[str, Callable[[Lowering, Node], None]] = {
    "copy": Lowering.copy,
    "concat": Lowering.concat,
    "rows": Lowering.rows,
    "overlay": Lowering.overlay,
    "pick": Lowering.pick,
    "linear": Lowering.linear,
    "linear_by_expert": Lowering.linear_by_expert,
    "route": Lowering.route,
    "hadamard": Lowering.hadamard,
    "combine": Lowering.combine,
    "rms_norm": Lowering.norm,
    "layer_norm": Lowering.norm,
    "softmax": Lowering.softmax,
    "rope_table": Lowering.rope_table,
    "rope": Lowering.rope,
    "store": Lowering.store,
    "attend": Lowering.attend,
    "conv1d": conv1d,
    "delta_rule": delta_rule,
    "conv2d": conv2d,
    "unary": Lowering.elementwise,
    "gate": Lowering.elementwise,
    "add": Lowering.elementwise,
    "mul": Lowering.elementwise,
    "fma": Lowering.elementwise,
    "clamp": Lowering.elementwise,
    "softcap": Lowering.elementwise,
    "top_k": Lowering.top_k,
    "peaks": Lowering.peaks,
    "reduce": Lowering.reduce,
    "pool": Lowering.pool,
}
