"""No search for garbage while a large grammar is put together.

Python's collector goes through all objects when a quarter more have piled up, and nothing else of
the process runs meanwhile: five times a tenth of a second for a schema of a megabyte, every one of
them a gap in what others draw. What is put together is all in use, so there is nothing to find.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_at_work = 0  # threads that put a grammar together
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """The collector rests until the last that asked for it is done."""
    global _at_work, _was_enabled
    with _lock:
        if not _at_work:
            _was_enabled = gc.isenabled()
            gc.disable()
        _at_work += 1
    try:
        yield
    finally:
        with _lock:
            _at_work -= 1
            if not _at_work and _was_enabled:
                gc.enable()
