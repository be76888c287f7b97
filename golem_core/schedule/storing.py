"""What a slot holds, put away and brought back: tokens at once, memory before the next pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from golem_core.schedule.slots import Slot
from golem_core.state.stored import Stored


class PutAway(NamedTuple):
    """Memory of a slot to be copied out of it."""

    slot: int
    stored: Stored  # whose arrays are to be written
    checkpoints: list[np.ndarray]  # of the slot, to be copied too

    def run(self, states: Any) -> None:
        """Copies it. states: golem_core.state.States."""
        states.save_into(self.stored.states, self.slot, len(self.stored.tokens))
        for (_, mine), theirs in zip(self.stored.checkpoints, self.checkpoints, strict=True):
            mine[:] = theirs


class BringBack(NamedTuple):
    """Memory that was put away to be copied into a slot."""

    slot: int
    stored: Stored
    checkpoints: list[tuple[np.ndarray, np.ndarray]]  # (of the slot, stored)

    def run(self, states: Any) -> None:
        """Copies it. states: golem_core.state.States."""
        states.restore(self.slot, len(self.stored.tokens), self.stored.states)
        for mine, theirs in self.checkpoints:
            mine[:] = theirs


def put_away(slot: Slot, states: Any) -> PutAway:
    """Note down all that a slot holds now."""
    copies = slot.checkpoints.copies if slot.checkpoints is not None else []
    stored = Stored(
        slot.held.copy(),
        states.room(slot.count),
        slot.owners.copy_out(),
        tuple((position, np.empty_like(state)) for position, state in copies),
        recurrent=slot.checkpoints is not None,
    )
    return PutAway(slot.index, stored, [state for _, state in copies])


def bring_back(slot: Slot, stored: Stored) -> BringBack:
    """Make a slot hold what was put away, of it or another, and nothing else."""
    slot.clear()
    slot.assign(stored.tokens)
    slot.owners.copy_in(stored.owners)
    pairs = []
    for position, state in stored.checkpoints if slot.checkpoints is not None else ():
        room = slot.checkpoints.room(position, len(state))
        if room is not None:
            pairs.append((room, state))
    return BringBack(slot.index, stored, pairs)
