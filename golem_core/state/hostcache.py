"""Conversations that take turns in a slot: what leaves it waits in memory until it is asked again.

The rule is llama-server's (``--cache-ram``). What a slot holds is put away before another text
takes its place, unless that text goes on from half of it or more; an entry comes back when the
prompt shares more of it, and more of the prompt, than what the slot holds.
"""

from collections.abc import Callable

import numpy as np

from golem_core.state.kept import Kept

LEAST_KEPT = 0.25  # an entry of which less would be used is left alone
LEAVES_BELOW = 0.5  # of what a slot holds: a prompt that keeps this much does not put it away


def shared(held: np.ndarray, ids: np.ndarray) -> int:
    """Leading tokens two i32 arrays share."""
    n = min(len(held), len(ids))
    differs = held[:n] != ids[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


class HostCache:
    """Entries in the order they came, within ``limit`` bytes and about ``positions`` tokens.

    limit: 0 keeps nothing. positions: of a slot; more tokens than that are kept as long as their
    bytes, at the average a token takes, fit the limit. clock: seconds, monotonic.
    """

    def __init__(self, limit: int, positions: int, clock: Callable[[], float]):
        self._limit = limit
        self._positions = positions
        self._clock = clock
        self._entries: list[tuple[float, Kept]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return sum(kept.nbytes for _, kept in self._entries)

    @property
    def tokens(self) -> int:
        """Tokens of all entries."""
        return sum(len(kept.tokens) for _, kept in self._entries)

    def wants(self, held: np.ndarray, ids: np.ndarray, chosen_for_share: bool) -> bool:
        """Whether what a slot holds is to be put away before a prompt takes the slot.

        chosen_for_share: the slot was named, or chosen because it holds much of the prompt.
        """
        if not self._limit:
            return False
        return not chosen_for_share or shared(held, ids) < LEAVES_BELOW * len(held)

    def put(self, held: np.ndarray, size: int, take: Callable[[], Kept]) -> bool:
        """Put away what a slot holds, unless an entry has all of it or it is too large.

        Args:
            held: (n,) i32, its tokens.
            size: about how many bytes ``take`` will copy.
        """
        if not len(held) or size > self._limit:
            return False
        entries = [kept for _, kept in self._entries]
        if any(shared(kept.tokens, held) == len(held) for kept in entries):
            return False
        self._entries = [
            (at, kept)
            for at, kept in self._entries
            if shared(kept.tokens, held) < len(kept.tokens)
        ]
        while self._entries and self.nbytes + size > self._limit:
            self._entries.pop(0)
        self._entries.append((self._clock(), take()))
        self._trim()
        return True

    def get(self, held: np.ndarray, ids: np.ndarray) -> Kept | None:
        """Take out the entry that serves a prompt better than what the slot holds, if one does."""
        common = shared(held, ids)
        best, best_kept = None, common / len(held) if len(held) else -1.0
        best_share = common / len(ids)
        for entry in self._entries:
            kept = entry[1]
            common = shared(kept.tokens, ids)
            part, share = common / len(kept.tokens), common / len(ids)
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
