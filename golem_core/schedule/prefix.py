"""How much of a prompt a slot already holds, and how much of that may be kept.

The tokens say how far the two texts agree. A sliding ring says how far back its places still
hold what was written for that text: later positions have written over earlier ones, so going
back may mean reading more than the tokens alone ask for.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class RingOwners:
    """Which position each place of a slot's sliding rings was last written for.

    shapes: (window, capacity) of every kind of sliding ring the model has: W, positions an
    attend looks back, itself included, and C places; position p is written to place p mod C.
    """

    def __init__(self, shapes: Iterable[tuple[int, int]]):
        # window and owners (C,) i32: a position, -1 = never written
        self._rings = [(w, np.full(c, -1, np.int32)) for w, c in sorted(set(shapes))]

    def write(self, start: int, count: int) -> None:
        """Positions start … start+count-1 were written, in order."""
        for _, owner in self._rings:
            if count == 1:
                owner[start % len(owner)] = start
                continue
            first = max(start, start + count - len(owner))
            positions = np.arange(first, start + count, dtype=np.int32)
            owner[positions % len(owner)] = positions

    def assign(self, other: RingOwners) -> None:
        """The rings were written over with those of another slot of the same model."""
        for (_, owner), (_, theirs) in zip(self._rings, other._rings, strict=True):
            owner[:] = theirs

    def clear(self) -> None:
        for _, owner in self._rings:
            owner[:] = -1

    def copy_out(self) -> tuple[np.ndarray, ...]:
        """(C,) i32 for every kind of sliding ring: a copy."""
        return tuple(owner.copy() for _, owner in self._rings)

    def copy_in(self, owners: tuple[np.ndarray, ...]) -> None:
        """Take what ``copy_out`` gave, of this slot or another."""
        for (_, mine), owner in zip(self._rings, owners, strict=True):
            mine[:] = owner

    @property
    def capacities(self) -> tuple[int, ...]:
        """Places of every kind of sliding ring."""
        return tuple(len(owner) for _, owner in self._rings)

    def intact_from(self, position: int) -> int:
        """The last place at or before ``position`` from which reading may go on.

        Everything the windows see must still be what was written for it. Where a position is
        gone, reading restarts there, and needs the windows before that place in turn.
        """
        asked = None
        while position != asked:
            asked = position
            for window, owner in self._rings:
                position = _intact(window, owner, position)
        return position


def _intact(window: int, owner: np.ndarray, position: int) -> int:
    while position > 0:
        seen = np.arange(max(0, position - window + 1), position, dtype=np.int32)
        gone = owner[seen % len(owner)] != seen
        if not gone.any():
            break
        position = int(seen[gone.argmax()])
    return position
