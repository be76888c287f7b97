"""Memory for weights, in huge pages: at once where the system has them at hand, else later.

Weights are read at the speed of memory, and a tenth of it is lost where they lie in small pages.
But a virtual machine may have given the memory that makes up huge pages back to its host; taking
one then costs milliseconds, and a model would load several times slower than a program that is
content with small ones. So what comes slowly is left for later: small pages now, made into huge
ones by `settle` while nothing else is to be done.
"""

from __future__ import annotations

import mmap

import numpy as np

from golem_core.cpu import _executor
from golem_core.maps import huge_page

SLOW = 5e-10  # seconds of a processor for a byte: 1 ms for 2 MiB, which takes a tenth at hand


class Pages:
    """Anonymous memory at ``address``, ``size`` bytes of it, zero until written."""

    def __init__(self, size: int):
        self.size = size
        self.huge = huge_page()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, size + (self.huge or mmap.PAGESIZE), flags=flags)
        at = np.frombuffer(self._map, np.uint8).ctypes.data
        self._skip = -at % (self.huge or mmap.PAGESIZE)
        self.address = at + self._skip
        self._whole = size // self.huge * self.huge if self.huge else 0  # bytes huge pages can hold
        self._touched = 0
        self._unsettled = self._whole  # from here on pages are small

    def touch(self, end: int, pool: _executor.Pool) -> None:
        """Has the pages before ``address + end`` ready to be written, where they are huge."""
        end = min(-(-end // self.huge) * self.huge, self._whole) if self.huge else 0
        if end <= self._touched or self._unsettled < self._whole:
            return
        first, self._touched = self._touched, end
        self._map.madvise(mmap.MADV_HUGEPAGE, self._skip + first, end - first)
        taken = pool.touch(self.address + first, (end - first) // self.huge, self.huge)
        if taken > SLOW * (end - first) and end < self._whole:
            self._map.madvise(mmap.MADV_NOHUGEPAGE, self._skip + end, self._whole - end)
            self._unsettled = end

    def touched(self) -> None:
        """All of it has been written: from now on small pages may become huge."""
        if self._unsettled < self._whole:
            rest = self._whole - self._unsettled
            self._map.madvise(mmap.MADV_HUGEPAGE, self._skip + self._unsettled, rest)

    def settle(self) -> bool:
        """Makes one more huge page out of small ones, in some milliseconds; False: none is left.

        Nobody may need the memory meanwhile: whoever reads there waits.
        """
        if self._unsettled < self._whole:
            at = self.address + self._unsettled
            self._unsettled += self.huge
            if not _executor.collapse(at, self.huge):  # there are none, or not in this system
                self._unsettled = self._whole
        return self._unsettled < self._whole
