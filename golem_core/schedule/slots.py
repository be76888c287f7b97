"""Slots: places in the model's memory, each holding the tokens of one conversation.

A slot outlives the request that used it, so that the next turn of the same conversation is fed
only what is new. ``held`` mirrors the cache exactly: the last drawn token of an answer is not in
it, because it was never fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golem_core.schedule.prefix import RingOwners, common_prefix, resume_at
from golem_core.schedule.request import Job


@dataclass(frozen=True)
class SlotState:
    """What one slot was doing when it was looked at; numbers of the last job until the next."""

    id: int
    n_ctx: int
    is_processing: bool
    job: Job | None  # the last one that took it
    n_tokens: int  # held now
    n_decoded: int  # drawn so far by the running job, else 0
    n_remain: int  # that it may still draw, else -1


class Slot:
    """One place. Changed by the runner thread only, and only while it holds the engine's door."""

    def __init__(self, index: int, context: int, owners: RingOwners, recurrent: bool):
        self.index = index
        self.context = context  # positions
        self.free = True
        self.job: Job | None = None
        self.last = 0.0  # when it was last taken or given back, seconds of the engine's clock
        self._owners = owners
        self._recurrent = recurrent
        self._tokens = np.zeros(context, np.int32)
        self._count = 0

    @property
    def held(self) -> np.ndarray:
        """(n,) i32: the tokens whose keys and values the cache holds. A view."""
        return self._tokens[: self._count]

    def rewind(self, ids: np.ndarray, cache_prompt: bool) -> int:
        """Keeps what a prompt can reuse and forgets the rest; returns the first index to feed."""
        at = 0
        if cache_prompt:
            at = resume_at(self.held, ids, self._owners, recurrent=self._recurrent)
        self._count = at
        return at

    def fed(self, tokens: np.ndarray | int, count: int = 1) -> None:
        """``count`` tokens were fed after those held."""
        start = self._count
        self._tokens[start : start + count] = tokens
        self._count = start + count
        self._owners.write(start, count)

    def clear(self) -> None:
        """Forgets everything, after a failure or on request."""
        self._count = 0
        self._owners.clear()


def choose(slots: Sequence[Slot], ids: np.ndarray, cache_prompt: bool = True) -> Slot | None:
    """The free slot a prompt should take, None when all are busy.

    The one sharing the largest part of the prompt, if that is a tenth of it or more; else the
    first that holds nothing; else the one unused the longest.
    """
    free = [slot for slot in slots if slot.free]
    if not free:
        return None
    if cache_prompt:
        shares = [common_prefix(slot.held, ids) for slot in free]
        best = max(range(len(free)), key=shares.__getitem__)
        if shares[best] * 10 >= len(ids):
            return free[best]
    for slot in free:
        if not len(slot.held):
            return slot
    return min(free, key=lambda slot: slot.last)
