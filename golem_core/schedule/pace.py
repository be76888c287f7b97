"""How long passes take, learned from those seen, and what that allows the next one.

A prompt that is read beside conversations that draw makes them wait: in their passes, when it
ends with one of them, and between their passes otherwise (reading.py). Its share is cut so that
they wait no more than a small multiple of what they wait without it, and never long.
"""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np

LONGEST = 0.25  # seconds between two tokens while a prompt is read
STRETCH = 2.5  # they may be so many times what they are without the prompt
LEAST = 0.25  # of what they are without, that the prompt gets in any case
AIM = 0.85  # of the time there is, so that most passes keep to it
PATIENCE = 0.5  # seconds of reading in pieces, after which other prompts may join
PIECES = 12  # that a pass is read in; one of its steps that is longer than a piece is rare then
NARROWEST = 64  # columns of a pass that is read in pieces, so that it is worth while
FORGETS = 0.9  # of how late the worst piece was, that is still reckoned with after the next
LATEST = 5  # passes that say what a prompt column costs
FIRST = 8  # prompt columns beside drawn ones as long as nothing is known
OPTIMISM = 0.05  # of a pass's time, that a drawn column more is believed to cost until it was seen
STALE = 512  # passes after which a duration is no longer believed


class Prices:
    """How long passes take that only draw, by their columns."""

    def __init__(self):
        self._seen: dict[int, tuple[float, int]] = {}  # columns: seconds, and when
        self._passes = 0
        self._line: np.ndarray | None = None  # seconds by columns, until the next pass

    def saw(self, columns: int, seconds: float) -> None:
        """A pass of drawn columns took so long."""
        self._passes += 1
        before, when = self._seen.get(columns, (seconds, self._passes))
        weight = 0.5 if self._passes - when > STALE else 0.2
        self._seen[columns] = (before + weight * (seconds - before), self._passes)
        self._line = None

    def of(self, most: int) -> np.ndarray | None:
        """Seconds of passes of 0, 1 … ``most`` columns, as far as known; None: nothing is.

        Between two widths that were seen lately it is a line; beyond them hopeful, so that they
        are tried.
        """
        if self._line is None or len(self._line) <= most:
            self._line = self._drawn_to(max(most, 16))
        return None if self._line is None else self._line[: most + 1]

    def _drawn_to(self, most: int) -> np.ndarray | None:
        since = self._passes - STALE
        known = sorted((c, s) for c, (s, when) in self._seen.items() if when >= since)
        if not known:
            return None
        columns, seconds = np.array(known).T
        widths = np.arange(most + 1)
        beyond = OPTIMISM * seconds[-1] * np.maximum(0, widths - columns[-1])
        return np.interp(widths, columns, np.maximum.accumulate(seconds)) + beyond


class Pace:
    """How many prompt columns go into a pass that draws as well."""

    def __init__(self):
        self.last = 0.0  # seconds the last pass took
        self.prices = Prices()
        self._alone: float | None = None  # seconds a prompt column takes where nobody draws
        self._beside: deque[float] = deque(maxlen=LATEST)  # and beside drawn ones
        self._widest = 0  # prompt columns of the last pass that was not a prompt's short end
        self._late = 0.0  # seconds that pieces end after their time, at worst of late

    def saw(self, drawn: int, prompt: int, seconds: float) -> None:
        """A pass of so many drawn and prompt columns took so long."""
        self.last = seconds
        if not prompt:
            self.prices.saw(drawn, seconds)
        elif not drawn:
            column = seconds / prompt
            self._alone = column if self._alone is None else (self._alone + column) / 2
        elif prompt * 2 >= self._widest:
            self._widest = prompt
            self._beside.append(max(seconds - self._floor(drawn), 1e-9) / prompt)

    def _floor(self, drawn: int) -> float:
        """Seconds that drawing takes."""
        line = self.prices.of(drawn)
        return 0.0 if line is None else float(line[drawn])

    def _room(self, drawn: int) -> float:
        """Seconds that a prompt gets for each time that drawn columns are computed."""
        floor = self._floor(drawn)
        longest = min(LONGEST, STRETCH * floor) if floor else LONGEST
        return AIM * max(longest - floor, LEAST * floor)

    def piece(self, drawn: int) -> float:
        """Seconds after which a pass of prompts is to stop for the drawn columns."""
        return max(self._room(drawn) - self._late, AIM * LEAST * self._floor(drawn), 1e-6)

    def stopped(self, asked: float, took: float) -> None:
        """A piece that was to last so long lasted so long."""
        self._late = max(took - asked, FORGETS * self._late)

    def reading_columns(self, drawn: int) -> int:
        """Columns of a pass of prompts that is read in pieces beside the drawn ones."""
        if self._alone is None:
            return NARROWEST
        seconds = min(PATIENCE, PIECES * self._room(drawn))
        return max(NARROWEST, int(seconds / max(self._alone, 1e-9)))

    def prompt_columns(self, drawn: int) -> int:
        """Prompt columns that fit into a pass of the drawn ones; at least 1."""
        room = self._room(drawn)
        if self._beside:
            # One pass that the system held up says nothing about the next; two begin to.
            rising = min(list(self._beside)[-2:])
            most = min(room / max(median(self._beside), rising), 2.0 * self._widest)
        elif self._alone is None:
            most = FIRST
        else:
            # Narrow passes cost more a column than the wide ones of a prompt alone.
            most = room / max(self._alone, 1e-9) / 2
        return max(1, int(most))
