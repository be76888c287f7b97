"""Where a memory that cannot be rewound may be taken up again.

A delta net's matrix holds everything it has read in one state: going back means having kept a copy.
A slot keeps a few, at places a later prompt is likely to part from this one: where an earlier
prompt parted, every 1,024 positions of a long prompt, and twice near its end: before its last
token, so that the same prompt again (an answer drawn anew, a slot restored) costs one position,
unless it was short or hardly any of it had to be read; and some way before, for the next prompt is
most often this one with another ending, or with an answer in place of its last few tokens. That
copy is where the last message begins, if the request says where that is and it is not too long;
else it is guessed to be a little before the end. Where the guess turns out right, the copy at the
very place succeeds the one that was guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EVERY = 1024  # positions between the copies of a long prompt
FLOOR = 256  # positions below which reading again is cheaper than keeping a copy
LONGEST = 2048  # positions of a last message in front of which a copy is kept
BLOCK = 64  # positions that a delta net reads at once: a copy between them cuts a pass


@dataclass
class Checkpoint:
    """The recurrent state after the first ``position`` tokens of what the slot holds."""

    position: int
    state: np.ndarray  # (bytes,) u8, as States.take_recurrent gives it
    used: int  # larger: more recently
    guessed: bool = False  # it was made where a later prompt was only guessed to part


class Checkpoints:
    """The copies of one slot, at most ``count``; a later prompt takes up the latest it shares."""

    def __init__(self, count: int):
        self._count = count
        self._kept: list[Checkpoint] = []
        self._spare: list[np.ndarray] = []  # memory of copies that were dropped
        self._clock = 0
        self._guessed = 0  # where the copy some way before the prompt's end belongs
        self._parted = 0  # and the one where the prompt parted from what was held

    @property
    def positions(self) -> list[int]:
        return sorted(one.position for one in self._kept)

    def wanted(self, start: int, shared: int, end: int, ending: int | None = None) -> list[int]:
        """Where to keep copies of a prompt of ``end`` tokens that is read from ``start`` on.

        shared: tokens it has in common with what the slot held: others may part there too.
        ending: Request.ending; one that is no use to go by counts as None.
        """
        if not self._count:
            return []
        places = set(range((start // EVERY + 1) * EVERY, end, EVERY))
        self._parted = shared
        if start < shared < end and shared >= FLOOR:
            places.add(shared)
        if ending is not None and 0 < ending <= min(LONGEST, end - FLOOR):
            self._guessed = end - ending
            if start < self._guessed:
                places.add(self._guessed)
        else:
            self._guessed = (end - FLOOR) // BLOCK * BLOCK if end > EVERY else 0
            before = max((at for at in places if at <= self._guessed), default=start)
            if self._guessed - before >= FLOOR:
                places.add(self._guessed)
        for one in self._kept:  # where prompts do part is no guess any more
            one.guessed = one.guessed and one.position != shared
        if end - start > FLOOR:  # else reading again is cheaper than a pass for one token
            places.add(end - 1)
        return sorted(places)

    @property
    def copies(self) -> list[tuple[int, np.ndarray]]:
        """(position, state) of each, by position; the arrays themselves."""
        return sorted(((one.position, one.state) for one in self._kept), key=lambda one: one[0])

    def latest(self, limit: int) -> list[Checkpoint]:
        """Those at or before ``limit``, the furthest first."""
        fitting = [one for one in self._kept if one.position <= limit]
        return sorted(fitting, key=lambda one: -one.position)

    def touch(self, checkpoint: Checkpoint) -> None:
        """It was taken up."""
        self._clock += 1
        checkpoint.used = self._clock

    def forget_after(self, position: int) -> None:
        """The slot holds other tokens from ``position`` on."""
        self._spare += [one.state for one in self._kept if one.position > position]
        self._kept = [one for one in self._kept if one.position <= position]

    def room(self, position: int, size: int) -> np.ndarray | None:
        """Memory for a copy of ``size`` bytes at ``position``, which is kept from now on.

        None where none is to be made: too early, or there is one. The least recently used one
        makes room; but once there is one where a prompt parted, the one that was kept for that.
        """
        if position < FLOOR or not self._count:
            return None
        for one in self._kept:
            if one.position == position:
                self.touch(one)
                return None
        if len(self._kept) == self._count:
            found = self._parted in (position, *(one.position for one in self._kept))
            oldest = min(self._kept, key=lambda one: (not (found and one.guessed), one.used))
            self._kept.remove(oldest)
            self._spare.append(oldest.state)
        state = self._spare.pop() if self._spare else np.empty(size, np.uint8)
        made = Checkpoint(position, state, 0, position == self._guessed)
        self.touch(made)
        self._kept.append(made)
        return state


def granted(asked: int, slots: int, size: int, memory: int) -> int:
    """Copies a slot may keep: as many as asked, fewer where ``memory`` bytes do not hold them.

    size: bytes of one copy, 0 for a memory that can be rewound.
    """
    if not size:
        return 0
    return max(0, min(asked, memory // (slots * size)))
