"""The last answers in numbers: how long their prompts were, how fast they were drawn.

Kept for whoever watches the server. Nothing of a prompt or an answer is in them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from golem_core.schedule.request import Result

KEPT = 256


class Record(NamedTuple):
    """One answer that ended; failed and cancelled ones too. Unmeasured values are None."""

    at: float  # when it ended, seconds since 1970
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_ms: float
    prompt_ms: float
    ttft_ms: float | None
    eval_ms: float
    finish: str
    grammar_ms: float
    resampled: int
    energy_j: float | None
    prompt_per_second: float | None
    eval_per_second: float | None
    joules_per_token: float | None


class Totals(NamedTuple):
    """Sums over all answers since the start."""

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    energy_j: float | None = None


class Records:
    """A ring of the last records and sums over all. Any thread may write and read.

    clock: seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._lock = threading.Lock()
        self._last: deque[Record] = deque(maxlen=KEPT)
        self._totals = Totals()

    def add(self, model: str, result: Result) -> None:
        """Takes down how an answer ended."""
        fed, drawn, energy = result.fed_tokens, result.drawn_tokens, result.energy_j
        gaps = drawn - 1
        record = Record(
            at=self._clock(),
            model=model,
            prompt_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            completion_tokens=drawn,
            queue_ms=result.queue_ms,
            prompt_ms=result.prompt_ms,
            ttft_ms=result.first_ms,
            eval_ms=result.draw_ms,
            finish=result.finish_reason,
            grammar_ms=result.grammar_ms,
            resampled=result.resampled,
            energy_j=energy,
            prompt_per_second=1e3 * fed / result.prompt_ms if fed and result.prompt_ms else None,
            eval_per_second=1e3 * gaps / result.draw_ms if gaps > 0 and result.draw_ms else None,
            joules_per_token=energy / drawn if energy is not None and drawn else None,
        )
        with self._lock:
            self._last.append(record)
            before = self._totals
            joules = before.energy_j
            if energy is not None:
                joules = (joules or 0.0) + energy
            self._totals = Totals(
                before.answers + 1,
                before.prompt_tokens + result.prompt_tokens,
                before.completion_tokens + drawn,
                joules,
            )

    @property
    def last(self) -> list[Record]:
        """The latest records, oldest first."""
        with self._lock:
            return list(self._last)

    @property
    def totals(self) -> Totals:
        with self._lock:
            return self._totals
