"""Views: the same elements under another shape; and the ops that copy to make one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.ops.catalogue import op
from golem_core.graph.values import Dim, Value, contiguous_strides, show

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


class ViewOps:
    """Views: the same elements under another shape. They cost nothing."""

    def heads(self: Builder, x: Value, count: int) -> Value:
        """(n, h·d) -> (n, h, d)."""
        if len(x.shape) != 2 or x.shape[1] % count:
            raise self.fail("heads", f"{x!r} cannot be cut into {count} heads")
        return self.reshape(x, (count, x.shape[1] // count))

    def flat(self: Builder, x: Value) -> Value:
        """(n, a, b …) -> (n, a·b·…); copies where the elements of a row do not lie together."""
        return self.reshape(x, (x.width,))

    def reshape(self: Builder, x: Value, inner: Sequence[int]) -> Value:
        """Another cut of the inner axes: (n, *inner)."""
        inner = tuple(inner)
        if math.prod(inner) != x.width:
            raise self.fail("reshape", f"{x!r} cannot become {show((x.rows, *inner))}")
        strides = _reshaped_strides(x, inner)
        if strides is None:
            x = self.copy(x)
            strides = contiguous_strides((x.rows, *inner))
        return self.view("reshape", x, (x.rows, *inner), 0, strides)

    def slice(self: Builder, x: Value, start: int, stop: int, axis: int = -1) -> Value:
        """Elements start .. stop-1 of an axis; of the outermost only where it is no symbol."""
        axis %= len(x.shape)
        extent = x.shape[axis]
        if isinstance(extent, Dim) or not 0 <= start < stop <= extent:
            raise self.fail("slice", f"{start} to {stop} of axis {axis} of {x!r}")
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
        return self.view("slice", x, shape, start * x.strides[axis], x.strides)

    def split(self: Builder, x: Value, sizes: Sequence[int], axis: int = -1) -> tuple[Value, ...]:
        """Consecutive slices of the given sizes; they must use the axis up."""
        axis %= len(x.shape)
        if sum(sizes) != x.shape[axis]:
            raise self.fail("split", f"sizes {tuple(sizes)} do not add up to axis {axis} of {x!r}")
        ends = np.cumsum(sizes).tolist()
        return tuple(
            self.slice(x, end - size, end, axis) for end, size in zip(ends, sizes, strict=True)
        )

    def rows_of(self: Builder, x: Value, factor: int) -> Value:
        """(s, k, d) -> (k·s, d): the second axis joins the outermost."""
        if len(x.shape) < 2 or x.shape[1] != factor or not x.rows_contiguous or x.is_view:
            raise self.fail("rows_of", f"{x!r} cannot give {factor} rows a row")
        shape = (x.rows * factor, *x.shape[2:])
        return self.view("rows_of", x, shape, 0, contiguous_strides(shape))

    def grouped(self: Builder, x: Value, factor: int) -> Value:
        """(k·s, d) -> (s, k, d): k consecutive rows become one."""
        if x.is_view:
            x = self.copy(x)
        rows = x.rows.exact_div(factor) if isinstance(x.rows, Dim) else x.rows // factor
        if not isinstance(x.rows, Dim) and x.rows % factor:
            raise self.fail("grouped", f"{factor} does not divide the rows of {x!r}")
        shape = (rows, factor, *x.inner)
        return self.view("grouped", x, shape, 0, contiguous_strides(shape))

    @op(rowwise=True)
    def copy(self: Builder, x: Value) -> Value:
        """The same elements, lying together."""
        return self.emit("copy", (x,), [(x.shape, x.dtype)])[0]

    def permute(self: Builder, x: Value, order: Sequence[int]) -> Value:
        """The inner axes in another order: result axis i is inner axis order[i] of x. Copies."""
        if sorted(order) != list(range(len(x.inner))):
            raise self.fail("permute", f"order {tuple(order)} of the inner axes of {x!r}")
        axes = [0, *(o + 1 for o in order)]
        shape = tuple(x.shape[a] for a in axes)
        turned = self.view("permute", x, shape, 0, tuple(x.strides[a] for a in axes))
        return self.copy(turned)

    @op()
    def concat(self: Builder, parts: Sequence[Value], axis: int = -1) -> Value:
        """The parts one after the other along an axis."""
        axis %= len(parts[0].shape)
        for x in parts[1:]:
            if (*x.shape[:axis], *x.shape[axis + 1 :]) != (
                *parts[0].shape[:axis],
                *parts[0].shape[axis + 1 :],
            ) or x.dtype != parts[0].dtype:
                raise self.fail("concat", f"{x!r} does not continue {parts[0]!r} on axis {axis}")
        extent = parts[0].shape[axis]
        for x in parts[1:]:
            extent = extent + x.shape[axis]
        shape = (*parts[0].shape[:axis], extent, *parts[0].shape[axis + 1 :])
        return self.emit("concat", parts, [(shape, parts[0].dtype)], axis=axis)[0]


def _reshaped_strides(x: Value, inner: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show x's rows in another cut, None where only a copy can."""
    if x.rows_contiguous:
        return (x.strides[0], *contiguous_strides((1, *inner))[1:])
    # One axis cut in two, the others kept: the split halves share the old axis's stride.
    strides: list[int] = []
    left = list(zip(x.inner, x.strides[1:], strict=True))
    want = list(inner)
    while left:
        size, stride = left.pop(0)
        taken = []
        while math.prod(taken) < size and want:
            taken.append(want.pop(0))
        if math.prod(taken) != size:
            return None
        for i in range(len(taken)):
            strides.append(stride * math.prod(taken[i + 1 :]))
    return (x.strides[0], *strides) if not want else None
