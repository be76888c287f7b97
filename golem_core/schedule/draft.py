"""Drafts: tokens fed before they are drawn, because they will probably be.

A pass over several columns reads the weights once, so where the next tokens can be guessed they
are fed along and the model says afterwards which of them it would have drawn. Each is drawn from
the model's own scores with the answer's own random numbers, so the text is the one that would have
been drawn anyway. A guess that fails costs time; so the number of columns is chosen that yields
the most tokens a second, by how often guesses came true and how long passes of that width take.

Guesses come from what the conversation said before (_ngram.pyx) and, where a model has one, from
its prediction block (foresight.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from golem_core.model.prediction import KINDS
from golem_core.schedule._ngram import Ngram
from golem_core.schedule.answer import Answer
from golem_core.schedule.foresight import Foreseen, Foresight
from golem_core.schedule.pace import Prices

LONGEST = 15  # tokens of a draft, unless somebody says otherwise


class Drafter(Protocol):
    """Guesses what one conversation says next."""

    def told(self, tokens: Sequence[int]) -> None:
        """These were drawn, in order."""

    def guess(self, most: int) -> tuple[list[int], list[float]]:
        """At most so many tokens; for each the chance that it is drawn after those before it."""


def drafter(kind: str, predicts: bool = False) -> Callable[[np.ndarray], Drafter] | None:
    """What makes the Drafter of a prompt (n,) i32, None where nothing is to be drafted.

    predicts: the model's prediction block is open. Raises ValueError for a kind that is none of
    ``KINDS``, or that needs a block which is not there.
    """
    if kind not in KINDS:
        raise ValueError(f"draft={kind!r}: it is one of {', '.join(KINDS)}")
    if kind == "mtp" and not predicts:
        raise ValueError("draft='mtp': this model has no prediction block open; auto and ngram go")
    if kind == "off":
        return None
    if kind == "ngram" or not predicts:
        return Ngram
    return (lambda tokens: Foreseen()) if kind == "mtp" else (lambda t: Foreseen(Ngram(t)))


class Drafting:
    """Gives every answer that draws its draft for the next pass.

    kind: one of KINDS. longest: tokens of a draft at most, 0 = by itself. columns: of a pass that
    may be scored. prices: what columns cost. foresight: of the model's prediction block, if any.
    """

    def __init__(
        self,
        kind: str,
        longest: int,
        columns: int,
        prices: Prices,
        foresight: Foresight | None = None,
    ):
        if not 0 <= longest < columns:
            raise ValueError(
                f"drafts of {longest} tokens: at most {columns - 1} are fed in one pass; 0 lets "
                "golem choose"
            )
        self.make = drafter(kind, foresight is not None)
        self._foresight = foresight if kind in ("auto", "mtp") else None
        self._prices = prices
        self._longest = longest or min(LONGEST, columns - 1)
        self.columns = columns

    def plan(self, answers: Sequence[Answer]) -> None:
        """Sets the ``draft`` of every answer that draws."""
        guesses, wishes = [], []
        drawing = drawn = taken = 0  # columns without drafts: scored ones, and those of prompts
        for answer in answers:
            if not answer.drawing:
                taken += 1
                continue
            answer.draft = []
            drawing += 1
            drawn += answer.width
            most = min(self._longest, answer.draftable)
            if most > 0:
                tokens, chances = answer.drafter.guess(most)
                if tokens:
                    guesses.append((answer, answer.without_end(tokens), chances))
                if self._foresight is not None and answer.drafter.wants(chances):
                    wishes.append((answer, most))
        room = self.columns - taken - drawn
        if wishes:
            better = self._foresight.guess(wishes, drawn, room)
            foreseen = {id(answer) for answer, _, _ in better}
            guesses = [guess for guess in guesses if id(guess[0]) not in foreseen] + better
        if guesses:
            self._divide(guesses, drawing, drawn, room)

    def _divide(self, guesses: list[tuple], drawing: int, drawn: int, room: int) -> None:
        """Takes the likeliest guesses, as many as yield the most tokens a second."""
        offers = [
            (-chance, place, i)
            for i, (_, tokens, chances) in enumerate(guesses)
            for place, chance in enumerate(chances[: len(tokens)])
        ]
        offers = sorted(offers)[: max(0, room)]
        if not offers:
            return
        tokens = drawing + np.cumsum([0.0, *(-chance for chance, _, _ in offers)])
        seconds = self._prices.of(drawn + len(offers))
        if seconds is None:
            best = len(offers)
        else:
            best = int((tokens / np.maximum(seconds[drawn:], 1e-9)).argmax())
        for _, place, i in offers[:best]:
            answer, guess, _ = guesses[i]
            answer.draft = guess[: place + 1]
