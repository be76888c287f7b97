"""Threads that wait for work, of which the last that had some is woken first.

Every thread that ever served a request keeps some memory of malloc's for its next one (glibc's
thread caches, up to a quarter of a megabyte), which no other thread can use. Where hundreds wait
and the longest waiting is woken first, as ``threading.Condition`` does it, each of them fills that
cache in time; where the latest is, only as many as are ever at work together.
"""

import threading
from contextlib import suppress


class LatestFirst:
    """What a dispatcher needs of ``threading.Condition``, over a lock it holds when it calls."""

    def __init__(self, lock: threading.Lock):
        self._lock = lock
        self._waiting: list[threading.Lock] = []

    def wait(self) -> None:
        """Give up the lock until woken; it is held again afterwards."""
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        self._lock.release()
        try:
            turn.acquire()
        finally:
            self._lock.acquire()
            with suppress(ValueError):  # it was woken
                self._waiting.remove(turn)

    def notify(self) -> None:
        """Wake the one that has waited for the shortest time, if any waits."""
        if self._waiting:
            self._waiting.pop().release()

    def notify_all(self) -> None:
        """Wake all."""
        while self._waiting:
            self.notify()
