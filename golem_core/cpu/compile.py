"""A plan made executable: arranged records with their memory, poured into the structs of C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from golem_core.cpu import _executor
from golem_core.cpu._executor import UNARY_KINDS
from golem_core.cpu.arrange import (
    ALIGN,
    REPLICATED,
    Arrangement,
    Chain,
    arrange,
    lay_out,
    place_locals,
)
from golem_core.cpu.cores import last_cache
from golem_core.cpu.lower import Lowering
from golem_core.cpu.records import Buffer, FinishCode, Operand, Record, SegmentCode
from golem_core.cpu.spread import spread_rows
from golem_core.cpu.weights import WeightStore
from golem_core.graph.plan import make_plan
from golem_core.graph.program import Program
from golem_core.graph.values import Dim, Extent, Value, extent_at
from golem_core.graph.weights import Weight
from golem_core.maps import untouched
from golem_core.state import States
from golem_core.state.kinds import CACHE_TYPES

SMALL = 16  # a second, tighter arena serves passes whose symbols are at most this
# Inputs that follow from a pass's runs where it has no media: the index of each column, or -1.
FOLLOWING = ("index", "positions", "until", "place")
DTYPES = {"f32": np.float32, "i32": np.int32}


@dataclass(frozen=True)
class Spent:
    """Seconds that passes spent on an op and what runs in one chain with it. site: where it was
    written; weights: names of those it multiplies by."""

    seconds: float
    kind: str
    site: str
    weights: tuple[str, ...]


class CompiledPlan:
    """One wanted set of a program, ready to run. Not thread-safe."""

    def __init__(
        self,
        program: Program,
        wanted: Iterable[str],
        *,
        pool: _executor.Pool,
        isa: str,
        states: States,
        weights: WeightStore,
        maxima: Mapping[str, int],
        fuse: bool = True,
        cancel: np.ndarray | None = None,
    ):
        self.wanted = tuple(wanted)
        self._symbols = list(program.axes)
        plan = make_plan(program, self.wanted, fuse=fuse)
        lowering = Lowering(
            program,
            plan,
            threads=pool.threads,
            maxima=dict(maxima),
            fuse=fuse,
            group_bytes=lambda w: weights[w].group_bytes,
            attend_scratch=lambda *shape: _executor.attend_scratch(isa, *shape),
            attend_part_bytes=lambda *shape: _executor.attend_part_bytes(isa, *shape),
            panel=_executor.panel(isa),
            prompt_records=_executor.prompt_records(isa),
            states=states,
        )
        self.arrangement = arrange(lowering.records, chains=fuse)
        if fuse:
            place_locals(self.arrangement)
        inputs = list(lowering.inputs.values())
        spread_rows(lowering.records, inputs)
        self._constants = _aligned(lowering.constants.block())
        self._weights = weights
        self._states = states
        self._arrays: list[np.ndarray] = []  # what C holds addresses of
        buffers = _all_buffers(lowering, self.arrangement)
        small = {s: min(SMALL, most) for s, most in maxima.items()}
        self._arenas = [
            lay_out(self.arrangement, buffers, inputs, most, pool.threads)
            for most in ([small] if small == dict(maxima) else [small, dict(maxima)])
        ]
        self._narrow = {s: self._arenas[0].maxima[s] for s in self._symbols}
        self._made_for: tuple[int, int, int] | None = None  # arena, n and m of the last decoder's
        self._made_last: dict[str, np.ndarray] = {}
        self._memory = untouched(max(a.size for a in self._arenas) + ALIGN)
        self._pour(program, pool, isa, plan.outputs, buffers, maxima)
        if cancel is not None:
            self.code.set_cancel(cancel)
        self._bind_views(plan.outputs, lowering)

    # ---- filling in C

    def _pour(self, program, pool, isa, outputs, buffers, maxima):
        records = [r for chain in self.arrangement.chains for r in chain.records]
        self._extents: dict[Extent, int] = {}
        for value in outputs.values():
            self._extent(value.rows)
        for slot, buffer in enumerate(buffers):
            buffer.slot = slot + 1  # slot 0: the constants
        poured = [
            self._poured(r, chain) for chain in self.arrangement.chains for r in chain.records
        ]
        self.code = code = _executor.Code(
            pool,
            isa,
            len(records),
            sum(len(r.segments) for r in records),
            sum(len(r.tables) for r in records),
            len(self._extents),
            len(buffers) + 1,
            len(self._arenas),
            maxima.get("n", 1),
        )
        for extent, number in self._extents.items():
            dim = extent if isinstance(extent, Dim) else Dim((), extent)
            terms = [(self._symbols.index(symbol), factor) for symbol, factor in dim.terms]
            code.set_extent(number, terms, dim.const, dim.divisor)
        columns = self._symbols.index("n") if "n" in self._symbols else -1
        code.set_roles(columns, bool(program.states))
        base = self._memory.ctypes.data
        for number, arena in enumerate(self._arenas):
            code.set_base(number, 0, self._constants.ctypes.data)
            for buffer in buffers:
                if id(buffer) in arena.places:
                    code.set_base(number, buffer.slot, base + arena.places[id(buffer)])
        read: dict[Extent, int] = {}
        for r in records:
            if r.kind in ("gemm", "conv2d"):
                read[r.rows] = read.get(r.rows, 0) + sum(self._weights[w].bytes for w in r.weights)
        for extent, size in read.items():
            code.count_weights(self._extents[extent], size)
        weights = {w: self._weights[w].bytes for r in records for w in r.weights}
        if sum(weights.values()) <= last_cache():
            code.keep_weights()
        number = 0
        for chain in self.arrangement.chains:
            for i, record in enumerate(chain.records):
                length = 0 if chain.head.whole or i else len(chain.records)
                flags = 0
                if i == 0:
                    flags = chain.barrier + 2 * chain.unless_replica + 4 * chain.replica
                    flags += 8 * chain.prompts
                self._set_record(code, number, record, flags, length, poured[number])
                number += 1
        each = self.arrangement.local_bytes + max((r.scratch + r.stage for r in records), default=0)
        each = -(-(each + ALIGN) // 4096) * 4096
        self._scratch = untouched(each * pool.threads)
        code.set_scratch(self._scratch.ctypes.data, each, self.arrangement.local_bytes)

    def _poured(self, record: Record, chain: Chain):
        """Operands as C takes them; numbers every extent on the way."""
        made = {id(b) for r in chain.records for b in r.written()}

        def own(o: Operand | None) -> bool:
            return chain.replica and o is not None and (chain.head.whole or id(o.buffer) in made)

        ints = list(record.ints)
        for at, extent in record.extents.items():
            ints += [0] * (at + 1 - len(ints))
            ints[at] = self._extent(extent)
        segments = [
            (self._operand(s.store), [self._finish(f) for f in s.finishes]) for s in record.segments
        ]
        return (
            self._extent(record.rows),
            [self._operand(o, own(o)) for o in record.ins],
            [self._operand(o, own(o)) for o in record.outs],
            ints,
            segments,
        )

    def _extent(self, extent: Extent) -> int:
        return self._extents.setdefault(extent, len(self._extents))

    def _operand(self, o: Operand | None, own: bool = False):
        """own: the worker's own copy, where there is one for each."""
        if o is None:
            return None
        before = -1 if o.before is None else self._extent(o.before)
        if o.buffer is None:
            return (0, o.offset, o.row, o.span, o.step, before, 0)
        if o.buffer.local is not None:
            return (-2, o.buffer.local, o.row, o.span, o.step, before, 0)
        replica = o.buffer.replica // ALIGN if own else 0
        return (o.buffer.slot, o.offset, o.row, o.span, o.step, before, replica)

    def _finish(self, f: FinishCode):
        unary = 0 if f.unary is None else UNARY_KINDS[f.unary]
        return f.kind, unary, f.a, f.b, self._operand(f.operand)

    def _set_record(self, code, number, record: Record, flags, length, poured) -> None:
        rows, ins, outs, ints, segments = poured
        code.set_record(
            number,
            record.kind,
            flags,
            length,
            rows,
            record.spans,
            record.width,
            ins,
            outs,
            record.floats,
            ints,
            [self._kept(array) for array in record.arrays],
        )
        if record.ring in self._states.recurrent_arrays:
            state = self._states.recurrent_arrays[record.ring]
            code.set_state(number, state.ctypes.data, state[0].size)
        elif record.ring is not None:
            states, ring = self._states, self._states.rings[record.ring]
            code.set_ring(
                number,
                ring.k.ctypes.data,
                ring.v.ctypes.data,
                ring.k.strides[0],
                ring.k.strides[1],
                ring.capacity,
                ring.declaration.k,
                ring.declaration.v,
                ring.declaration.rate,
                (CACHE_TYPES[states.type_k].code, CACHE_TYPES[states.type_v].code),
                (states.turn_k, states.turn_v),
            )
        if record.tables:
            tables = [
                (w.data.ctypes.data, w.data.strides[0], w.out, w.type.id) for w in record.tables
            ]
            self._arrays += [w.data for w in record.tables]
            code.set_tables(number, tables)
        for segment, (store, finishes) in zip(record.segments, segments, strict=True):
            self._add_segment(code, number, segment, store, finishes)

    def _add_segment(self, code, number, segment: SegmentCode, store, finishes) -> None:
        code.add_segment(
            number,
            self._matrix(segment.weight),
            None if segment.pair is None else self._matrix(segment.pair),
            segment.weight.width,
            segment.weight.out,
            segment.chunk,
            0 if segment.gate is None else UNARY_KINDS[segment.gate],
            finishes,
            store,
            -1 if segment.quantised is None else segment.quantised.slot,
        )

    def _matrix(self, w: Weight):
        matrix = self._weights[w]
        scale = None if w.scale is None else np.atleast_1d(w.scale)
        return (
            matrix.address,
            matrix.group_bytes,
            matrix.expert_bytes,
            w.type.id,
            0 if scale is None else scale.size,
            0 if scale is None else self._kept(scale),
            0 if w.bias is None else self._kept(w.bias),
        )

    def _kept(self, array: np.ndarray) -> int:
        """The address of an array that stays alive with the plan."""
        dtype = np.int32 if array.dtype.kind in "iu" else np.float32
        array = np.ascontiguousarray(array, dtype)
        self._arrays.append(array)
        return array.ctypes.data

    # ---- a pass

    def _bind_views(self, outputs: Mapping[str, Value], lowering: Lowering) -> None:
        """Arrays over the arenas: where inputs are written to and outputs read from."""
        self._inputs: list[dict[str, np.ndarray]] = []
        self._outputs: list[list[tuple[str, np.ndarray, int]]] = []
        roots = {v.name: v for v in lowering.values if v.node is None}  # of inputs
        symbols = [self._symbols.index(s) if s in self._symbols else 0 for s in "nm"]
        for number, arena in enumerate(self._arenas):
            views = {
                name: self._view(arena, buffer, roots[name])
                for name, buffer in lowering.inputs.items()
                if id(buffer) in arena.places
            }
            at = {name: view.ctypes.data for name, view in views.items()}
            for name in FOLLOWING:
                if name in at:
                    axes = 0 if name == "place" else roots[name].width
                    self.code.copy_index(number, at[name], axes)
            self.code.set_decoder(number, *symbols, at.get("tokens", 0), at.get("outputs", 0))
            self._inputs.append(views)
            self._outputs.append(
                [
                    (name, self._view(arena, lowering.buffer(v), v), self._extents[v.rows])
                    for name, v in outputs.items()
                ]
            )

    def _view(self, arena, buffer: Buffer, value: Value) -> np.ndarray:
        rows = extent_at(value.rows, arena.maxima)
        at = arena.places[id(buffer)] + value.offset * 4
        flat = self._memory[at : at + buffer.row_bytes * extent_at(buffer.rows, arena.maxima)]
        strides = tuple(s * 4 for s in value.strides)
        array = flat.view(DTYPES[value.dtype])
        return np.lib.stride_tricks.as_strided(array, (rows, *value.inner), strides)

    def run(
        self,
        sizes: Mapping[str, int],
        arrays: Mapping[str, np.ndarray],
        runs: np.ndarray,
    ) -> dict[str, np.ndarray] | None:
        """One pass over checked inputs. None when it was cancelled."""
        symbols = tuple(sizes[s] for s in self._symbols)
        number = self._write(sizes, arrays)
        if not self.code.run(number, symbols, runs):
            return None
        return self._made(number)

    def begin(
        self, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray], runs: np.ndarray
    ) -> Begun:
        """A pass whose inputs are written and of which nothing was run yet."""
        symbols = tuple(sizes[s] for s in self._symbols)
        return Begun(self, self._write(sizes, arrays), symbols, runs)

    def _write(self, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> int:
        """Copies inputs to where they are read; the arena that is."""
        narrow = all(sizes[s] <= most for s, most in self._narrow.items())
        number = 0 if narrow else len(self._arenas) - 1
        for name, view in self._inputs[number].items():
            given = arrays[name]
            view[: len(given)] = given
        return number

    def run_decoder(self, n: int, m: int, runs, tokens, outputs) -> dict[str, np.ndarray]:
        """One pass over a decoder's inputs, which ``decoder_sizes`` found right."""
        narrow = self._narrow
        number = 0 if n <= narrow["n"] and m <= narrow["m"] else len(self._arenas) - 1
        self.code.run_decoder(number, n, m, runs, tokens, outputs)
        if self._made_for != (number, n, m):  # conversations draw on: the arrays stay the same
            self._made_for, self._made_last = (number, n, m), self._made(number)
        return self._made_last

    def _made(self, number: int) -> dict[str, np.ndarray]:
        size = self.code.size
        return {name: view[: size(rows)] for name, view, rows in self._outputs[number]}

    def describe(self) -> str:
        """A line a record: barriers, units, what it reads, FLOPs of one column."""
        lines = [f"wants {', '.join(self.wanted) or 'states only'}"]
        for chain in self.arrangement.chains:
            for i, r in enumerate(chain.records):
                mark = (
                    ("|" if not chain.unless_replica else ":") if chain.barrier and not i else " "
                )
                lines.append(f"{mark}{'' if chain.head.whole or not i else '  '}{self._line(r)}")
        skipped = sum(chain.unless_replica for chain in self.arrangement.chains)
        peak = max(a.size for a in self._arenas) / 2**20
        lines.append(
            f"{self.arrangement.phases - 1} barriers, {skipped} more above {REPLICATED} rows; "
            f"arena {peak:.1f} MiB, scratch {self._scratch.nbytes / 2**20:.1f} MiB"
        )
        return "\n".join(lines)

    def _line(self, r: Record) -> str:
        nbytes = sum(self._weights[w].bytes for w in r.weights)
        flops = sum(2 * w.out * w.width for w in r.weights)
        text = f"{r.kind:10} {r.site:28} ({r.rows}, {r.spans}, {r.width})"
        if r.weights:
            names = " ".join(
                w.name + ("*" if s.quantised is not None else "")
                for s in r.segments
                for w in (s.weight, s.pair)
                if w is not None
            )
            text += f" {nbytes / 2**20:.2f} MiB {flops / 1e6:.1f} MFLOP {names}"
        return text

    def profiled(self) -> list[Spent]:
        """Of every chain, since ``code.start_profile()``."""
        seconds, at, listed = self.code.profiled(), 0, []
        for chain in self.arrangement.chains:
            head = chain.head
            weights = tuple(w.name for w in head.weights)
            listed.append(Spent(seconds[at], head.kind, head.site, weights))
            at += len(chain.records)
        return listed


class Begun:
    """A pass that is run piece by piece."""

    def __init__(self, plan: CompiledPlan, arena: int, symbols: tuple[int, ...], runs: np.ndarray):
        self._plan = plan
        self._arena = arena
        self._symbols = symbols
        self._runs = runs
        self._next = 0  # the record to go on from

    def advance(self, seconds: float) -> bool:
        """Runs on for about so many seconds, 0: to the end. True when the pass is over."""
        code = self._plan.code
        self._next = code.run_on(self._arena, self._symbols, self._runs, self._next, seconds)
        return self._next < 0

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Of a pass that is over."""
        return self._plan._made(self._arena)


def _all_buffers(lowering: Lowering, arrangement: Arrangement) -> list[Buffer]:
    known = {id(b): b for b in lowering.inputs.values()}
    for chain in arrangement.chains:
        for r in chain.records:
            known.update({id(b): b for b in (*r.read(), *r.written())})
    for b in lowering.buffers.values():
        if b.pinned:
            known[id(b)] = b
    return list(known.values())


def _aligned(block: np.ndarray) -> np.ndarray:
    pages = untouched(block.nbytes)
    pages[: block.nbytes] = block
    return pages
