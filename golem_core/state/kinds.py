"""What keys and values may be kept as, and what that takes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from golem_core.state.declare import Ring

BLOCK = 32  # values that share a scale
LEAST_TURN = 64  # values a Walsh-Hadamard matrix turns at least


@dataclass(frozen=True)
class CacheType:
    """code: as in cpu/kernels/ring.h. dtype: of an element, or of the bytes of a block; block:
    bytes of 32 values, 0 where each stands for itself."""

    name: str
    code: int
    dtype: type
    block: int = 0

    def line(self, width: int) -> int:
        """Elements of ``dtype`` that hold ``width`` values."""
        return width // BLOCK * self.block if self.block else width

    def line_bytes(self, width: int) -> int:
        """Bytes of ``width`` values."""
        return self.line(width) * np.dtype(self.dtype).itemsize


CACHE_TYPES = {
    one.name: one
    for one in (
        CacheType("f16", 0, np.float16),
        CacheType("f32", 1, np.float32),
        CacheType("bf16", 2, np.uint16),
        CacheType("q8_0", 3, np.uint8, 34),
        CacheType("q4_0", 4, np.uint8, 18),
    )
}


def turns(kind: CacheType, rings: Iterable[Ring], side: str) -> int:
    """Values of a line turned together before they are kept, 0 = none.

    llama.cpp's rule: where a cache is in blocks and all layers have heads of one size, a multiple
    of 64. Keys are turned by the largest power of two that divides them, values by 64.

    side: "k" or "v".
    """
    sizes = {getattr(ring, side) for ring in rings}
    if not kind.block or len(sizes) != 1:
        return 0
    (size,) = sizes
    if size % LEAST_TURN:
        return 0
    count = LEAST_TURN
    while side == "k" and size % (2 * count) == 0:
        count *= 2
    return count
