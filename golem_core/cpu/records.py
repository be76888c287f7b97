"""Records in Python: what lowering makes of ops before the C structs are filled in.

A buffer is memory that a pass writes and reads; an operand says where in a buffer (or among the
constants) a record's rows lie; see record.h for what kernels make of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from golem_core.graph.values import Extent
from golem_core.graph.weights import Weight


@dataclass(eq=False)
class Buffer:
    """Memory of ``rows`` rows. pinned: its contents outlive the pass's last record."""

    name: str
    rows: Extent
    row_bytes: int
    pinned: bool = False
    spare: int = 0  # bytes behind the rows that kernels may touch
    local: int | None = None  # byte offset in a worker's scratch, for values of one chain
    replica: int = 0  # bytes from one worker's copy to the next's, where workers make their own
    slot: int = -1


@dataclass(frozen=True, eq=False)
class Operand:
    """Element e of span a of row r: buffer + offset + 4 · (r · row + a · span + e · step) bytes.

    buffer None: a constant, at offset in the constants. before: rows to skip first.
    """

    buffer: Buffer | None
    offset: int = 0
    row: int = 0
    span: int = 0
    step: int = 1
    before: Extent | None = None


@dataclass(eq=False)
class FinishCode:
    kind: str
    unary: str | None = None
    a: float = 0.0
    b: float = 0.0
    operand: Operand | None = None


@dataclass(eq=False)
class SegmentCode:
    """One product of a linear record; chunk: groups of 16 rows a unit takes."""

    weight: Weight
    pair: Weight | None
    gate: str | None
    finishes: list[FinishCode]
    store: Operand | None
    quantised: Buffer | None = None
    chunk: int = 1

    @property
    def groups(self) -> int:
        return -(-self.weight.out // 16)


@dataclass(eq=False)
class Record:
    """One kernel call. units a row: spans; elements a unit: width.

    ring: the state it touches, of any kind.
    alike: operands by index whose rows (and spans) are the record's own; the others are read
    anywhere, so their maker must have finished.
    """

    kind: str
    site: str
    rows: Extent
    spans: int
    width: int
    ins: list[Operand | None] = field(default_factory=list)
    outs: list[Operand | None] = field(default_factory=list)
    floats: tuple[float, ...] = ()
    ints: tuple[int, ...] = ()
    extents: dict[int, Extent] = field(default_factory=dict)  # ints that are extents' numbers
    arrays: list[np.ndarray] = field(default_factory=list)  # constants the kernel gets pointers to
    tables: tuple[Weight, ...] = ()
    segments: list[SegmentCode] = field(default_factory=list)
    ring: str | None = None
    reads_ring: bool = False
    writes_ring: bool = False
    scratch: int = 0
    stage: int = 0  # bytes of scratch, behind the others, for results that are to be quantised
    elsewhere: tuple[int, ...] = ()  # operands read at other rows than the record's own
    prompts: bool = False  # works on prompt rows only
    whole: bool = False  # shares out its own work: not a member of chains

    def read(self) -> list[Buffer]:
        operands = [*self.ins, *(f.operand for s in self.segments for f in s.finishes)]
        return [o.buffer for o in operands if o is not None and o.buffer is not None]

    def written(self) -> list[Buffer]:
        operands = [*self.outs, *(s.store for s in self.segments)]
        made = [o.buffer for o in operands if o is not None and o.buffer is not None]
        return made + [s.quantised for s in self.segments if s.quantised is not None]

    @property
    def weights(self) -> list[Weight]:
        return [w for s in self.segments for w in (s.weight, s.pair) if w is not None]
