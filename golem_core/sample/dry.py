"""Where a repetition ends for the DRY sampler: the tokens of a vocabulary that spell a breaker.

A breaker such as a newline may be a whole token, part of one, or begin at the end of one and go
on in the next. A scan of the vocabulary finds all of them once; a draw then looks tokens up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LONGEST_BREAKER = 40  # bytes; the rest of a longer one is cut off
LONGEST_TAIL = 20  # tokens


@dataclass(frozen=True)
class DryHeads:
    """Token t heads the entries first[t] … first[t+1]-1; entry e is complete when the tokens
    after t are tails[start[e]] … tails[start[e+1]-1] (none: t alone is a breaker)."""

    first: np.ndarray  # (V+1,) i32
    start: np.ndarray  # (entries+1,) i32
    tails: np.ndarray  # (sum of lengths, at least 1) i32


def dry_heads(tokenizer: Any, breakers: Sequence[str]) -> DryHeads:
    """Scans the vocabulary for tokens that hold a breaker, or end in the beginning of one."""
    words = [tokenizer.piece(i, special=True) for i in range(tokenizer.n_vocab)]
    entries: dict[int, list[tuple[int, ...]]] = {}
    for text in breakers:
        breaker = text.encode()[:LONGEST_BREAKER]
        if not breaker:
            continue
        tails = [None, *(_tail(tokenizer, breaker[i:]) for i in range(1, len(breaker)))]
        for token, word in enumerate(words):
            if breaker in word:
                entries.setdefault(token, []).append(())
                continue
            for length in range(min(len(word), len(breaker) - 1), 0, -1):
                if word.endswith(breaker[:length]):
                    mine = entries.setdefault(token, [])
                    if tails[length] not in mine:
                        mine.append(tails[length])
    return pack_heads(entries, len(words))


def pack_heads(entries: dict[int, list[tuple[int, ...]]], n_vocab: int) -> DryHeads:
    """The arrays the C side reads, from each head's tails."""
    first = np.zeros(n_vocab + 1, np.int32)
    start, tails = [0], []
    for token in sorted(entries):
        first[token + 1] = len(entries[token])
        for tail in entries[token]:
            tails += tail
            start.append(len(tails))
    return DryHeads(
        np.cumsum(first, dtype=np.int32),
        np.array(start, np.int32),
        np.array(tails or [0], np.int32),
    )


def _tail(tokenizer: Any, rest: bytes) -> tuple[int, ...]:
    ids = tokenizer.encode(rest.decode("utf-8", "replace"), add_special=False, parse_special=False)
    return tuple(ids[:LONGEST_TAIL])
