"""Ops over maps: values (height, width, channels), as pictures and spectra are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph.ops.catalogue import op
from golem_core.graph.values import Extent, Value
from golem_core.graph.weights import Weight

if TYPE_CHECKING:
    from golem_core.graph.builder import Builder


class PictureOps:
    """Convolutions of maps."""

    @op()
    def conv2d(
        self: Builder,
        x: Value,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        stride: int = 1,
        pad: int = 0,
        up: int = 1,
    ) -> Value:
        """Convolution of a map: x (h, w, in), kernel (out, in, kh, kw) -> (h', w', out).

        y[r, c] = bias + Σ_ij w[:, :, i, j] · x[r · stride + i - pad, c · stride + j - pad], a
        cross-correlation; rows and columns outside of x are 0. With up = 2 it reads x with every
        row and column doubled. h' = ⌊(h · up + 2 pad - kh) / stride⌋ + 1, w' likewise. The height
        may be symbolic. gemma4's sound tower; decoders of pictures.
        """
        if len(x.shape) != 3 or w.ndim != 4 or x.dtype != "f32" or w.shape[1] != x.shape[2]:
            raise self.fail("conv2d", f"a kernel {w.shape} over {x!r}; wanted (out, in, kh, kw)")
        if stride < 1 or pad < 0 or up not in (1, 2):
            raise self.fail("conv2d", f"stride {stride}, pad {pad}, up {up}")
        if bias is not None and bias.shape != (w.shape[0],):
            raise self.fail("conv2d", f"a bias {bias.shape} for {w.shape[0]} channels")
        out, _, high, wide = w.shape
        rows = _steps(x.shape[0], up, 2 * pad - high, stride)
        columns = _steps(x.shape[1], up, 2 * pad - wide, stride)
        if columns < 1 or (isinstance(rows, int) and rows < 1):
            raise self.fail("conv2d", f"a kernel {high} x {wide} does not fit into {x!r}")
        matrix = w.transpose(0, 2, 3, 1).reshape(out, -1)  # (out, kh · kw · in)
        return self.emit(
            "conv2d",
            (x,),
            [((rows, columns, out), "f32")],
            weights=(Weight.of(f"{self.site('conv2d')}#{self._ids + 1}", matrix, bias),),
            size=(high, wide),
            stride=stride,
            pad=pad,
            up=up,
        )[0]


def _steps(extent: Extent, up: int, more: int, stride: int) -> Extent:
    """⌊(extent · up + more) / stride⌋ + 1."""
    if isinstance(extent, int):
        return (extent * up + more) // stride + 1
    total = extent if up == 1 else extent * up
    total = total + (more + 1) if more + 1 else total
    return total if stride == 1 else total.ceil_div(stride)
