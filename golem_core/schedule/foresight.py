"""Drafts by a model's own prediction block: from what it made of the last token, the next ones.

The block guesses the token after the one just drawn, and goes on from its own guess. Every guess
is a small pass, so one is made only where it is likely to save more time than it takes: by how
often this conversation's guesses came true, and by how long passes of both kinds last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from golem_core.schedule._ngram import Ngram
from golem_core.schedule.answer import Answer
from golem_core.schedule.pace import Prices

DEEPEST = 8  # tokens that are guessed from guesses
FADE = 0.95  # what counts of a try at the next one
PRIOR = 4.0  # tries that the prior is worth
EXPECTED = 0.7  # of guesses come true, as long as nothing is known
AGAIN = 64  # tokens drawn without a guess after which one is tried whatever was seen before
BOUNDS = (0.3, 0.5, 0.7, 0.85, 0.95)  # of the block's own confidence, by which tries are counted
BELIEVED = (0.15, 0.4, 0.6, 0.77, 0.9, 0.97)  # between them, as long as nothing is known


class Foreseen:
    """What one conversation's guesses start from, and how often they came true.

    said: guesses from what it said before, which cost nothing; None where they are not wanted.
    """

    def __init__(self, said: Ngram | None = None):
        self.hidden: np.ndarray | None = None  # (width,) f32, of the last token fed
        self._said = said
        self._guess: list[tuple[int, int]] = []  # tokens, and the classes of their confidence
        self._tries = PRIOR
        self._hits = PRIOR * EXPECTED
        self._by_class = [[PRIOR * p, PRIOR] for p in BELIEVED]  # hits and tries
        self._unguessed = 0  # tokens drawn since the last guess

    def told(self, tokens: Sequence[int]) -> None:
        """These were drawn, in order."""
        if self._said is not None:
            self._said.told(tokens)
        self._unguessed += len(tokens)
        for token, (guess, kind) in zip(tokens, self._guess, strict=False):
            right = token == guess
            self._tries = self._tries * FADE + 1
            self._hits = self._hits * FADE + right
            counted = self._by_class[kind]
            counted[:] = counted[0] * FADE + right, counted[1] * FADE + 1
            self._unguessed = 0
            if not right:
                break
        self._guess = []

    def guess(self, most: int) -> tuple[list[int], list[float]]:
        """What costs no pass: tokens that followed the same words before."""
        return ([], []) if self._said is None else self._said.guess(most)

    @property
    def rate(self) -> float:
        """Chance that the next guess comes true, before it is made."""
        return EXPECTED if self._unguessed >= AGAIN else self._hits / self._tries

    def wants(self, chances: Sequence[float]) -> bool:
        """Whether the block may know better than what costs no pass, of these chances."""
        return self.hidden is not None and (not chances or chances[0] < self.rate)

    def guessed(self, token: int, confidence: float) -> float:
        """Takes down the next guess; returns the chance that it comes true."""
        kind = int(np.searchsorted(BOUNDS, confidence, side="right"))
        self._guess.append((token, kind))
        hits, tries = self._by_class[kind]
        return hits / tries


class _Path:
    """The guess of one answer as it grows."""

    def __init__(self, answer: Answer, most: int):
        self.answer = answer
        self.most = most
        self.token = answer.tokens[-1]
        self.hidden = answer.drafter.hidden
        self.tokens: list[int] = []
        self.chances: list[float] = []

    @property
    def chance(self) -> float:
        """That all of it comes true."""
        return self.chances[-1] if self.chances else 1.0


class Foresight:
    """Runs a model's prediction block for all conversations that draw. The runner's own.

    executor: of the block's program. rewinds: whether a refused draft costs nothing but its own
    columns. prices: of the model's passes. clock: seconds, monotonic.
    """

    def __init__(
        self,
        executor: Any,
        rewinds: bool,
        prices: Prices,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._executor = executor
        self._rewinds = rewinds
        self._prices = prices
        self._own = Prices()
        self._clock = clock
        axes = executor.program.inputs
        positions = axes.get("positions")
        self._axes = 1 if positions is None else int(np.prod(positions.inner, dtype=int))

    def guess(
        self, wishes: Sequence[tuple[Answer, int]], columns: int, room: int
    ) -> list[tuple[Answer, list[int], list[float]]]:
        """The guesses that pay, with the chance of each token that it and those before come true.

        wishes: answers that draw and most tokens for each. columns: of the pass without drafts.
        room: columns it may have besides.
        """
        paths = [_Path(answer, most) for answer, most in wishes]
        began = self._clock()
        for depth in range(DEEPEST):
            live = [p for p in paths if len(p.tokens) == depth < p.most]
            guessed = sum(len(p.tokens) for p in paths)
            if guessed + len(live) > room:
                live = sorted(live, key=lambda p: -p.chance)[: max(0, room - guessed)]
            spent = self._clock() - began
            if not live or not self._pays(live, paths, columns + guessed, spent):
                break
            self._step(live)
        return [(p.answer, p.tokens, p.chances) for p in paths if p.tokens]

    def _pays(self, live: list[_Path], paths: list[_Path], columns: int, spent: float) -> bool:
        """Whether one more guess each yields more tokens a second than passes do without."""
        line = self._prices.of(columns + len(live))
        if line is None:
            return True
        more = float(line[columns + len(live)] - line[columns])
        own = self._own.of(len(live))
        gain = sum(p.chance * p.answer.drafter.rate for p in live)
        cost = more + (0.0 if own is None else float(own[len(live)]))
        if not self._rewinds:  # what is refused is read again, together with what came before
            cost += more * max(0.0, len(live) - gain)
        tokens = len(paths) + sum(sum(p.chances) for p in paths)
        return gain * (float(line[columns]) + spent) >= cost * tokens

    def _step(self, live: list[_Path]) -> None:
        """One pass of the block: the next token of every path."""
        at = [p.answer.slot.count + len(p.tokens) for p in live]
        slots = [p.answer.slot.index for p in live]
        runs = [
            [slot, column, 1, i, 0] for column, (slot, i) in enumerate(zip(slots, at, strict=True))
        ]
        inputs = {
            "runs": np.array(runs, np.int32),
            "tokens": np.array([p.token for p in live], np.int32),
            "hidden": np.stack([p.hidden for p in live]),
        }
        if self._axes > 1 and any(p.answer.media is not None for p in live):
            shifts = [0 if p.answer.media is None else p.answer.media.shift for p in live]
            moved = np.array(at, np.int32) + np.array(shifts, np.int32)
            inputs["positions"] = np.repeat(moved[:, None], self._axes, axis=1)
        began = self._clock()
        made = self._executor.run(inputs, wanted=("logits", "hidden"))
        self._own.saw(len(live), self._clock() - began)
        for path, scores, hidden in zip(live, made["logits"], made["hidden"].copy(), strict=True):
            token = int(scores.argmax())
            confidence = 1.0 / float(np.exp(scores - scores[token]).sum())
            if not np.isfinite(confidence) or not path.answer.without_end([token]):
                path.most = len(path.tokens)
                continue
            chance = path.answer.drafter.guessed(token, confidence)
            path.chances.append(path.chance * chance)
            path.tokens.append(token)
            path.token, path.hidden = token, hidden
