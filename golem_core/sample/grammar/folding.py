"""Which bytes a grammar treats alike, so that a mask asks about texts that read alike only once.

A vocabulary of 262,144 tokens has 590,000 places in its trie and 30,000 when all letters are one.
Bytes are folded as most places of a grammar treat them: control characters, digits and the bytes of
longer characters always, letters by those of its classes that many of them belong to. Where a
grammar does tell folded bytes apart the matcher sees it and goes on along the texts themselves.
"""

from __future__ import annotations

import string

import numpy as np

from golem_core.sample.grammar.bytewise import ALL

_LETTERS = np.frombuffer(string.ascii_letters.encode(), np.uint8)
_MANY = 13  # of 26: what texts are made of, other than the letters of a key or an escape
_MOST_LETTERS = 3  # classes of letters that are worth it
_MOST_SETS = 32  # of letters that are looked at
_FEW_LETTERS = 5  # classes, when literal letters count as well

_ALIKE = (  # besides letters; texts of each stand at the same place of UTF-8 after any of its bytes
    (*range(0x01, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20)),
    range(0x30, 0x3A),
    range(0x80, 0x90),
    range(0x90, 0xA0),
    range(0xA0, 0xC0),
    range(0xC2, 0xE0),
    (*range(0xE1, 0xED), 0xEE, 0xEF),
    range(0xF1, 0xF4),
)


def classes_of(
    kinds: np.ndarray,
    values: np.ndarray,
    steps: np.ndarray,
    beyond: np.ndarray,
    byte_class: np.ndarray,
    char: int,
) -> bytes | None:
    """The class (256) of each byte for a grammar's tables; None where folding would not pay.

    kinds, values: of the grammar's elements, char the kind of those that read a class, whose
    value is its state; steps (states, byte classes): 0 where a byte may not follow; beyond
    (states): ALL where a state reads every character beyond ASCII.
    """
    states, used = np.unique(values[kinds == char], return_counts=True)
    may = steps[states][:, byte_class[_LETTERS]] > 0
    many = (may[:, :26].sum(1) >= _MANY) | (may[:, 26:].sum(1) >= _MANY)
    many |= beyond[states] == ALL
    if not many.any():
        return None
    letters = _alike(may)
    if len(letters) > _FEW_LETTERS:
        letters = _alike(may[:0])
        counted = _counted(may[many], used[many])
        for i in range(len(counted)):  # most used first, as long as it is worth it
            finer = _alike(counted[: i + 1])
            if len(finer) > _MOST_LETTERS:
                break
            letters = finer
    classes = bytearray(range(256))
    for group in (*_ALIKE, *letters):
        first = min(group)
        for byte in group:
            classes[byte] = first
    return bytes(classes)


def _alike(may: np.ndarray) -> list[list[int]]:
    """Letters that are in the same classes; may (classes, letters)."""
    groups: dict[bytes, list[int]] = {}
    for letter, column in zip(_LETTERS.tolist(), may.T, strict=True):
        groups.setdefault(column.tobytes(), []).append(letter)
    return list(groups.values())


def _counted(may: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Different sets of letters (sets, letters), those first that most elements read."""
    sets, of = np.unique(may, axis=0, return_inverse=True)
    return sets[np.argsort(-np.bincount(of.ravel(), used), kind="stable")][:_MOST_SETS]
