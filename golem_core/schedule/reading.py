"""A pass of prompts that is read in pieces, with passes of those that draw between them.

A narrow pass is a bad way to read: the weights and, deep in a context, the keys cost as much for
one column as for thirty. So a prompt that is read beside others is not cut into passes that are
short enough for them to bear; it keeps its wide pass, and that stops where the others have waited
long enough, and goes on after they have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from golem_core.schedule.passes import Pass

SHALLOW = 256  # positions before a prompt's next column that are read as soon as the weights


class Reading:
    """One such pass. The runner's own.

    What is in its slots is nobody's until it is over: its answers keep them, cancelled or not.
    """

    def __init__(self, executor: Any, batch: Pass, wanted: tuple[str, ...]):
        self.batch = batch
        self.seconds = 0.0  # so far
        self._pieces = executor.begin(batch.inputs, wanted)

    def advance(self, seconds: float, clock: Callable[[], float]) -> dict[str, np.ndarray] | None:
        """Reads for about so long, 0: to the end. The outputs when it is over, until ``close``."""
        start = clock()
        over = self._pieces.advance(seconds)
        self.seconds += clock() - start
        return self._pieces.outputs if over else None

    def holds(self, answer: Any) -> bool:
        """Whether it feeds columns of that answer."""
        return any(run.answer is answer for run in self.batch.runs)

    def close(self) -> None:
        """Lets go of the executor. Idempotent."""
        self._pieces.close()


def in_pieces(batch: Pass, answers: Iterable[Any]) -> bool:
    """Whether prompts had better be read in pieces than share this pass with what is drawn.

    One that ends with the pass does not pay for its narrowness again and again; but a single
    column deep in a context may take longer than all that is drawn.
    """
    if not 0 < batch.drawn < batch.columns:
        return False
    fed = {id(run.answer): run.count for run in batch.runs[::-1]}
    reading = (a for a in answers if not a.drawing and a.leader is None)
    return any(fed.get(id(a), 0) < a.unread or a.start > SHALLOW for a in reading)
