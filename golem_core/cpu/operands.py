"""Where values lie: buffers for roots, operands for views, constants in one block."""

from __future__ import annotations

import math

import numpy as np

from golem_core.cpu.records import Buffer, Operand, Record
from golem_core.graph.values import Const, Extent, ProgramError, Value


class Constants:
    """Small arrays of a plan in one block, each on a 64-byte boundary, equal ones once."""

    def __init__(self):
        self._places: dict[bytes, int] = {}
        self.size = 0

    def place(self, array: np.ndarray) -> int:
        """Byte offset of the array's elements."""
        key = np.ascontiguousarray(array).tobytes()
        if key not in self._places:
            self._places[key] = self.size
            self.size += -(-max(len(key), 4) // 64) * 64
        return self._places[key]

    def block(self) -> np.ndarray:
        """All of them as bytes."""
        whole = np.zeros(self.size, np.uint8)
        for key, at in self._places.items():
            whole[at : at + len(key)] = np.frombuffer(key, np.uint8)
        return whole


class Operands:
    """The operands of a plan's records, and copies of values that no kernel reads as they lie."""

    def __init__(self, pinned: set[int]):
        self.constants = Constants()
        self.buffers: dict[int, Buffer] = {}  # by id of the root
        self.values: list[Value] = []  # roots that have a buffer
        self.inputs: dict[str, Buffer] = {}
        self.records: list[Record] = []
        self.makers: dict[int, Record] = {}  # id() of a buffer -> the record that made it
        self.pinned = pinned

    def add(self, record: Record) -> Record:
        self.records.append(record)
        for buffer in record.written():
            self.makers[id(buffer)] = record
        return record

    def buffer(self, value: Value) -> Buffer:
        """The memory of a value's root."""
        root = value.root
        if root.id not in self.buffers:
            made = Buffer(root.name, root.rows, root.width * 4, root.id in self.pinned)
            self.buffers[root.id] = made
            self.values.append(root)
            if root.node is None:
                self.inputs[root.name] = made
        return self.buffers[root.id]

    def operand(self, value: Value, spans: int = 1) -> Operand:
        """A value whose rows are ``spans`` pieces of consecutive elements."""
        span = span_stride(value, spans)
        if span is None:
            raise ProgramError(f"{value!r} has rows that are no {spans} even pieces")
        return Operand(self.buffer(value), value.offset * 4, value.strides[0], span)

    def strided(self, value: Value) -> Operand:
        """A value (rows, k) or (rows, k, d) addressed by row, second axis and element."""
        inner = value.strides[1:]
        if len(inner) == 2:
            return Operand(self.buffer(value), value.offset * 4, value.strides[0], inner[0])
        step = inner[0] if inner else 1
        return Operand(self.buffer(value), value.offset * 4, value.strides[0], 0, step)

    def constant(self, const: Const | None) -> Operand | None:
        return None if const is None else Operand(None, self.constants.place(const.array))

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
        whole = operand.inner == like.inner
        span = span_stride(operand, spans) or 0 if whole else 0
        return Operand(self.buffer(operand), operand.offset * 4, row, span, int(whole))

    def even(self, value: Value, spans: int = 1) -> Value:
        """The value itself, or a copy of it whose rows are that many even pieces."""
        return value if span_stride(value, spans) is not None else self.copied(value)

    def copied(self, value: Value) -> Value:
        """A copy whose elements lie together."""
        copy = Value(
            -len(self.buffers) - 1, f"{value.name} copied", value.shape, value.dtype, value
        )
        self.copy_into(value, copy, "copy")
        return copy

    def copy_into(
        self, x: Value, y: Value, site: str, offset: int = 0, before: Extent | None = None
    ) -> None:
        """Copies x's elements into y, whose strides they take, from an offset and a row on."""
        if len(x.shape) > 4:
            raise ProgramError(f"{site}: a copy of {len(x.inner)} inner axes; at most 3")
        pad = 3 - len(x.inner)
        sizes = (*[1] * pad, *x.inner)
        strides = (*[0] * pad, *x.strides[1:], *[0] * pad, *y.strides[1:])
        source = Operand(self.buffer(x), x.offset * 4, x.strides[0], x.strides[0])
        at = (y.offset + offset) * 4
        target = Operand(self.buffer(y), at, y.strides[0], y.strides[0], 1, before)
        ints = (*sizes, *strides)
        self.add(Record("copy", site, x.rows, 1, x.width, [source], [target], ints=ints))


def span_stride(value: Value, spans: int) -> int | None:
    """Elements from one of ``spans`` even pieces of a row to the next; None where they are not."""
    if value.strides[-1] != 1 and len(value.shape) > 1:
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
    inner = value.strides[1:]
    rest = tuple(math.prod(value.inner[i + 1 :]) for i in range(axis, len(inner)))
    even = all(inner[i] == inner[i + 1] * value.inner[i + 1] for i in range(axis - 1))
    return inner[axis - 1] if taken == spans and inner[axis:] == rest and even else None
