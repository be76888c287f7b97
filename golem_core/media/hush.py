"""Decoders that print: what C code writes to ``stderr`` about foreign bytes is kept out of the log.

libsndfile reads MP3s with libmpg123 and leaves that one's notes on, a line or more for each damaged
frame. So whoever sends recordings would write to the log, as much as he likes; what matters of it
arrives as an error anyway.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

_lock = Lock()
_inside = 0
_before: int | None = None


@cache
def _stream() -> tuple[ctypes.c_void_p, int] | None:
    """C's variable ``stderr`` and a stream to nowhere; None where the variable has another name."""
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    try:
        variable = ctypes.c_void_p.in_dll(libc, "stderr")
    except ValueError:
        return None
    nowhere = libc.fopen(b"/dev/null", b"we")
    return (variable, nowhere) if nowhere and variable.value else None


@contextmanager
def hushed() -> Iterator[None]:
    """Meanwhile C code prints nothing by ``stderr``, in any thread. Any number may be inside.

    Python's ``sys.stderr``, tracebacks of crashes and glibc's last words write to the descriptor
    and are not affected.
    """
    global _inside, _before
    found = _stream()
    if found is None:
        yield
        return
    variable, nowhere = found
    with _lock:
        if not _inside:
            _before, variable.value = variable.value, nowhere
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                variable.value = _before
