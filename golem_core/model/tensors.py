"""A file's tensors by the names a plugin uses, each checked against the shape it must have.

A header may promise one width and a tensor have another. Checked here, the refusal names the
tensor; found later, it would name an op.
"""

from __future__ import annotations

import math

import numpy as np

from golem_core.graph.weights import Weight, WeightError, Weights


class Tensors(Weights):
    """Weights whose shapes are asked for: ``b.matrix("attn_q", 256, 640)``."""

    def block(self, index: int) -> Tensors:
        return self.below(f"blk.{index}")

    def below(self, prefix: str) -> Tensors:
        """The tensors whose names go on after a prefix and a dot."""
        full = f"{self._prefix}{prefix}."
        return Tensors(self._tensors, full, self._used, self._rotations)

    def matrix(self, name: str, *shape: int, tied: str | None = None) -> Weight:
        """The matrix (out, in), or a stack (experts, out, in), with its bias and scale.

        ``tied`` is used where the file has no such tensor. Raises WeightError.
        """
        if name not in self and (tied is None or tied not in self):
            raise self._missing(name, shape)
        weight = self.linear(name, tied=tied)
        self._check(weight.name, weight.shape, shape)
        return weight

    def flattened(self, name: str, *shape: int) -> Weight:
        """A kernel (out, a, b …) as the matrix (out, a · b · …) that multiplies what it sees."""
        if name not in self:
            raise self._missing(name, shape)
        tensor = self._find(name)
        self._check(f"{self._prefix}{name}", tensor.shape, shape)
        if tensor.type.weights != 1:
            raise WeightError(
                f"{self._prefix}{name} is {tensor.type.name}; a kernel's type is plain"
            )
        flat = math.prod(shape[1:])
        data = tensor.data.reshape(shape[0], -1)
        return Weight(tensor.name, (shape[0], flat), tensor.type, data, self.get(f"{name}.bias"))

    def vector(self, name: str, *shape: int) -> np.ndarray:
        """A small tensor as f32: norms, frequencies. Raises WeightError."""
        if name not in self:
            raise self._missing(name, shape)
        array = self[name]
        self._check(f"{self._prefix}{name}", array.shape, shape)
        return array

    def rows(self, name: str) -> int:
        """How many rows a matrix has. Raises WeightError."""
        shape = self.linear(name).shape
        if len(shape) != 2:
            raise WeightError(f"tensor {self._prefix}{name}.weight is no matrix: {shape}")
        return shape[0]

    def _missing(self, name: str, shape: tuple[int, ...]) -> WeightError:
        return WeightError(
            f"the file has no tensor {self._prefix}{name}.weight; this architecture needs it "
            f"with the shape {shape}"
        )

    def _check(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if tuple(found) != wanted:
            raise WeightError(
                f"tensor {name} has the shape {tuple(found)}; by the header it must be {wanted}"
            )
