"""Classes of characters as automata over bytes, so that a matcher reads bytes only and half a
character is a state like any other.
"""

from __future__ import annotations

import numpy as np

from golem_core.sample.grammar.errors import GrammarLimit
from golem_core.sample.grammar.ranges import Ranges, common, split

DONE = 1  # a state, as in stacks.h
NONE, ALL, SOME = 0, 1, 2  # of the characters beyond ASCII
_BEYOND_ASCII: Ranges = ((0x80, 0xD7FF), (0xE000, 0x10FFFF))
_MOST_STATES = 60_000

# UTF-8 by length: code points, continuation bytes, what the first byte adds.
_LENGTHS: tuple[tuple[Ranges, int, int], ...] = (
    (((0x00, 0x7F),), 0, 0x00),
    (((0x80, 0x7FF),), 1, 0xC0),
    (((0x800, 0xD7FF), (0xE000, 0xFFFF)), 2, 0xE0),
    (((0x10000, 0x10FFFF),), 3, 0xF0),
)

_Edges = tuple[tuple[int, int, int], ...]  # (first byte, last byte, state)


class Classes:
    """Every class of a grammar; equal states are one."""

    def __init__(self):
        self._states: dict[_Edges, int] = {}
        self._beyond: dict[int, int] = {}
        self._known: dict[tuple[Ranges, bool], int] = {}

    def chars(self, ranges: Ranges) -> int:
        """The state that reads one character of these code points."""
        key = (ranges, True)
        if key not in self._known:
            edges: list[tuple[int, int, int]] = []
            for of_length, more, lead in _LENGTHS:
                part = self._split(common(ranges, of_length), 6 * more)
                edges += [(lead + a, lead + b, to) for a, b, to in part]
            state = self._known[key] = self._state(tuple(edges))
            beyond = common(ranges, _BEYOND_ASCII)
            self._beyond[state] = ALL if beyond == _BEYOND_ASCII else SOME if beyond else NONE
        return self._known[key]

    def bytes(self, ranges: Ranges) -> int:
        """The state that reads one byte of these."""
        key = (ranges, False)
        if key not in self._known:
            state = self._known[key] = self._state(tuple((a, b, DONE) for a, b in ranges))
            self._beyond[state] = SOME if ranges and ranges[-1][1] >= 0x80 else NONE
        return self._known[key]

    def _split(self, ranges: Ranges, bits: int) -> list[tuple[int, int, int]]:
        """Edges by the number above the low ``bits``, whose states read the rest."""
        if not bits:
            return [(a, b, DONE) for a, b in ranges]
        return [(a, b, self._rest(rest, bits)) for (a, b), rest in split(ranges, bits)]

    def _rest(self, ranges: Ranges, bits: int) -> int:
        edges = self._split(ranges, bits - 6)
        return self._state(tuple((0x80 + a, 0x80 + b, to) for a, b, to in edges))

    def _state(self, edges: _Edges) -> int:
        joined: list[tuple[int, int, int]] = []
        for a, b, to in edges:
            if joined and joined[-1][2] == to and joined[-1][1] + 1 == a:
                joined[-1] = (joined[-1][0], b, to)
            else:
                joined.append((a, b, to))
        state = self._states.setdefault(tuple(joined), len(self._states) + 2)
        if state > _MOST_STATES:
            raise GrammarLimit("the grammar has too many different classes of characters")
        return state

    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps u16 (states, classes of bytes); what each state reads of the characters beyond
        ASCII u8 (states); the class of each byte u8 (256)."""
        steps = np.zeros((len(self._states) + 2, 256), np.uint16)
        for edges, state in self._states.items():
            for a, b, to in edges:
                steps[state, a : b + 1] = to
        columns: dict[bytes, int] = {}
        flipped = np.ascontiguousarray(steps.T)
        byte_class = [columns.setdefault(column.tobytes(), len(columns)) for column in flipped]
        first = [byte_class.index(i) for i in range(len(columns))]
        beyond = np.array([self._beyond.get(state, SOME) for state in range(len(steps))], np.uint8)
        return np.ascontiguousarray(steps[:, first]), beyond, np.array(byte_class, np.uint8)
