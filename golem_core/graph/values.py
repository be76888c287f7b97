"""The typed values of a program: what an author holds between two ops.

A value is an array whose inner extents are known when the program is written and whose outermost
extent may be symbolic (``n`` columns of a pass, ``m`` scored rows), so all strides are constants
and a plan made for the maxima runs any smaller binding. A view shares another value's storage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


class ProgramError(ValueError):
    """The program an author writes, or a pass that is bound to it, does not fit together."""


@dataclass(frozen=True)
class Dim:
    """An outermost extent: ``ceil((sum of factor * symbol + const) / divisor)``."""

    terms: tuple[tuple[str, int], ...]
    const: int = 0
    divisor: int = 1

    @classmethod
    def of(cls, symbol: str) -> Dim:
        return cls(((symbol, 1),))

    def __mul__(self, factor: int) -> Dim:
        if self.divisor != 1:
            raise ProgramError(f"{self} times {factor}: a rounded-up extent cannot be multiplied")
        terms = tuple((s, f * factor) for s, f in self.terms)
        return Dim(terms, self.const * factor)

    __rmul__ = __mul__

    def __add__(self, other: int | Dim) -> Dim:
        other = other if isinstance(other, Dim) else Dim((), other)
        if self.divisor != 1 or other.divisor != 1:
            raise ProgramError(f"{self} + {other}: a rounded-up extent cannot be added to")
        total = dict(self.terms)
        for symbol, factor in other.terms:
            total[symbol] = total.get(symbol, 0) + factor
        return Dim(tuple(sorted(total.items())), self.const + other.const)

    __radd__ = __add__

    def ceil_div(self, divisor: int) -> Dim:
        """ceil(self / divisor); nested divisions multiply: ceil(ceil(a / b) / c) = ceil(a / bc)."""
        return Dim(self.terms, self.const, self.divisor * divisor)

    def exact_div(self, divisor: int) -> Dim:
        """self / divisor where every factor and the constant are multiples of it."""
        if divisor == 1:
            return self
        if self.divisor != 1 or self.const % divisor or any(f % divisor for _, f in self.terms):
            raise ProgramError(f"{divisor} does not divide the extent {self}")
        return Dim(tuple((s, f // divisor) for s, f in self.terms), self.const // divisor)

    def at(self, bindings: Mapping[str, int]) -> int:
        """The extent under a binding of its symbols."""
        total = self.const + sum(f * bindings[s] for s, f in self.terms)
        return -(-total // self.divisor)

    def __str__(self) -> str:
        parts = [s if f == 1 else f"{f}{s}" for s, f in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        text = "+".join(parts)
        return text if self.divisor == 1 else f"ceil({text}/{self.divisor})"


Extent = int | Dim
Shape = tuple[Extent, ...]


def extent_at(extent: Extent, bindings: Mapping[str, int]) -> int:
    """An extent, symbolic or not, under a binding."""
    return extent.at(bindings) if isinstance(extent, Dim) else extent


def show(shape: Shape) -> str:
    """A shape as error texts spell it: ``(n, 576)``."""
    return "(" + ", ".join(str(e) for e in shape) + ("," if len(shape) == 1 else "") + ")"


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Row-major strides in elements; they depend on the inner extents alone."""
    inner = shape[1:]
    return tuple(math.prod(inner[i:]) for i in range(len(shape)))


class Value:
    """One array of a program. Attributes are fixed once the builder has made it.

    shape: outermost extent first, inner ones ints. dtype: "f32" or "i32".
    root, offset, strides: where its elements lie, in elements of the root's storage; a value that
    is no view is its own root with row-major strides. node: the op that makes it (None: an input).
    """

    __slots__ = ("dtype", "id", "name", "node", "offset", "root", "shape", "strides")

    def __init__(self, id, name, shape, dtype, node=None, root=None, offset=0, strides=None):
        self.id: int = id
        self.name: str = name
        self.shape: Shape = tuple(shape)
        self.dtype: str = dtype
        self.node = node
        self.root: Value = self if root is None else root
        self.offset: int = offset
        self.strides: tuple[int, ...] = strides or contiguous_strides(self.shape)

    @property
    def rows(self) -> Extent:
        return self.shape[0]

    @property
    def inner(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def width(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[1:])

    @property
    def is_view(self) -> bool:
        return self.root is not self

    @property
    def rows_contiguous(self) -> bool:
        """Whether the elements of one row lie next to each other."""
        return self.strides[1:] == contiguous_strides(self.shape)[1:]

    def __repr__(self) -> str:
        return f"{self.name} {show(self.shape)} {self.dtype}"


class Const:
    """A small array known while the program is written: norm weights, frequencies, scales."""

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = np.ascontiguousarray(array, dtype=np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __repr__(self) -> str:
        return f"const {show(self.shape)}"
