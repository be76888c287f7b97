# distutils: sources = golem_core/formats/guard.c
# distutils: include_dirs = golem_core/formats
# cython: language_level=3
"""Memory maps of files that outlive the file: pages that are cut off read as zeros.

See guard.c. The signal handler is there from the first map on, and as long as the process.
"""

import mmap

from libc.stdint cimport uint8_t


cdef extern from "guard.h" nogil:
    ctypedef struct golem_guard:
        pass
    golem_guard *golem_guard_watch(const void *start, size_t bytes)
    int golem_guard_lost(const golem_guard *guard)
    void golem_guard_forget(golem_guard *guard)


cdef class Guard:
    """The watch over one map, for as long as this object lives."""

    cdef golem_guard *guard

    def __cinit__(self, const uint8_t[::1] contents):
        self.guard = golem_guard_watch(&contents[0], contents.shape[0])
        if self.guard == NULL:
            raise MemoryError("no room to watch a map")

    def __dealloc__(self):
        if self.guard != NULL:
            golem_guard_forget(self.guard)

    @property
    def lost(self):
        """Whether a read met a page that the file no longer has."""
        return bool(golem_guard_lost(self.guard))


class GuardedMap(mmap.mmap):
    """A read-only map of a whole file. ``lost``: part of the file went away and was read."""

    def __new__(cls, int descriptor, size):
        self = super().__new__(cls, descriptor, size, access=mmap.ACCESS_READ)
        self._guard = Guard(self)
        return self

    @property
    def lost(self):
        return self._guard.lost

    def __del__(self):
        # Before the addresses go back to the system and mean something else.
        self._guard = None
