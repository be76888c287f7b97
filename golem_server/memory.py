"""Memory that large requests take: how much at once, and that it goes back to the system.

A body of JSON becomes up to twenty times its bytes while it is handled, and glibc keeps what was
freed in an arena for each thread. Both are bounded here: bodies past a size wait for room, and
freed memory is handed back after each of them.
"""

import ctypes
import threading
import time
from collections.abc import Callable

from golem_server.errors import ClientGone, Refusal

LARGE = 64 << 10  # bytes of a body from which it is counted
VALUE_BYTES = 64  # that a value of decoded JSON takes, about
WAIT_SECONDS = 60.0  # a body waits for room
ASK_SECONDS = 0.25  # how often who waits looks whether the client is still there

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's mallopt
_ARENAS = 4
_MAPPED = 1 << 20  # bytes from which an allocation is a mapping of its own, returned when freed
_TRIMMED = 8 << 20  # freed bytes at the top of an arena that are returned at once


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library, where it has it."""
    return getattr(ctypes.CDLL(None), name, None)


def bound_arenas() -> None:
    """Keep what malloc holds for later small, however many threads there are.

    To be called once, before they are started. Does nothing without glibc.
    """
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED)  # which also stops it from growing
        mallopt(_M_TRIM_THRESHOLD, _TRIMMED)


def trim() -> None:
    """Hand every page that is free back to the system: milliseconds, not for every request."""
    malloc_trim = _glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


class Room:
    """How many bytes of large bodies may be handled at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.taken = 0

    def enter(self, size: int, most: int, gone: Callable[[], bool]) -> None:
        """Wait for room for so many bytes, of ``most`` that there are; one body always finds it.

        Raises:
            ClientGone: when the client has hung up.
            Refusal: 503 when that takes long.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while self.taken and self.taken + size > most:
                if not self._changed.wait(ASK_SECONDS) and gone():
                    raise ClientGone
                if time.monotonic() > deadline:
                    raise Refusal(
                        "the server is busy with other large requests: try again later",
                        "unavailable_error",
                        retry=True,
                    )
            self.taken += size

    def add(self, size: int) -> None:
        """What is inside has become larger."""
        with self._changed:
            self.taken += size

    def leave(self, size: int) -> None:
        """Give room back, and the memory to the system."""
        trim()
        with self._changed:
            self.taken -= size
            self._changed.notify_all()


ROOM = Room()
