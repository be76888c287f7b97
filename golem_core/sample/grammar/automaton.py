"""Finite automata over code points: where a schema asks for several things of one text at once.

Patterns, lengths, formats and excluded names are each an automaton; what all of them allow is
their product, and whether there is such a text at all can be seen from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from golem_core.sample.grammar.ranges import LAST, Ranges, merged

MOST_STATES = 20_000
_MOST_WORK = 1_000_000  # nondeterministic states looked at, all deterministic ones together
_ROUNDS = 64  # of joining states that nothing tells apart; long chains would take one a state

State = TypeVar("State", bound=Hashable)
Edge = tuple[int, int, int]  # first code point, last code point, state


class TooLarge(Exception):
    """An automaton would need more states than MOST_STATES."""


@dataclass(frozen=True)
class Automaton:
    """Deterministic; it starts in state 0. Without states it accepts nothing.

    edges: of each state, ascending and apart. ends: states in which the text may stop.
    """

    edges: tuple[tuple[Edge, ...], ...]
    ends: frozenset[int]

    @property
    def never(self) -> bool:
        """Whether there is no text at all. True only of automata made by this module."""
        return not self.ends

    def accepts(self, text: str) -> bool:
        """Whether it allows a text."""
        state: int | None = 0 if self.edges else None
        for char in text:
            if state is None:
                return False
            point = ord(char)
            state = next((to for a, b, to in self.edges[state] if a <= point <= b), None)
        return state in self.ends


def explore(
    start: State,
    edges: Callable[[State], Iterable[tuple[int, int, State]]],
    ends: Callable[[State], bool],
) -> Automaton:
    """The automaton of states that are reachable from a start, without those that lead nowhere.

    edges: a state's, ascending and apart. Raises TooLarge.
    """
    numbers = {start: 0}
    found: list[list[Edge]] = []
    accepted = set()
    waiting = [start]
    for state in waiting:  # grows
        number = numbers[state]
        if ends(state):
            accepted.add(number)
        row: list[Edge] = []
        for low, high, to in edges(state):
            if to not in numbers:
                if len(numbers) >= MOST_STATES:
                    raise TooLarge
                numbers[to] = len(numbers)
                waiting.append(to)
            target = numbers[to]
            if row and row[-1][2] == target and row[-1][1] + 1 == low:
                row[-1] = (row[-1][0], high, target)
            else:
                row.append((low, high, target))
        found.append(row)
    return _trimmed(found, accepted)


def _trimmed(edges: list[list[Edge]], ends: set[int]) -> Automaton:
    """Drops states that reach no end; joins those that nothing tells apart, if soon done."""
    before: list[list[int]] = [[] for _ in edges]
    for state, row in enumerate(edges):
        for _, _, to in row:
            before[to].append(state)
    alive = set(ends)
    waiting = list(ends)
    while waiting:
        for state in before[waiting.pop()]:
            if state not in alive:
                alive.add(state)
                waiting.append(state)
    if 0 not in alive:
        return Automaton((), frozenset())
    rows = [[e for e in row if e[2] in alive] if i in alive else [] for i, row in enumerate(edges)]
    block = [(s in ends) + 1 if s in alive else 0 for s in range(len(edges))]
    count = len(set(block))
    for _ in range(_ROUNDS):  # Moore's refinement
        seen: dict[tuple[int, tuple[Edge, ...]], int] = {}
        block = [
            seen.setdefault((block[s], _onto(row, block)), len(seen)) for s, row in enumerate(rows)
        ]
        if len(seen) == count:
            break
        count = len(seen)
    else:
        block = list(range(len(edges)))
    numbers: dict[int, int] = {block[0]: 0}
    order = [0]
    result = []
    for state in order:  # grows
        row = []
        for low, high, to in _onto(rows[state], block):
            if to not in numbers:
                numbers[to] = len(numbers)
                order.append(next(t for _, _, t in rows[state] if block[t] == to))
            row.append((low, high, numbers[to]))
        result.append(tuple(row))
    return Automaton(tuple(result), frozenset(i for i, s in enumerate(order) if s in ends))


def _onto(row: list[Edge], block: list[int]) -> tuple[Edge, ...]:
    return _joined((low, high, block[to]) for low, high, to in row)


def _joined(row: Iterable[Edge]) -> tuple[Edge, ...]:
    """The same with edges that lead to the same state side by side as one."""
    joined: list[Edge] = []
    for low, high, to in row:
        if joined and joined[-1][2] == to and joined[-1][1] + 1 == low:
            joined[-1] = (joined[-1][0], high, to)
        else:
            joined.append((low, high, to))
    return tuple(joined)


def both(a: Automaton, b: Automaton) -> Automaton:
    """What both allow."""
    if a.never or b.never:
        return Automaton((), frozenset())

    def edges(state: tuple[int, int]) -> Iterable[tuple[int, int, tuple[int, int]]]:
        x, y = a.edges[state[0]], b.edges[state[1]]
        i = j = 0
        while i < len(x) and j < len(y):
            low, high = max(x[i][0], y[j][0]), min(x[i][1], y[j][1])
            if low <= high:
                yield low, high, (x[i][2], y[j][2])
            if x[i][1] < y[j][1]:
                i += 1
            else:
                j += 1

    return explore((0, 0), edges, lambda state: state[0] in a.ends and state[1] in b.ends)


def negated(a: Automaton) -> Automaton:
    """Every text that it does not allow."""

    def edges(state: int) -> Iterable[tuple[int, int, int]]:
        at = 0
        for low, high, to in a.edges[state] if state >= 0 and a.edges else ():
            if low > at:
                yield at, low - 1, -1
            yield low, high, to
            at = high + 1
        if at <= LAST:
            yield at, LAST, -1

    return explore(0, edges, lambda state: state not in a.ends)


def of_length(least: int, most: int | None) -> Automaton:
    """Every text of so many code points."""
    last = least if most is None else most
    if last >= MOST_STATES:
        raise TooLarge
    if most is not None and most < least:
        return Automaton((), frozenset())
    edges: list[tuple[Edge, ...]] = [((0, LAST, i + 1),) for i in range(last)]
    edges.append(((0, LAST, last),) if most is None else ())
    return Automaton(tuple(edges), frozenset(range(least, last + 1)))


def words(texts: Iterable[str]) -> Automaton:
    """Exactly these texts."""
    trie: list[dict[int, int]] = [{}]
    ends = set()
    for text in texts:
        at = 0
        for char in text:
            to = trie[at].get(ord(char))
            if to is None:
                to = trie[at][ord(char)] = len(trie)
                trie.append({})
            at = to
        ends.add(at)
    if len(trie) > MOST_STATES:
        raise TooLarge
    if not ends:
        return Automaton((), frozenset())
    # Bottom up, which is from the last to the first: what follows is known, so alike is equal.
    known: dict[tuple[bool, tuple[Edge, ...]], int] = {}
    block = [0] * len(trie)
    for state in range(len(trie) - 1, -1, -1):
        row = [(c, c, block[to]) for c, to in sorted(trie[state].items())]
        block[state] = known.setdefault((state in ends, _joined(row)), len(known))
    rows = list(known)[::-1]  # the start came last
    edges = tuple(tuple((a, z, len(rows) - 1 - to) for a, z, to in row) for _, row in rows)
    return Automaton(edges, frozenset(i for i, (end, _) in enumerate(rows) if end))


@dataclass
class Nfa:
    """A nondeterministic automaton being put together; ``determinised`` ends it.

    steps: (class, state) of each state. free: states reached without reading. first, last: the
    same, where nothing was read yet or nothing follows.
    """

    steps: list[list[tuple[Ranges, int]]]
    free: list[list[int]]
    first: list[list[int]]
    last: list[list[int]]

    @classmethod
    def new(cls) -> Nfa:
        return cls([], [], [], [])

    def state(self) -> int:
        """A new state."""
        if len(self.steps) > MOST_STATES:
            raise TooLarge
        for table in (self.steps, self.free, self.first, self.last):
            table.append([])
        return len(self.steps) - 1

    def determinised(self, start: int, end: int) -> Automaton:
        """The deterministic automaton of the texts from start to end."""

        def closed(states: Iterable[int], at_start: bool, at_end: bool) -> frozenset[int]:
            seen = set(states)
            waiting = list(seen)
            while waiting:
                s = waiting.pop()
                for to in (
                    self.free[s]
                    + (self.first[s] if at_start else [])
                    + (self.last[s] if at_end else [])
                ):
                    if to not in seen:
                        seen.add(to)
                        waiting.append(to)
            return frozenset(seen)

        known: dict[frozenset[int], tuple[frozenset[int], bool]] = {}
        work = 0

        def edges(state: tuple[frozenset[int], bool]) -> Iterable[tuple[int, int, object]]:
            nonlocal work
            work += len(state[0])
            if work > _MOST_WORK:
                raise TooLarge
            moves = [move for s in state[0] for move in self.steps[s]]
            bounds = sorted({b for ranges, _ in moves for a, z in ranges for b in (a, z + 1)})
            opened: dict[int, list[int]] = {}
            closing: dict[int, list[int]] = {}
            for ranges, to in moves:
                for a, z in ranges:
                    opened.setdefault(a, []).append(to)
                    closing.setdefault(z + 1, []).append(to)
            alive: dict[int, int] = {}
            for low, following in pairwise(bounds):
                for to in closing.get(low, ()):
                    alive[to] -= 1
                for to in opened.get(low, ()):
                    alive[to] = alive.get(to, 0) + 1
                targets = frozenset(to for to, n in alive.items() if n)
                if targets:
                    if targets not in known:
                        known[targets] = (closed(targets, False, False), False)
                    yield low, following - 1, known[targets]

        return explore(
            (closed([start], True, False), True),
            edges,  # type: ignore[arg-type]
            lambda state: end in closed(state[0], state[1], True),
        )


def ranges_of(edges: Iterable[Edge]) -> dict[int, Ranges]:
    """A state's edges by where they lead."""
    by_target: dict[int, list[tuple[int, int]]] = {}
    for low, high, to in edges:
        by_target.setdefault(to, []).append((low, high))
    return {to: merged(ranges) for to, ranges in by_target.items()}
