"""From the scores of a pass to the tokens it draws.

An answer draws one token of its last column. One that was fed a draft draws on for as long as it
draws what was drafted, because the scores of what follows are there already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from golem_core.sample import Probs, Workspace, refusal
from golem_core.sample.grammar import GrammarError
from golem_core.schedule.answer import Answer
from golem_core.schedule.errors import DeadEnd, PassFailed
from golem_core.schedule.passes import DRAWN, Pass
from golem_core.schedule.request import Step
from golem_core.schedule.stats import Stats

Pick = tuple[int | Exception, Probs | None]


class Hand:
    """What one answer draws of a pass.

    row: of the logits, that its next token is drawn from. place: of the draft, that this token
    must be for the answer to draw on. steps: its tokens. ended: it is over with the last of them.
    error: why it failed after them, None otherwise.
    """

    __slots__ = ("answer", "ended", "error", "pick", "place", "row", "steps")

    def __init__(self, answer: Answer, row: int):
        self.answer = answer
        self.row = row
        self.place = 0
        self.steps: list[Step] = []
        self.ended = False
        self.error: Exception | None = None
        self.pick: Pick | None = None


class Dealer:
    """Draws for all answers of a pass. The runner's own.

    states: golem_core.state.States of the executor.
    """

    def __init__(self, workspace: Workspace, states: Any, stats: Stats):
        self._workspace = workspace
        self._states = states
        self._stats = stats
        self._spares: dict[int, np.ndarray] = {}  # slot: its recurrent state before a draft

    def prepare(self, batch: Pass) -> None:
        """Before the pass: a state that cannot be rewound is kept where a draft may be refused."""
        if not self._states.recurrent:
            return
        for run in batch.runs:
            if run.role == DRAWN and run.answer.draft:
                slot = run.answer.slot.index
                into = self._spares.get(slot)
                self._spares[slot] = self._states.take_recurrent(slot, into)

    def score(self, batch: Pass, logits: np.ndarray) -> None:
        """Tells what the tokens of prompts competed with that ask for it. Raises as ``deal``."""
        for run in batch.runs:
            answer = run.answer
            if answer.scoring:
                known = answer.ids[answer.at + 1 : answer.at + 1 + run.count]
                told = max(1, answer.job.request.n_probs)
                rows = logits[run.row : run.row + len(known)]
                answer.scored(self._workspace.score(rows, known, told))
                self._stats.prompt_probs += len(known)

    def deal(self, hands: list[Hand], logits: np.ndarray, peaks: np.ndarray | None = None) -> None:
        """Draws the first token of every hand. peaks: of the logits, if the executor has them.
        Raises NonFiniteLogits, MemoryError.

        A token that is forced is not drawn: it competed with none and costs no random number.
        """
        forced = [hand for hand in hands if hand.answer.forced]
        free = [hand for hand in hands if not hand.answer.forced] if forced else hands
        samplers = [hand.answer.sampler for hand in free]
        drawn = self._workspace.pick_many(samplers, logits, [hand.row for hand in free], peaks)
        for hand, token in zip(free, drawn, strict=True):
            hand.pick = self._picked(hand.answer.sampler, token)
        for hand in forced:
            hand.pick = _forced(hand.answer)

    def play(
        self,
        hands: Iterable[Hand],
        logits: np.ndarray,
        now: float,
        peaks: np.ndarray | None = None,
    ) -> None:
        """Hands the tokens to their answers, and draws on where drafts come true. Raises as
        ``deal``."""
        going = [hand for hand in hands if self._take(hand, now)]
        while going:
            self.deal(going, logits, peaks)
            going = [hand for hand in going if self._take(hand, now)]

    def finish(self, hand: Hand, hidden: np.ndarray | None = None) -> None:
        """After the last token: what a refused draft left in the slot is taken back.

        hidden: (m, width) that was scored, where a prediction block goes on from it.
        """
        answer = hand.answer
        if answer.drafter is not None and hand.steps:
            answer.drafter.told([step.token for step in hand.steps])
            if hidden is not None:
                answer.drafter.hidden = hidden[hand.row].copy()
        if self._states.recurrent and hand.place < len(answer.draft):
            slot = answer.slot.index
            self._states.put_recurrent(slot, self._spares[slot])
            answer.take_back(hand.place)

    def _picked(self, sampler: Any, token: int) -> Pick:
        """A drawn token and what it competed with; or why a grammar lets none follow."""
        if token < 0:
            return refusal(token), None
        probs = sampler.probs()
        self._stats.probs += probs is not None
        return token, probs

    def _take(self, hand: Hand, now: float) -> bool:
        """Gives the answer its token, unless it was cancelled; whether it draws another one."""
        answer, (token, probs) = hand.answer, hand.pick
        if isinstance(token, Exception):
            kind = DeadEnd if isinstance(token, GrammarError) else PassFailed
            hand.error = kind(str(token))
            hand.error.__cause__ = token
            return False
        if answer.job.cancelled:
            return False
        try:
            step = answer.take(token, probs, now)
        except Exception as error:
            hand.error = PassFailed(f"token {token} could not be turned into text: {error!r}")
            hand.error.__cause__ = error
            return False
        self._stats.drawn += 1
        hand.steps.append(step)
        hand.ended = step.end
        if step.end or not answer.accepts(token, hand.place):
            return False
        hand.place += 1
        hand.row += 1
        return True


def _forced(answer: Answer) -> Pick:
    token = answer.forced.popleft()
    try:
        answer.sampler.accept(token)
    except GrammarError as error:
        return error, None
    return token, None
