"""How long passes take, learned from those seen, and what that allows the next one.

A prompt that is read beside conversations that draw makes their passes longer. Its share is cut
so that they notice little of it, and that the prompt gets on all the same.
"""

from __future__ import annotations

import numpy as np

LONGEST = 0.25  # seconds a pass may last while anyone draws
NOTICED = 0.05  # seconds between two tokens that nobody minds
STRETCH = 2.5  # a pass may last so many times what it lasts without the prompt
LEAST = 0.25  # of what it lasts without, that the prompt gets in any case
AIM = 0.85  # of the time there is, so that most passes keep to it
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
        self._columns: float | None = None  # that fit beside drawn ones

    def saw(self, drawn: int, prompt: int, seconds: float) -> None:
        """A pass of so many drawn and prompt columns took so long."""
        self.last = seconds
        if not prompt:
            self.prices.saw(drawn, seconds)
        elif not drawn:
            column = seconds / prompt
            self._alone = column if self._alone is None else (self._alone + column) / 2
        else:
            self._adapt(drawn, prompt, seconds)

    def _adapt(self, drawn: int, prompt: int, seconds: float) -> None:
        """Towards as many columns as take the time there is; what they cost may change."""
        floor, room = self._times(drawn)
        ratio = room / max(seconds - floor, 1e-9)
        short = self._columns is not None and prompt < self._columns / 2
        if not short or ratio < 1:  # of a prompt's short end only haste is learned
            self._columns = max(1.0, prompt * min(2.0, ratio))

    def _times(self, drawn: int) -> tuple[float, float]:
        """Seconds that drawing takes, and those that are left for prompts."""
        line = self.prices.of(drawn)
        floor = 0.0 if line is None else float(line[drawn])
        longest = min(LONGEST, max(NOTICED, STRETCH * floor)) if floor else LONGEST
        return floor, AIM * max(longest - floor, LEAST * floor)

    def prompt_columns(self, drawn: int) -> int:
        """Prompt columns that fit beside the drawn ones; at least 1."""
        if self._columns is None:
            if self._alone is None:
                return FIRST
            # Narrow passes cost more a column than the wide ones of a prompt alone.
            self._columns = max(1.0, self._times(drawn)[1] / max(self._alone, 1e-9) / 2)
        return int(self._columns)
