"""Many requests of a stateless model in shared passes: embeddings, decisions.

A job is a list of items (texts, rows) with a size each (tokens). One thread runs the passes: it
takes an item from every waiting job in turn until a pass is full, so that a long job does not hold
up a short one, and waits a few milliseconds for company when a pass would be nearly empty. What is
finished and not yet fetched is bounded: a job whose reader is slow is left out until it reads on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from golem_core.schedule.errors import EngineClosed, PassFailed, QueueFull

FILL = 256  # size from which a pass does not wait for company
WAIT_SECONDS = 0.003  # how long one that is smaller does
CAP = 4096  # size of a pass at most
AHEAD = 2  # passes' worth of results that may lie unread


@dataclass(frozen=True)
class BatchStats:
    """Plain counters since the start."""

    passes: int = 0
    items: int = 0
    size: int = 0  # sum of the items' sizes
    seconds: float = 0.0  # inside passes


class BatchJob:
    """The items of one request. Read ``results`` once, or ``cancel``."""

    def __init__(self, batcher: Batcher, items: Sequence[Any], sizes: Sequence[int]):
        self.items = items
        self.sizes = sizes
        self.cancelled = False
        self._batcher = batcher
        self._next = 0  # the first item that no pass has taken
        self._done: deque[Any] = deque()  # results not yet read, in order
        self._unread = 0  # their size, with that of the items in the running pass
        self._read = 0  # results read
        self._error: BaseException | None = None

    def results(
        self, gone: Callable[[], bool] = lambda: False, every: float = 0.05
    ) -> Iterator[Any]:
        """The results in the items' order, as they are finished.

        gone: asked every so many seconds while waiting; where it says True the job is cancelled
        and the iteration ends. Raises PassFailed when the pass of an item failed, EngineClosed.
        """
        condition = self._batcher.changed
        look = time.monotonic() + every
        while self._read < len(self.items):
            with condition:
                while not self._done and self._error is None and not self.cancelled:
                    condition.wait(every)
                    if time.monotonic() >= look:
                        if gone():
                            self._batcher.forget(self)
                        look = time.monotonic() + every
                if not self._done or self.cancelled:
                    if self._error is not None:
                        raise self._error
                    return
                result = self._done.popleft()
                self._unread -= self.sizes[self._read]
                self._read += 1
                condition.notify_all()
            yield result

    def all(self, gone: Callable[[], bool] = lambda: False) -> list[Any] | None:
        """Every result; None where the job was cancelled. Raises as ``results`` does."""
        made = list(self.results(gone))
        return made if len(made) == len(self.items) else None

    def cancel(self) -> None:
        """Takes the job out of the passes to come. Idempotent."""
        with self._batcher.changed:
            self._batcher.forget(self)

    # ---- for the batcher, with its lock held

    def waits(self) -> bool:
        """Whether a pass may take an item."""
        return self._next < len(self.items) and self._unread < AHEAD * self._batcher.cap

    def next_size(self) -> int:
        return self.sizes[self._next]

    def take(self) -> tuple[Any, int]:
        """The next item and its size."""
        item, size = self.items[self._next], self.sizes[self._next]
        self._unread += size
        self._next += 1
        return item, size

    def give(self, result: Any) -> None:
        self._done.append(result)

    def fail(self, error: BaseException) -> None:
        self._error = error


_Taken = tuple[BatchJob, Any, int]  # an item a pass holds, and its size


class Batcher:
    """Runs jobs in shared passes on a thread of its own.

    run: one pass, items -> as many results; called on the batcher's thread. fill, wait, cap: see
    the module. most: items of a pass at most. queue: jobs that may wait.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], Sequence[Any]],
        *,
        name: str,
        fill: int = FILL,
        wait: float = WAIT_SECONDS,
        cap: int = CAP,
        most: int = 1 << 30,
        queue: int = 256,
    ):
        self.cap = cap
        self.changed = threading.Condition()
        self._run = run
        self._fill = min(fill, cap)
        self._wait = wait
        self._most = most
        self._queue = queue
        self._jobs: deque[BatchJob] = deque()
        self._closing = False
        self._stats = BatchStats()
        self._thread = threading.Thread(target=self._work, name=f"golem-{name}", daemon=True)
        self._thread.start()

    def submit(self, items: Sequence[Any], sizes: Sequence[int]) -> BatchJob:
        """A job. Raises QueueFull, EngineClosed; ValueError for an item larger than a pass."""
        if len(items) != len(sizes) or not all(0 < size <= self.cap for size in sizes):
            raise ValueError(f"sizes {min(sizes)} to {max(sizes)}; a pass holds 1 to {self.cap}")
        job = BatchJob(self, items, sizes)
        with self.changed:
            if self._closing:
                raise EngineClosed("this model is not open any more")
            if len(self._jobs) >= self._queue:
                raise QueueFull(self._queue)
            if items:
                self._jobs.append(job)
                self.changed.notify_all()
        return job

    @property
    def stats(self) -> BatchStats:
        """Counters since the start."""
        return self._stats

    @property
    def waiting(self) -> int:
        """Jobs that a pass has still something of to do."""
        return len(self._jobs)

    def forget(self, job: BatchJob) -> None:
        """Takes a job out; its lock must be held."""
        job.cancelled = True
        if job in self._jobs:
            self._jobs.remove(job)
        self.changed.notify_all()

    def close(self) -> None:
        """Fails whatever waits; returns when the running pass is over. Idempotent."""
        with self.changed:
            self._closing = True
            for job in self._jobs:
                job.fail(EngineClosed("this model was closed"))
            self._jobs.clear()
            self.changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- on the batcher's thread

    def _work(self) -> None:
        while (taken := self._gather()) is not None:
            items = [item for _, item, _ in taken]
            began = time.monotonic()
            try:
                made: Sequence[Any] = self._run(items)
                error = None
            except Exception as failure:
                error = PassFailed(f"a pass failed: {type(failure).__name__}: {failure}")
                error.__cause__ = failure
            self._hand_out(taken, None if error else made, error, time.monotonic() - began)

    def _gather(self) -> list[_Taken] | None:
        """What the next pass holds; waits for it. None when closing."""
        with self.changed:
            self.changed.wait_for(lambda: self._closing or self._ready())
            if self._closing:
                return None
            if self._size() < self._fill:
                self.changed.wait_for(
                    lambda: self._closing or self._size() >= self._fill, self._wait
                )
            if self._closing:
                return None
            return self._take()

    def _ready(self) -> bool:
        return any(job.waits() for job in self._jobs)

    def _size(self) -> int:
        """The size of what waits, counted no further than it matters."""
        total = 0
        for job in self._jobs:
            if job.waits():
                for size in job.sizes[job._next :]:
                    total += size
                    if total >= self._fill:
                        return total
        return total

    def _take(self) -> list[_Taken]:
        """An item of every job in turn, until the pass is full."""
        taken: list[_Taken] = []
        room = self.cap
        turn = [job for job in self._jobs if job.waits()]
        while turn and len(taken) < self._most:
            still = []
            for job in turn:
                if len(taken) >= self._most or job.next_size() > room:
                    continue
                item, size = job.take()
                room -= size
                taken.append((job, item, size))
                if job.waits():
                    still.append(job)
            turn = still
        # Whoever came first this time comes last the next.
        self._jobs.rotate(-1)
        for job in [job for job in self._jobs if job._next >= len(job.items)]:
            self._jobs.remove(job)
        return taken

    def _hand_out(
        self,
        taken: list[_Taken],
        made: Sequence[Any] | None,
        error: BaseException | None,
        seconds: float,
    ) -> None:
        with self.changed:
            for at, (job, _, _) in enumerate(taken):
                if error is not None:
                    job.fail(error)
                    if job in self._jobs:
                        self._jobs.remove(job)
                elif made is not None:
                    job.give(made[at])
            s = self._stats
            size = sum(size for _, _, size in taken)
            self._stats = BatchStats(
                s.passes + 1, s.items + len(taken), s.size + size, s.seconds + seconds
            )
            self.changed.notify_all()
