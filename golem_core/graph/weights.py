"""Weights as a program sees them: a view of the file's map plus what using it right takes.

File dialects stop here. ``w.linear("blk.0.attn_q")`` gathers the matrix, its bias and its scale by
GGUF's naming rules, so a plugin that writes ``p.linear(x, b.linear("attn_q"))`` is right for plain,
biased and scaled files alike. Nothing is copied: an executor repacks what it wants to.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from golem_core.formats.blocks import BlockType, by_name, dequantise


class WeightError(ValueError):
    """A tensor is missing from the file or has another shape than the architecture gives it."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """An orthogonal map of rows that a matrix was folded with: its columns are rotated back.

    Each ``block`` consecutive elements of s · x, s the signs (+1 or -1, or None), are multiplied
    by a Hadamard matrix over sqrt(block). kind "sylvester": the natural order, of any power of 2;
    "h4": powers of ((1, 1, 1, -1), (1, 1, -1, 1), (1, -1, 1, 1), (-1, 1, 1, 1)), of any power of 4.
    turned: (a, b, c), where x is (a, b, c) in another order than the fold knew, (b, a, c).
    """

    kind: str
    block: int
    signs: np.ndarray | None = None
    turned: tuple[int, int, int] | None = None


@dataclass(frozen=True, eq=False)
class Weight:
    """A matrix ``(out, in)`` or a stack of them ``(experts, out, in)`` in the file's own blocks.

    data: u8, shape[:-1] + (bytes of a row,), a view of the map. bias: f32 (out,) or None.
    scale: f32 scalar, or (out,), that multiplies the product; None for 1. clip: the least and the
    most that is multiplied, and that comes out before the bias; None for no bounds. rotation: what
    vectors must go through before they are multiplied, and rows, backwards, when they are read.
    """

    name: str
    shape: tuple[int, ...]
    type: BlockType
    data: np.ndarray = field(repr=False)
    bias: np.ndarray | None = field(default=None, repr=False)
    scale: np.ndarray | None = field(default=None, repr=False)
    clip: tuple[float, float, float, float] | None = None
    rotation: Rotation | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, array: np.ndarray, bias: np.ndarray | None = None) -> Weight:
        """An array of f32 as a weight of its own shape, which must have two or three axes."""
        array = np.ascontiguousarray(array, np.float32)
        return cls(name, array.shape, by_name("F32"), array.view(np.uint8), bias)

    @property
    def out(self) -> int:
        return self.shape[-2]

    @property
    def width(self) -> int:
        """Elements of one row: the length of the vectors it multiplies."""
        return self.shape[-1]

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def rows(self, start: int, stop: int) -> Weight:
        """The rows start .. stop-1 of the matrix (of every expert's matrix)."""
        if not 0 <= start < stop <= self.out:
            raise WeightError(f"{self.name}: rows {start} to {stop} of {self.out}")

        def cut(part):
            return None if part is None or part.ndim == 0 else part[..., start:stop]

        return replace(
            self,
            name=f"{self.name}[{start}:{stop}]",
            shape=(*self.shape[:-2], stop - start, self.width),
            data=self.data[..., start:stop, :],
            bias=cut(self.bias),
            scale=self.scale if self.scale is None or self.scale.ndim == 0 else cut(self.scale),
        )

    def permute_rows(self, index: np.ndarray) -> Weight:
        """The rows index[0], index[1] … in that order, copied out of the map."""
        index = np.asarray(index)
        if index.size and not 0 <= index.min() <= index.max() < self.out:
            raise WeightError(f"{self.name}: rows {index.min()} to {index.max()} of {self.out}")
        number = zlib.crc32(index.astype(np.int64).tobytes())

        def chosen(part):
            return None if part is None or part.ndim == 0 else part[..., index]

        return replace(
            self,
            name=f"{self.name}[{number:08x}]",
            shape=(*self.shape[:-2], len(index), self.width),
            data=np.ascontiguousarray(self.data[..., index, :]),
            bias=chosen(self.bias),
            scale=self.scale if self.scale is None or self.scale.ndim == 0 else chosen(self.scale),
        )

    def expert(self, index: int) -> Weight:
        """One matrix of a stack."""
        if len(self.shape) != 3 or not 0 <= index < self.shape[0]:
            raise WeightError(f"{self.name}: matrix {index} of {self.shape}")
        return replace(
            self, name=f"{self.name}[{index}]", shape=self.shape[1:], data=self.data[index]
        )

    def columns(self, start: int, stop: int) -> Weight:
        """The elements start .. stop-1 of every row, whole blocks of them; for tables of rows."""
        size = self.type.weights
        if not 0 <= start < stop <= self.width or start % size or stop % size:
            raise WeightError(
                f"{self.name}: columns {start} to {stop} of {self.width}, in blocks of {size}"
            )
        return replace(
            self,
            name=f"{self.name}[:, {start}:{stop}]",
            shape=(*self.shape[:-1], stop - start),
            data=self.data[..., start // size * self.type.bytes : stop // size * self.type.bytes],
            bias=None,
            scale=None,
        )

    def numpy(self) -> np.ndarray:
        """The whole of it as f32, in its own shape: for tests and for small weights."""
        return dequantise(self.data, self.type)


NO_ROTATIONS: Mapping[str, Rotation] = {}


class Weights:
    """The tensors of a file, or those below a prefix of it, by the names a plugin uses.

    ``w["output_norm"]`` is a small vector as f32; ``w.linear(name)`` a matrix for ``p.linear`` or
    ``p.rows``; ``w.block(i)`` the same for the names below ``blk.i.``.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any],
        prefix: str = "",
        used: set[str] | None = None,
        rotations: Mapping[str, Rotation] = NO_ROTATIONS,
    ):
        """rotations: by the full names of the matrices that were folded with one."""
        self._tensors = tensors
        self._prefix = prefix
        self._used = set() if used is None else used
        self._rotations = rotations

    @property
    def prefix(self) -> str:
        """What stands before the names that are asked for: "blk.3."."""
        return self._prefix

    def block(self, index: int) -> Weights:
        full = f"{self._prefix}blk.{index}."
        return Weights(self._tensors, full, self._used, self._rotations)

    def _find(self, name: str):
        for full in (f"{self._prefix}{name}.weight", f"{self._prefix}{name}"):
            if full in self._tensors:
                self._used.add(full)
                return self._tensors[full]
        return None

    def __contains__(self, name: str) -> bool:
        full = self._prefix + name
        return f"{full}.weight" in self._tensors or full in self._tensors

    def __getitem__(self, name: str) -> np.ndarray:
        """A small tensor as f32 in its own shape, for norms, biases and tables of frequencies."""
        array = self.get(name)
        if array is None:
            raise WeightError(f"the file has no tensor {self._prefix}{name}.weight")
        return array

    def get(self, name: str) -> np.ndarray | None:
        """As ``w[name]``, None where the file has no such tensor."""
        tensor = self._find(name)
        if tensor is None:
            return None
        return dequantise(tensor.data, tensor.type).reshape(tensor.shape)

    def linear(self, name: str, *, tied: str | None = None) -> Weight:
        """The matrix ``name`` with its bias and scale; ``tied`` is used where the file has none."""
        tensor = self._find(name)
        if tensor is None and tied is not None:
            return self.linear(tied)
        if tensor is None:
            raise WeightError(f"the file has no tensor {self._prefix}{name}.weight")
        if len(tensor.shape) not in (2, 3):
            raise WeightError(f"{tensor.name} has {len(tensor.shape)} axes; a product needs 2 or 3")
        bias, scale = self.get(f"{name}.bias"), self.get(f"{name}.scale")
        if bias is not None and bias.shape != (tensor.shape[-2],):
            raise WeightError(
                f"{self._prefix}{name}.bias has the shape {bias.shape}, its matrix {tensor.shape}"
            )
        if scale is not None:
            scale = scale.reshape(()) if scale.size == 1 else scale.reshape(-1)
        more = self._clip(name), self._rotations.get(tensor.name)
        return Weight(tensor.name, tensor.shape, tensor.type, tensor.data, bias, scale, *more)

    def _clip(self, name: str) -> tuple[float, float, float, float] | None:
        """The bounds of a clipped matrix, infinite where the file has none."""
        ends = ("input_min", "input_max", "output_min", "output_max")
        found = [self.get(f"{name}.{end}") for end in ends]
        if all(one is None for one in found):
            return None
        if any(one is not None and one.size != 1 for one in found):
            raise WeightError(f"{self._prefix}{name}: its bounds must be single numbers")
        none = (-np.inf, np.inf, -np.inf, np.inf)
        values = (
            n if one is None else float(one.reshape(())) for one, n in zip(found, none, strict=True)
        )
        return tuple(values)

    def unused(self) -> list[str]:
        """Names of the file's tensors that nobody has asked for so far."""
        return sorted(set(self._tensors) - self._used)
