"""Who waits, who has which slot, and whose reading serves whom.

The engine's bookkeeping between passes. Everything here is called with the engine's door held;
memory is never moved here, only noted down as copies for the runner to make before its next pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from golem_core.schedule.answer import Answer
from golem_core.schedule.slots import Copy, Kept, Slot, choose
from golem_core.schedule.stats import Stats
from golem_core.schedule.storing import BringBack, PutAway, bring_back, put_away
from golem_core.state.hostcache import HostCache
from golem_core.state.stored import Stored, common_prefix

WORTH_WAITING = 64  # tokens that another answer is about to read, from which waiting for it pays


class Seats:
    """waiting: answers without a slot, in order. active: those with one, oldest first. copies:
    what the runner must move before its next pass. states: the memory of the slots. host: where
    conversations wait that had to leave their slot."""

    def __init__(self, slots: Sequence[Slot], stats: Stats, states: Any, host: HostCache):
        self.slots = list(slots)
        self.host = host
        self.waiting: deque[Answer] = deque()
        self.active: list[Answer] = []
        self.copies: list[Copy | PutAway | BringBack] = []
        self._stats = stats
        self._states = states

    @property
    def idle(self) -> int:
        """Slots nobody has."""
        return sum(slot.free for slot in self.slots)

    def wait(self, answer: Answer) -> None:
        """Gets in line."""
        self.waiting.append(answer)
        self.count()

    def admit(self, now: float) -> None:
        """Gives free slots to those that wait, in order."""
        for answer in [a for a in self.active if a.leader is not None]:
            self._go_on(answer, now)
        if not self.waiting:
            return
        for answer in list(self.waiting):
            if not any(slot.free for slot in self.slots):
                break
            request = answer.job.request
            found = choose(self.slots, answer.ids, answer.reuses, request.id_slot)
            if found is not None:
                self.waiting.remove(answer)
                self._enter(answer, *found, now)
        self.count()

    def expire(self, before: float) -> None:
        """Idle slots that were last used before then forget."""
        for slot in self.slots:
            if slot.free and len(slot.held) and slot.last <= before:
                slot.clear()
        self.host.forget(before)

    def leave(self, answer: Answer, now: float) -> None:
        """It is over: its slot is free, its place in line too."""
        if answer.slot is None:
            if answer in self.waiting:
                self.waiting.remove(answer)
        else:
            answer.slot.free = True
            answer.slot.last = now
            self.active.remove(answer)
        self.count()

    def siblings(self, answer: Answer) -> list[Answer]:
        """Answers to the very same prompt that wait until this one has read it."""
        return [a for a in self.active if a.leader is answer and a.target == len(a.ids)]

    def adopt(self, answer: Answer, leader: Answer, now: float) -> None:
        """A sibling of one that has read the whole prompt need not feed any of it."""
        answer.leader = None
        if answer.scoring:
            answer.scored(leader.job.prompt_probs[1:])
        self._resume(answer, leader.slot, leader.slot.whole(), now)

    def count(self) -> None:
        self._stats.waiting, self._stats.running = len(self.waiting), len(self.active)

    def _enter(self, answer: Answer, slot: Slot, source: Slot | None, now: float) -> None:
        self._exchange(answer, slot, source)
        kept, copy = slot.rewind(answer.ids, answer.reuses, answer.media)
        if copy is not None:
            self._note(copy)
        answer.enter(slot, kept, now)
        self._stats.cached += kept.at
        if source is not None:
            self._share(answer, source, now)
        self._follow(answer)
        self.active.append(answer)

    def _exchange(self, answer: Answer, slot: Slot, source: Slot | None) -> None:
        """Puts away what a prompt would write over, and brings what serves it better."""
        ids, request = answer.ids, answer.job.request
        shared = common_prefix(slot.held, ids)
        similar = request.id_slot >= 0 or (answer.reuses and shared * 10 >= len(ids))
        if not self.host.wants(slot.held, ids, similar):
            return
        size = self._states.saved_bytes(slot.count)
        if slot.checkpoints is not None:
            size += sum(state.nbytes for _, state in slot.checkpoints.copies)

        def take() -> Stored:
            away = put_away(slot, self._states)
            self.copies.append(away)
            return away.stored

        self.host.put(slot.held, size, take)
        elsewhere = source.kept(ids, answer.media).at if source is not None else 0
        stored = self.host.get(slot.held, ids, elsewhere) if answer.reuses else None
        if stored is not None:
            self.copies.append(bring_back(slot, stored))
            self._stats.brought += 1
        self._stats.stored_bytes = self.host.nbytes

    def _share(self, answer: Answer, source: Slot, now: float) -> None:
        """Copies what another slot holds of the prompt, where that is more."""
        kept = source.kept(answer.ids, answer.media)
        if kept.at > answer.start:
            self._resume(answer, source, kept, now)

    def _resume(self, answer: Answer, source: Slot, kept: Kept, now: float) -> None:
        self._stats.cached += kept.at - answer.start
        self._note(answer.slot.take(source, kept))
        answer.resume(kept, now)

    def _note(self, copy: Copy) -> None:
        self.copies.append(copy)
        self._stats.restored += copy.state is not None

    def _follow(self, answer: Answer) -> None:
        """Lets an answer wait for one that is reading the same beginning, where that pays."""
        cached = answer.reuses
        least = answer.start + WORTH_WAITING
        for leader in self.active:
            if leader is answer or leader.drawing or leader.leader is not None:
                continue
            if leader.reuses != cached or not _tells(leader, answer):
                continue
            shared = common_prefix(leader.ids, answer.ids)
            if shared == len(leader.ids) == len(answer.ids):
                answer.leader, answer.target = leader, shared
                return
            shared = min(shared, len(answer.ids) - 1)
            if cached and shared >= least:
                answer.leader, answer.target = leader, shared
                least = shared + 1
        if answer.leader is not None and answer.slot.checkpoints is not None:
            answer.leader.stop_at(answer.target)  # a state of its own exists there only

    def _go_on(self, answer: Answer, now: float) -> None:
        """What a follower does next: wait on, read on from there, or follow another."""
        leader = answer.leader
        over = leader not in self.active
        if not over and leader.start < answer.target:
            return
        answer.leader = None
        if answer.reuses:
            self._share(answer, leader.slot, now)
        if over:
            self._follow(answer)


def _tells(leader: Answer, answer: Answer) -> bool:
    """Whether the leader finds out about the prompt's tokens what the answer has to tell."""
    told = answer.job.request.n_probs
    return not answer.scoring or (leader.scoring and leader.job.request.n_probs == told)
