"""The order of records, where workers must meet, and where buffers lie.

Records that a worker can run block by block become chains. A barrier stands before a record that
reads what was written since the last one. The stretches between barriers are PHASES; memory is
given back only from one phase to the next, so that sharing it never asks for another barrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from golem_core.cpu.records import Buffer, Operand, Record
from golem_core.graph.values import extent_at

ALIGN = 64
BLOCK_UNITS = 16  # units of a chain's block at most, as in run.c
REPLICATED = 2  # rows up to which a chain is replicated, as in record.h


@dataclass(eq=False)
class Chain:
    """Row records over the same units, or one record that shares out its own work."""

    records: list[Record]
    barrier: bool = False
    unless_replica: bool = False  # no barrier where it only waits for a replicated chain
    replica: bool = False  # replicated, or reads what a replicated chain made
    phase: int = 0

    @property
    def head(self) -> Record:
        return self.records[0]

    @property
    def prompts(self) -> bool:
        """Whether it is skipped, and its barrier with it, in a pass that only draws."""
        return all(r.prompts for r in self.records)


@dataclass(eq=False)
class Arrangement:
    chains: list[Chain]
    phases: int
    local_bytes: int = 0
    arenas: list[Arena] = field(default_factory=list)


@dataclass(eq=False)
class Arena:
    """Byte offsets of buffers, valid while every symbol is at most its maximum here."""

    maxima: dict[str, int]
    places: dict[int, int]  # by id() of the buffer
    size: int


def arrange(records: Sequence[Record], *, chains: bool = True) -> Arrangement:
    """Orders records and places barriers. chains False: every record stands alone, as written."""
    order = _chain(records) if chains else [Chain([r]) for r in records]
    if chains:
        _replicate(order)
    # What was written since the last barrier: counting every barrier, and only the sure ones.
    fresh, surely = _Fresh(), _Fresh()
    phase = 0
    for chain in order:
        copies = {id(b) for r in chain.records for b in _own_copies(r)} if chain.replica else set()
        if chain.prompts:  # what follows must not count on this barrier
            chain.barrier = True
        elif surely.meets(chain, copies):
            chain.barrier = True
            phase += 1
            fresh, surely = _Fresh(), _Fresh()
        elif fresh.meets(chain, set()):
            chain.barrier = chain.unless_replica = True
            fresh = _Fresh()
        chain.phase = phase
        fresh.note(chain)
        surely.note(chain)
    return Arrangement(order, phase + 1)


class _Fresh:
    """Buffers and rings touched since the workers last met."""

    def __init__(self):
        self.written: set[int] = set()
        self.rings_read: set[str | None] = set()
        self.rings_written: set[str | None] = set()

    def meets(self, chain: Chain, excepted: set[int]) -> bool:
        """Whether a chain needs what is not sure to be finished."""
        made = {id(b) for r in chain.records for b in r.written()}
        read = {id(b) for r in chain.records for b in r.read()}
        reads = {r.ring for r in chain.records if r.reads_ring}
        writes = {r.ring for r in chain.records if r.writes_ring}
        waits = (read - made - excepted) & self.written
        return bool(waits or reads & self.rings_written or writes & self.rings_read)

    def note(self, chain: Chain) -> None:
        self.written |= {id(b) for r in chain.records for b in r.written()}
        self.rings_read |= {r.ring for r in chain.records if r.reads_ring}
        self.rings_written |= {r.ring for r in chain.records if r.writes_ring}


# Cheap enough for every worker to do by itself rather than wait for another.
_REPLICABLE = {"rms_norm", "layer_norm", "quantise", "add", "mul", "fma", "unary", "gate", "clamp"}
_REPLICABLE |= {"hadamard"}


def _replicate(order: Sequence[Chain]) -> None:
    """Chains right before a linear that reads them are computed by every worker for few rows."""
    for chain, after in pairwise(order):
        head, reader = chain.head, after.head
        if (
            chain.prompts
            or head.whole
            or head.spans != 1
            or reader.kind != "linear"
            or reader.rows != head.rows
            or not all(r.kind in _REPLICABLE for r in chain.records)
        ):
            continue
        made = {id(b): b for r in chain.records for b in r.written()}
        taken = [b for b in _own_copies(reader) if id(b) in made]
        if not taken:
            continue
        chain.replica = after.replica = True
        for b in made.values():
            b.replica = -(-REPLICATED * b.row_bytes // ALIGN) * ALIGN


def _own_copies(reader: Record) -> list[Buffer]:
    """What a linear reads in its own worker's copy: its activations, not its finishes' operands."""
    if reader.kind != "linear":
        return []
    return [o.buffer for o in reader.ins if o is not None and o.buffer is not None]


def _chain(records: Sequence[Record]) -> list[Chain]:
    """Takes records as they become ready; a chain takes on every ready record of its units."""
    needs = _dependences(records)
    left = dict(enumerate(records))
    done: set[int] = set()
    order: list[Chain] = []
    while left:
        first = next(i for i in left if needs[i] <= done)
        members = [first]
        head = left.pop(first)
        if not head.whole:
            joined = True
            while joined:
                joined = False
                for i, r in left.items():
                    if _joins(r, head) and needs[i] <= done | set(members):
                        inside = [records[m] for m in members if m in needs[i]]
                        if all(_aligned(r, maker) for maker in inside):
                            members.append(i)
                            del left[i]
                            joined = True
                            break
        done.update(members)
        order.append(Chain([records[m] for m in members]))
    return order


def _joins(record: Record, head: Record) -> bool:
    return not record.whole and record.rows == head.rows and record.spans == head.spans


def _dependences(records: Sequence[Record]) -> list[set[int]]:
    """For every record, the earlier ones whose results or effects it needs."""
    makers: dict[int, list[int]] = {}
    ring_write: dict[str, list[int]] = {}
    ring_reads: dict[str, list[int]] = {}
    needs: list[set[int]] = []
    for i, r in enumerate(records):
        need = {m for b in r.read() for m in makers.get(id(b), ())}
        if r.ring is not None and r.reads_ring:
            need.update(ring_write.get(r.ring, ()))
        if r.ring is not None and r.writes_ring:
            need.update(ring_reads.get(r.ring, ()))
            ring_write.setdefault(r.ring, []).append(i)
        if r.ring is not None and r.reads_ring:
            ring_reads.setdefault(r.ring, []).append(i)
        for b in r.written():
            makers.setdefault(id(b), []).append(i)
        needs.append(need)
    return needs


def _aligned(reader: Record, maker: Record) -> bool:
    """Whether a unit of the reader reads, of what the maker writes, only its own unit's part."""
    for out in maker.outs:
        if out is None:
            continue
        for number, operand in enumerate(reader.ins):
            if operand is None or operand.buffer is not out.buffer:
                continue
            if number in reader.elsewhere or not _inside(operand, reader, out, maker):
                return False
    return True


def _inside(operand: Operand, reader: Record, out: Operand, maker: Record) -> bool:
    if operand.before is not None or out.before is not None or operand.row != out.row:
        return False
    if reader.spans == 1:
        return True
    start = (operand.offset - out.offset) // 4
    same = operand.span == out.span and start >= 0
    return same and start + reader.width * max(operand.step, 1) <= maker.width


def place_locals(arrangement: Arrangement) -> None:
    """Values that live inside one chain get room in the workers' own scratch instead of the arena.

    Their operands must address plain units: rows of spans · width elements that lie together.
    """
    uses: dict[int, list[tuple[Chain, Record, Operand]]] = {}
    unfit: set[int] = set()
    for chain in arrangement.chains:
        for r in chain.records:
            listed = [o for o in (*r.ins, *r.outs) if o is not None]
            for o in listed:
                if o.buffer is not None:
                    uses.setdefault(id(o.buffer), []).append((chain, r, o))
            seen = {id(o.buffer) for o in listed if o.buffer is not None}
            unfit.update({id(b) for b in (*r.read(), *r.written())} - seen)
    for key, list_of in uses.items():
        chain = list_of[0][0]
        buffer = list_of[0][2].buffer
        written = any(o in r.outs for _, r, o in list_of)
        if key in unfit or buffer.pinned or not written or chain.head.whole:
            continue
        width = list_of[0][1].width
        fits = all(
            c is chain
            and r.kind != "copy"
            and o.offset == 0
            and o.step == 1
            and o.span == width
            and o.row == width * r.spans
            and r.width == width
            and o.before is None
            for c, r, o in list_of
        )
        if fits:
            buffer.local = -2 - width
    _number_locals(arrangement, uses)


def _number_locals(arrangement: Arrangement, uses) -> None:
    for chain in arrangement.chains:
        at = 0
        for r in chain.records:
            for b in r.written():
                if b.local is not None and b.local < -1:
                    width = -2 - b.local
                    b.local = at
                    at += -(-BLOCK_UNITS * width * 4 // ALIGN) * ALIGN
        arrangement.local_bytes = max(arrangement.local_bytes, at)


def lay_out(
    arrangement: Arrangement,
    buffers: Sequence[Buffer],
    inputs: Sequence[Buffer],
    maxima: Mapping[str, int],
    threads: int,
) -> Arena:
    """Offsets of all buffers that are not local: largest first, each in the lowest gap it fits."""
    first: dict[int, int] = {id(b): 0 for b in inputs}
    last: dict[int, int] = {}
    for chain in arrangement.chains:
        for r in chain.records:
            for b in (*r.read(), *r.written()):
                first.setdefault(id(b), chain.phase)
                last[id(b)] = chain.phase
    sized = []
    for b in buffers:
        if b.local is not None or (id(b) not in last and not b.pinned):
            continue
        size = max(b.row_bytes * extent_at(b.rows, maxima) + b.spare, b.replica * threads, 1)
        size = -(-size // ALIGN) * ALIGN
        end = arrangement.phases if b.pinned else last[id(b)]
        sized.append((size, first.get(id(b), 0), end, id(b)))
    placed: list[tuple[int, int, int, int]] = []  # offset, size, first, last
    places: dict[int, int] = {}
    for size, start, end, key in sorted(sized, key=lambda s: (-s[0], s[1])):
        at = 0
        for offset, other, begin, finish in placed:
            if begin <= end and start <= finish and at + size > offset:
                at = max(at, offset + other)
        places[key] = at
        placed.append((at, size, start, end))
        placed.sort()
    return Arena(dict(maxima), places, max((o + s for o, s, _, _ in placed), default=0))
