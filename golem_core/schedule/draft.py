"""Drafts: tokens fed before they are drawn, because they will probably be.

A pass over several columns reads the weights once, so where the next tokens can be guessed they
are fed along and the model says afterwards which of them it would have drawn. Each is drawn from
the model's own scores with the answer's own random numbers, so the text is the one that would have
been drawn anyway. A guess that fails costs time; so the number of columns is chosen that yields
the most tokens a second, by how often guesses came true and how long passes of that width take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from golem_core.schedule._ngram import Ngram
from golem_core.schedule.answer import Answer
from golem_core.schedule.pace import Prices

KINDS = ("auto", "ngram", "off")
LONGEST = 15  # tokens of a draft, unless somebody says otherwise


class Drafter(Protocol):
    """Guesses what one conversation says next."""

    def told(self, tokens: Sequence[int]) -> None:
        """These were drawn, in order."""

    def guess(self, most: int) -> tuple[list[int], list[float]]:
        """At most so many tokens; for each the chance that it is drawn after those before it."""


def drafter(kind: str) -> Callable[[np.ndarray], Drafter] | None:
    """What makes the Drafter of a prompt (n,) i32, None where nothing is to be drafted.

    Raises ValueError for a kind that is none of ``KINDS``.
    """
    if kind not in KINDS:
        raise ValueError(f"draft={kind!r}: it is one of {', '.join(KINDS)}")
    return None if kind == "off" else Ngram


class Drafting:
    """Gives every answer that draws its draft for the next pass.

    kind: one of KINDS. longest: tokens of a draft at most, 0 = by itself. columns: of a pass that
    may be scored. prices: what columns cost.
    """

    def __init__(self, kind: str, longest: int, columns: int, prices: Prices):
        if not 0 <= longest < columns:
            raise ValueError(
                f"drafts of {longest} tokens: at most {columns - 1} are fed in one pass; 0 lets "
                "golem choose"
            )
        self.make = drafter(kind)
        self._prices = prices
        self._longest = longest or min(LONGEST, columns - 1)
        self._columns = columns

    def plan(self, answers: Sequence[Answer]) -> None:
        """Sets the ``draft`` of every answer that draws."""
        guesses = []
        drawn = taken = 0  # columns without drafts: scored ones, and those of prompts
        for answer in answers:
            if not answer.drawing:
                taken += 1
                continue
            answer.draft = []
            drawn += answer.width
            most = min(self._longest, answer.draftable)
            if most > 0:
                tokens, chances = answer.drafter.guess(most)
                if tokens:
                    guesses.append((answer, answer.without_end(tokens), chances))
        if guesses:
            self._divide(guesses, drawn, self._columns - taken - drawn)

    def _divide(self, guesses: list[tuple], drawn: int, room: int) -> None:
        """Takes the likeliest guesses, as many as yield the most tokens a second."""
        offers = [
            (-chance, place, i)
            for i, (_, tokens, chances) in enumerate(guesses)
            for place, chance in enumerate(chances[: len(tokens)])
        ]
        offers = sorted(offers)[: max(0, room)]
        if not offers:
            return
        tokens = drawn + np.cumsum([0.0, *(-chance for chance, _, _ in offers)])
        seconds = self._prices.of(drawn + len(offers))
        if seconds is None:
            best = len(offers)
        else:
            best = int((tokens / np.maximum(seconds[drawn:], 1e-9)).argmax())
        for _, place, i in offers[:best]:
            answer, guess, _ = guesses[i]
            answer.draft = guess[: place + 1]
