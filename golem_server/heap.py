"""Giving freed memory back to the system, which glibc's malloc does by itself only at the end of
a heap: a model that was dropped would leave its holes in the heaps of every thread."""

import ctypes
from collections.abc import Callable


def _trimmer() -> Callable[[int], object]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # a C library without it
        return lambda keep: None


_trim = _trimmer()


def give_back() -> None:
    """Hands every free page of malloc's back. Milliseconds; not for every request."""
    _trim(0)
