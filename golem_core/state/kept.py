"""What a slot held, out of the slot: for the host's cache of prompts and for files.

Tokens say which text it is, the states what the model keeps of it, the owners which position each
place of a sliding ring was last written for, and the checkpoints where a memory that cannot be
rewound may be taken up again.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Kept:
    """tokens: (n,) i32. states: u8 arrays by name, as ``States.save`` gives them for n positions.

    owners: (C,) i32 for every kind of sliding ring. checkpoints: (position, u8 array) of
    recurrent states, oldest first.
    """

    tokens: np.ndarray
    states: dict[str, np.ndarray]
    owners: tuple[np.ndarray, ...] = ()
    checkpoints: tuple[tuple[int, np.ndarray], ...] = field(default=())

    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes."""
        arrays = [self.tokens, *self.states.values(), *self.owners]
        return sum(a.nbytes for a in arrays) + sum(a.nbytes for _, a in self.checkpoints)
