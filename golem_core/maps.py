"""Anonymous memory that costs nothing until it is touched, and then comes in huge pages if it can.

What lies in pages of 2 MiB is read up to half as fast again as in pages of 4 KiB, and takes a
fraction of the time to be had. The price: whoever touches a byte takes 2 MiB, so what is filled
bit by bit must lie together in the order in which it is filled.
"""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

import numpy as np

_HUGE_BYTES = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_NO_RESERVE = 0x4000  # MAP_NORESERVE, which the module mmap has since 3.13


def huge_page() -> int:
    """Bytes of a huge page; 0 where the system has none."""
    try:
        return int(_HUGE_BYTES.read_text())
    except (OSError, ValueError):
        return 0


def untouched(size: int) -> np.ndarray:
    """(size,) u8, zero, from a page boundary on; of a huge page, where one fits.

    Raises OSError, ValueError or OverflowError when there is no room for it.
    """
    huge = huge_page() if size >= huge_page() else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    pages = mmap.mmap(-1, max(size, 1) + huge, flags=flags)
    memory = np.frombuffer(pages, np.uint8)
    if not huge:
        return memory[:size]
    with contextlib.suppress(OSError):  # a system that was built without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    skip = -memory.ctypes.data % huge
    return memory[skip : skip + size]
