"""What a slot held, out of the slot: for the host's cache of prompts and for files.

Tokens say which text it is, the states what the model keeps of it, the owners which position each
place of a sliding ring was last written for, and the checkpoints where a memory that cannot be
rewound may be taken up again.
"""

from dataclasses import dataclass

import numpy as np


def common_prefix(held: np.ndarray, ids: np.ndarray) -> int:
    """Leading tokens two i32 arrays share."""
    n = min(len(held), len(ids))
    differs = held[:n] != ids[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


@dataclass(frozen=True)
class Stored:
    """tokens: (n,) i32. states: u8 arrays by name, as ``States.save`` gives them for n positions.

    owners: (C,) i32 for every kind of sliding ring. checkpoints: (position, u8 array) of
    recurrent states, oldest first. recurrent: the memory cannot be rewound, only continued.
    """

    tokens: np.ndarray
    states: dict[str, np.ndarray]
    owners: tuple[np.ndarray, ...] = ()
    checkpoints: tuple[tuple[int, np.ndarray], ...] = ()
    recurrent: bool = False

    def serves(self, ids: np.ndarray) -> int:
        """Leading tokens of a prompt that a slot with this need not be fed.

        A memory that cannot be rewound goes on from its end or from a checkpoint.
        """
        common = common_prefix(self.tokens, ids)
        if not self.recurrent or common == len(self.tokens):
            return common
        return max((at for at, _ in self.checkpoints if at <= common), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes."""
        arrays = [self.tokens, *self.states.values(), *self.owners]
        return sum(a.nbytes for a in arrays) + sum(a.nbytes for _, a in self.checkpoints)
