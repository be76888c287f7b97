"""Slots: places in the model's memory, each holding the tokens of one conversation.

A slot outlives the request that used it, so that the next turn of the same conversation is fed
only what is new. ``held`` mirrors the cache exactly: the last drawn token of an answer is not in
it, because it was never fed.

What several conversations begin with is read once: a slot that starts a new one takes a copy of
what another slot holds of its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from golem_core.schedule.checkpoints import Checkpoint, Checkpoints
from golem_core.schedule.media import Media
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.request import Job
from golem_core.state.stored import common_prefix

# Tokens at the end of a prompt that the next turn of the same conversation may spell otherwise:
# what opens an answer ("assistant", an empty thought) is not always repeated in front of it.
OPENING = 4


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


class Kept(NamedTuple):
    """What a prompt can reuse of a slot."""

    shared: int  # tokens in common
    at: int  # the first position that must be fed
    checkpoint: Checkpoint | None  # must be put back for that


class Copy(NamedTuple):
    """Memory to be moved before the next pass: the rings of a slot, a recurrent state, or both."""

    source: int | None  # slot; None: the rings stay as they are
    target: int
    positions: int
    state: np.ndarray | None  # recurrent, of a checkpoint; None: the source's own
    keep: np.ndarray | None  # where the target keeps a copy of that checkpoint

    def run(self, states: Any) -> None:
        """Moves it. states: golem_core.state.States."""
        if self.source is not None:
            states.copy(self.source, self.target, self.positions)
        if self.state is not None:
            states.put_recurrent(self.target, self.state)
        if self.keep is not None:
            self.keep[:] = self.state


class Slot:
    """One place. Changed by the runner thread only, and only while it holds the engine's door.

    checkpoints: of a memory that cannot be rewound, else None.
    """

    def __init__(
        self, index: int, context: int, owners: RingOwners, checkpoints: Checkpoints | None
    ):
        self.index = index
        self.context = context  # positions
        self.free = True
        self.job: Job | None = None
        self.last = 0.0  # when it was last taken or given back, seconds of the engine's clock
        self.prompt = 0  # tokens of the last prompt that was read here
        self.checkpoints = checkpoints
        self.owners = owners
        self._tokens = np.zeros(context, np.int32)
        self.count = 0  # tokens held

    @property
    def held(self) -> np.ndarray:
        """(n,) i32: the tokens whose keys and values the cache holds. A view."""
        return self._tokens[: self.count]

    def kept(self, ids: np.ndarray, media: Media | None = None) -> Kept:
        """What a prompt can reuse; ``at`` is below its length, for its last position is always
        fed: what was computed of it is not kept. It is not inside of a picture that is fed whole.
        """
        shared = common_prefix(self.held, ids)
        limit = min(shared, len(ids) - 1)
        if self.checkpoints is None or shared == self.count == limit:
            return Kept(shared, self._intact_from(limit, media), None)
        for checkpoint in self.checkpoints.latest(limit):
            if self._intact_from(checkpoint.position, media) == checkpoint.position:
                return Kept(shared, checkpoint.position, checkpoint)
        return Kept(shared, 0, None)

    def _intact_from(self, position: int, media: Media | None) -> int:
        """The last place at or before a position from which reading may go on."""
        asked = None
        while position != asked:
            asked = position = self.owners.intact_from(position)
            position = position if media is None else media.floor(position)
        return position

    def whole(self) -> Kept:
        """What a prompt reuses that another answer has just read to its end."""
        return Kept(self.count, self.count, None)

    def parts(self, shared: int) -> bool:
        """Whether a prompt that shares so much would go on with another conversation than the one
        here: it parts from it within what was asked, not in what was answered."""
        return shared + OPENING < min(self.prompt, self.count)

    def rewind(
        self, ids: np.ndarray, cache_prompt: bool, media: Media | None = None
    ) -> tuple[Kept, Copy | None]:
        """Keeps what a prompt can reuse and forgets the rest; what must be moved for that."""
        kept = self.kept(ids, media) if cache_prompt else Kept(0, 0, None)
        self.count = kept.at
        self.prompt = len(ids)
        if self.checkpoints is None:
            return kept, None
        self.checkpoints.forget_after(kept.at)
        if kept.checkpoint is None:
            return kept, None
        self.checkpoints.touch(kept.checkpoint)
        return kept, Copy(None, self.index, kept.at, kept.checkpoint.state, None)

    def take(self, source: Slot, kept: Kept) -> Copy:
        """Holds the first ``kept.at`` tokens of another slot from now on; what must be moved."""
        at = kept.at
        self._tokens[:at] = source._tokens[:at]
        self.count = at
        self.owners.assign(source.owners)
        state = keep = None
        if self.checkpoints is not None:
            self.checkpoints.forget_after(0)
            if kept.checkpoint is not None:
                source.checkpoints.touch(kept.checkpoint)
                state = kept.checkpoint.state
                keep = self.checkpoints.room(at, len(state))
        return Copy(source.index, self.index, at, state, keep)

    def assign(self, tokens: np.ndarray) -> None:
        """It holds these tokens."""
        self._tokens[: len(tokens)] = tokens
        self.count = self.prompt = len(tokens)

    def fed(self, tokens: np.ndarray | int, count: int = 1) -> None:
        """``count`` tokens were fed after those held."""
        start = self.count
        self._tokens[start : start + count] = tokens
        self.count = start + count
        self.owners.write(start, count)

    def drafted(self, count: int) -> None:
        """``count`` tokens after those held were fed as well, which may not stay."""
        self.owners.write(self.count, count)

    def cut(self, count: int) -> None:
        """Forgets the last ``count`` tokens."""
        self.count -= count

    def clear(self) -> None:
        """Forgets everything, after a failure or on request."""
        self.count = self.prompt = 0
        self.owners.clear()
        if self.checkpoints is not None:
            self.checkpoints.forget_after(0)


def choose(
    slots: Sequence[Slot], ids: np.ndarray, cache_prompt: bool = True, wanted: int = -1
) -> tuple[Slot, Slot | None] | None:
    """The free slot a prompt should take, and one, busy or not, that it should copy the beginning
    from; None when all are busy. wanted: the only slot it may take, -1 = any.

    The slot sharing the largest part of the prompt, if that is a tenth of it or more. But where
    the prompt parts from what was asked there, it is another conversation with the same
    beginning, and an empty slot takes a copy of that instead. Else the first slot that holds
    nothing; else the one unused the longest.
    """
    free = [slot for slot in slots if slot.free and wanted in (-1, slot.index)]
    if not free:
        return None
    empty = next((slot for slot in free if not slot.count), None)
    other = empty or min(free, key=lambda slot: slot.last)
    if not cache_prompt:
        return other, None
    shares = {slot.index: common_prefix(slot.held, ids) for slot in slots}

    def share(slot: Slot) -> int:
        return shares[slot.index]

    best = max(free, key=share)
    if share(best) * 10 >= len(ids) and not (empty and best.parts(share(best))):
        other = best
    source = max(slots, key=share)
    if share(source) > share(other) and share(source) * 10 >= len(ids):
        return other, source
    return other, None
