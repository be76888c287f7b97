"""Conversations that take turns in a slot: what leaves it waits in memory until it is asked again.

The rule is llama-server's (``--cache-ram``). What a slot holds is put away before another text
takes its place, unless that text goes on from half of it or more; an entry comes back when the
prompt shares more of it, and more of the prompt, than what the slot holds.
"""

from collections.abc import Callable

import numpy as np

from golem_core.state.stored import Stored, common_prefix

LEAST_KEPT = 0.25  # an entry of which less would be used is left alone
LEAVES_BELOW = 0.5  # of what a slot holds: a prompt that keeps this much does not put it away


class HostCache:
    """Entries in the order they came, within ``limit`` bytes and about ``positions`` tokens.

    limit: 0 keeps nothing. positions: of a slot; more tokens than that are stored as long as their
    bytes, at the average a token takes, fit the limit. clock: seconds, monotonic.
    """

    def __init__(self, limit: int, positions: int, clock: Callable[[], float]):
        self._limit = limit
        self._positions = positions
        self._clock = clock
        self._entries: list[tuple[float, Stored]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return sum(stored.nbytes for _, stored in self._entries)

    @property
    def tokens(self) -> int:
        """Tokens of all entries."""
        return sum(len(stored.tokens) for _, stored in self._entries)

    def wants(self, held: np.ndarray, ids: np.ndarray, chosen_for_share: bool) -> bool:
        """Whether what a slot holds is to be put away before a prompt takes the slot.

        chosen_for_share: the slot was named, or chosen because it holds much of the prompt.
        """
        if not self._limit:
            return False
        return not chosen_for_share or common_prefix(held, ids) < LEAVES_BELOW * len(held)

    def put(self, held: np.ndarray, size: int, take: Callable[[], Stored]) -> None:
        """Put away what a slot holds, unless an entry has all of it or it is too large.

        Args:
            held: (n,) i32, its tokens.
            size: about how many bytes what ``take`` makes has.
        """
        if not len(held) or size > self._limit:
            return
        entries = [stored for _, stored in self._entries]
        if any(common_prefix(stored.tokens, held) == len(held) for stored in entries):
            return
        self._entries = [
            (at, stored)
            for at, stored in self._entries
            if common_prefix(stored.tokens, held) < len(stored.tokens)
        ]
        while self._entries and self.nbytes + size > self._limit:
            self._entries.pop(0)
        self._entries.append((self._clock(), take()))
        self._trim()

    def get(self, held: np.ndarray, ids: np.ndarray, elsewhere: int = 0) -> Stored | None:
        """Take out the entry that serves a prompt better than what the slot holds, if one does.

        elsewhere: tokens of the prompt that could be had of another slot.
        """
        common = common_prefix(held, ids)
        best, best_kept = None, common / len(held) if len(held) else -1.0
        best_share = max(common, elsewhere) / len(ids)
        for entry in self._entries:
            stored = entry[1]
            common = stored.serves(ids)
            part, share = common / len(stored.tokens), common / len(ids)
            if part >= LEAST_KEPT and part > best_kept and share > best_share:
                best, best_kept, best_share = entry, part, share
        if best is None:
            return None
        self._entries = [entry for entry in self._entries if entry is not best]
        return best[1]

    def forget(self, before: float) -> None:
        """Drop what was put away before a moment of the clock."""
        self._entries = [entry for entry in self._entries if entry[0] > before]

    def clear(self) -> None:
        """Drop everything."""
        self._entries = []

    def _trim(self) -> None:
        while len(self._entries) > 1 and self.nbytes > self._limit:
            self._entries.pop(0)
        while len(self._entries) > 1:
            fits = self._limit / (self.nbytes / self.tokens)
            if self.tokens <= max(self._positions, fits):
                break
            self._entries.pop(0)
