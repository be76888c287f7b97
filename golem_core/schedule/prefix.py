"""How much of a prompt a slot already holds, and how much of that may be kept.

The tokens say how far the two texts agree. A sliding ring says how far back its places still
hold what was written for that text: later positions have written over earlier ones, so going
back may mean reading more than the tokens alone ask for.
"""

import numpy as np


def common_prefix(held: np.ndarray, ids: np.ndarray) -> int:
    """Leading tokens two i32 arrays share."""
    n = min(len(held), len(ids))
    differs = held[:n] != ids[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


class RingOwners:
    """Which position each place of a slot's sliding rings was last written for.

    window: W, positions the widest sliding attend looks back, itself included.
    capacity: C places; position p is written to place p mod C.
    """

    def __init__(self, window: int, capacity: int):
        self.window = window
        self._owner = np.full(capacity, -1, np.int32)  # (C,) position, -1 = never written

    def write(self, start: int, count: int) -> None:
        """Positions start … start+count-1 were written, in order."""
        capacity = len(self._owner)
        positions = np.arange(max(start, start + count - capacity), start + count, dtype=np.int32)
        self._owner[positions % capacity] = positions

    def clear(self) -> None:
        self._owner[:] = -1

    def intact_from(self, position: int) -> int:
        """The last place at or before ``position`` from which reading may go on.

        Everything its window sees must still be what was written for it. Where a position is
        gone, reading restarts there, and needs the window before that place in turn.
        """
        while position > 0:
            seen = np.arange(max(0, position - self.window + 1), position, dtype=np.int32)
            gone = self._owner[seen % len(self._owner)] != seen
            if not gone.any():
                break
            position = int(seen[gone.argmax()])
        return position


def resume_at(
    held: np.ndarray, ids: np.ndarray, owners: RingOwners | None, *, recurrent: bool = False
) -> int:
    """The first position of a prompt that must be fed to a slot holding ``held``.

    held, ids: i32 arrays. owners: of the slot's sliding rings, None when all rings are full.
    recurrent: the memory cannot be rewound, only continued. Always below ``len(ids)``: the last
    position is fed even when it is held, for what was computed of it is not kept.
    """
    shared = common_prefix(held, ids)
    if recurrent:
        return shared if shared == len(held) and shared < len(ids) else 0
    start = min(shared, len(ids) - 1)
    return start if owners is None else owners.intact_from(start)
