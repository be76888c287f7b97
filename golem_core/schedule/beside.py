"""Work that the runner does between its passes: a tower's pass over a picture, piece by piece.

The threads that compute are the model's own, so a tower never takes cores away from a pass that
is running; and conversations that are being drawn go on between its pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

LOOK_SECONDS = 0.1  # between two looks of whoever waits at whether anybody still wants it


class Aside:
    """A pass of another executor, run in pieces by the runner and awaited by another thread."""

    def __init__(self, executor: Any, inputs: Mapping[str, np.ndarray], wanted: tuple[str, ...]):
        self._executor = executor
        self._inputs = inputs
        self._wanted = wanted
        self._pieces: Any = None
        self._outputs: dict[str, np.ndarray] = {}
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._dropped = False

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def wait(self, waiting: Callable[[], None]) -> dict[str, np.ndarray]:
        """The outputs. waiting: called again and again; what it raises gives the work up."""
        try:
            while not self._over.wait(LOOK_SECONDS):
                waiting()
        except BaseException:
            self._dropped = True
            raise
        if self._error is not None:
            raise self._error
        return self._outputs

    # ---- the runner thread

    def step(self, seconds: float) -> None:
        """Does about so many seconds of the work, 0: all of it."""
        try:
            if self._dropped:
                self._finish()
                return
            if self._pieces is None:
                self._pieces = self._executor.begin(self._inputs, self._wanted)
            if self._pieces.advance(seconds):
                self._outputs = {k: v.copy() for k, v in self._pieces.outputs.items()}
                self._finish()
        except Exception as error:  # of this work alone: whoever waits for it is told
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """It will not be done."""
        self._error = error
        self._finish()

    def _finish(self) -> None:
        if self._pieces is not None:
            self._pieces.close()
        self._over.set()
