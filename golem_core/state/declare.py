"""What a program says about its memory between passes: names and per-slot shapes, nothing owned.

A program is written before anybody knows how many slots there will be or how long a context is,
so it declares states and ``States`` (beside this file) allocates them. A run whose first index is
0 starts from empty, so no state is ever zeroed by hand.
"""

from dataclasses import dataclass

BLOCK = 64  # ring capacities are multiples of this, so that key blocks lie at absolute indices


@dataclass(frozen=True)
class Ring:
    """Keys and values of one attention: position p of a slot lives in place p mod C.

    Two attends may name one ring (shared keys and values); only the one given k and v writes.
    """

    name: str
    heads: int  # key/value heads
    k: int  # values of one key head
    v: int  # values of one value head
    window: int | None = None  # positions an attend looks back, itself included; None = all
    rate: int = 1  # rows a column of the pass writes

    def capacity(self, context: int, pass_width: int) -> int:
        """Rows C kept a slot, a multiple of 64.

        A sliding ring keeps the widest pass besides its window, because a pass is stored before
        it is attended to; it never needs more than a full one.
        """
        full = context * self.rate
        kept = full if self.window is None else min(full, self.window + pass_width * self.rate)
        return -(-kept // BLOCK) * BLOCK


@dataclass(frozen=True)
class Matrix:
    """The recurrent state of a delta net: (heads, v, k) f32, the key index contiguous."""

    name: str
    heads: int
    v: int
    k: int


@dataclass(frozen=True)
class Window:
    """The last inputs of a causal convolution: (rows, channels) f32, oldest first."""

    name: str
    rows: int
    channels: int


State = Ring | Matrix | Window
