"""A grammar that answers can be held to: expressions put into the tables that the matcher reads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from golem_core.sample.grammar._matcher import Bound, Matcher, Vocabulary
from golem_core.sample.grammar.bytewise import Classes
from golem_core.sample.grammar.collecting import paused
from golem_core.sample.grammar.errors import GrammarError, GrammarLimit
from golem_core.sample.grammar.expressions import (
    Bytes,
    Chain,
    Chars,
    Choice,
    Expression,
    Repeat,
    Rule,
    Text,
    Token,
    repeat,
    seq,
    until,
)
from golem_core.sample.grammar.folding import classes_of

END, CHAR, RULE, TOKEN, NOT_TOKEN = range(5)  # kinds of elements, as in stacks.h
MOST_ELEMENTS = 1 << 19

_Element = tuple[int, Any]
_ONE_EMPTY_TEXT = Vocabulary([b"\0"])  # nothing matches it: for trying a grammar out


class Grammar:
    """A grammar: ``Matcher(grammar, vocabulary)`` holds an answer to it.

    root: an expression, or a rule. others: rules that need not be reached from it, but must make
    sense too. prune: leave out what can never come to an end; otherwise such
    parts are kept and an answer that enters one never may end. Raises GrammarError for left
    recursion, GrammarLimit for a grammar that is too large.
    """

    @paused()
    def __init__(self, root: Expression, *, others: Iterable[Rule] = (), prune: bool = False):
        self._made_of = (root, tuple(others), prune)
        tables = _Tables()
        start = tables.rule_of(root)
        for rule in self._made_of[1]:
            tables.rule_of(rule)
        tables.lower()
        if prune:
            tables.prune()
        _refuse_left_recursion(tables)
        self.never = prune and not tables.rules[start]
        self._arrays = tables.arrays()
        self._root = start
        self._names = tables.names
        self._bound: WeakKeyDictionary[Vocabulary, Bound] = WeakKeyDictionary()
        self._lock = threading.Lock()
        if not self._names:  # too deep or too ambiguous to start with: say so now
            Matcher(self, _ONE_EMPTY_TEXT)
            self._bound.clear()

    @staticmethod
    @paused()
    def compile(text: str) -> Grammar:
        """A grammar from GBNF, llama.cpp's notation; its start is the rule ``root``."""
        from golem_core.sample.grammar.gbnf import parse

        rules = parse(text)
        return Grammar(rules["root"], others=rules.values())

    @staticmethod
    @paused()
    def of_schema(schema: Any, *, padded: bool = False) -> Grammar:
        """The JSON texts of a schema. padded: with blanks around. Raises SchemaError."""
        from golem_core.sample.grammar.schema import grammar_of

        return grammar_of(schema, padded=padded)

    def after(self, mark: int | bytes) -> Grammar:
        """This grammar once a token (an id) or a text was said; until then, anything but an end."""
        root, others, prune = self._made_of
        if isinstance(mark, int):
            waiting = seq(repeat(Token(mark, other=True)), Token(mark))
        else:
            waiting = until(mark)
        return Grammar(seq(waiting, root), others=others, prune=prune)

    @property
    def size(self) -> int:
        """Elements of all its rules."""
        return len(self._arrays[0])

    def bind(self, vocabulary: Vocabulary) -> Bound:
        """What all answers over a vocabulary share, as long as there is that vocabulary.

        Raises GrammarError for unknown tokens.
        """
        with self._lock:
            bound = self._bound.get(vocabulary)
            if bound is None:
                kinds, values, *rest = self._arrays
                if self._names:
                    values = values.copy()
                    for at, name in self._names:
                        values[at] = self._find(vocabulary, name, kinds[at] == TOKEN)
                classes = classes_of(kinds, values, *rest[2:], CHAR)
                folded = None if classes is None else vocabulary.folded(classes)
                bound = Bound(vocabulary, kinds, values, *rest, self._root, folded)
                self._bound[vocabulary] = bound
            return bound

    @staticmethod
    def _find(vocabulary: Vocabulary, name: int | str, wanted: bool) -> int:
        shown = f"<[{name}]>" if isinstance(name, int) else name
        if isinstance(name, int):
            token = name if 0 <= name < len(vocabulary) else None
        else:
            token = vocabulary.find(name) if vocabulary.find is not None else None
        if token is None:
            raise GrammarError(f"invalid token '{shown}': the vocabulary has no such token")
        if wanted and vocabulary.is_end(token):
            raise GrammarError(
                f"invalid token '{shown}': it ends a generation, which it may do by itself where "
                "the grammar is complete; leave it out"
            )
        return token


class _Tables:
    """Rules as alternatives of elements, numbered in the order they are first met."""

    def __init__(self):
        self.rules: list[list[list[_Element]]] = []
        self.titles: list[str] = []
        self.names: list[tuple[int, int | str]] = []
        self._numbers: dict[int, int] = {}  # id of an expression -> its rule
        self._kept: list[Expression] = []  # so that ids stay theirs
        self._waiting: list[tuple[int, Expression]] = []
        self._classes = Classes()
        self._size = 0

    def rule_of(self, expression: Expression) -> int:
        """The number of the rule that stands for an expression."""
        number = self._numbers.get(id(expression))
        if number is None:
            title = expression.name if isinstance(expression, Rule) else ""
            number = self._new(title)
            self._numbers[id(expression)] = number
            self._kept.append(expression)
            self._waiting.append((number, expression))
        return number

    def _new(self, title: str) -> int:
        self.rules.append([])
        self.titles.append(title)
        return len(self.rules) - 1

    def lower(self) -> None:
        """Fills the rules that were asked for, and those they ask for."""
        while self._waiting:
            number, expression = self._waiting.pop()
            body = expression.body if isinstance(expression, Rule) else expression
            options = body.options if isinstance(body, Choice) else (body,)
            # Set when done: while one is being filled, repetitions add rules of their own.
            self.rules[number] = [self._elements(option, number) for option in options]

    def _elements(self, expression: Expression, within: int) -> list[_Element]:
        elements: list[_Element] = []
        self._append(elements, expression, within)
        self._count(len(elements) + 1)
        return elements

    def _count(self, elements: int) -> None:
        self._size += elements
        if self._size > MOST_ELEMENTS:
            raise GrammarLimit(
                f"the grammar comes to more than {MOST_ELEMENTS} elements: use shorter "
                "repetitions or fewer rules"
            )

    def _append(self, elements: list[_Element], expression: Expression, within: int) -> None:
        match expression:
            case Text(data):
                elements += [(CHAR, self._classes.bytes(((b, b),))) for b in data]
            case Chars(ranges):
                elements.append((CHAR, self._classes.chars(ranges)))
            case Bytes(ranges):
                elements.append((CHAR, self._classes.bytes(ranges)))
            case Token(name, other):
                elements.append((NOT_TOKEN if other else TOKEN, name))
            case Chain(items):
                for item in items:
                    self._append(elements, item, within)
            case Choice((only,)):
                self._append(elements, only, within)
            case Repeat(item, least, most):
                self._repeat(elements, item, least, most, within)
            case _:
                elements.append((RULE, self.rule_of(expression)))

    def _repeat(
        self, elements: list[_Element], item: Expression, least: int, most: int | None, within: int
    ) -> None:
        """x{2,4} is x x (x (x)?)?, and what may go on for ever recurs on the right."""
        one: list[_Element] = []
        self._append(one, item, within)
        if len(one) > 1:
            one = [(RULE, self.rule_of(item))]
        self._count(least * len(one))
        elements += one * least
        if most is None:
            rule = self._new(self.titles[within])
            again = [*one, (RULE, rule)]
            self._count(len(again) + 2)
            self.rules[rule] = [again, []]
            elements.append((RULE, rule))
            return
        inner: list[_Element] = []
        for _ in range(most - least):
            rule = self._new(self.titles[within])
            self._count(len(one) + 3)
            self.rules[rule] = [[*one, *inner], []]
            inner = [(RULE, rule)]
        elements += inner

    def prune(self) -> None:
        """Drops alternatives that can never come to an end."""
        ends = [False] * len(self.rules)
        users: list[list[int]] = [[] for _ in self.rules]
        for rule, alternatives in enumerate(self.rules):
            for elements in alternatives:
                for kind, value in elements:
                    if kind == RULE:
                        users[value].append(rule)
        waiting = list(range(len(self.rules)))
        while waiting:
            rule = waiting.pop()
            if not ends[rule] and any(_all_end(e, ends) for e in self.rules[rule]):
                ends[rule] = True
                waiting += users[rule]
        for rule, alternatives in enumerate(self.rules):
            self.rules[rule] = [e for e in alternatives if _all_end(e, ends)]

    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that ``Bound`` takes."""
        kinds: list[int] = []
        values: list[int] = []
        first = [0]
        alternatives: list[int] = []
        for rule in self.rules:
            for elements in rule:
                alternatives.append(len(kinds))
                for kind, value in elements:
                    if kind in (TOKEN, NOT_TOKEN):
                        self.names.append((len(kinds), value))
                        value = 0
                    kinds.append(kind)
                    values.append(value)
                kinds.append(END)
                values.append(0)
            first.append(len(alternatives))
        return (
            np.array(kinds or [END], np.uint8),
            np.array(values or [0], np.int32),
            np.array(first, np.int32),
            np.array(alternatives, np.int32),
            *self._classes.table(),
        )


def _all_end(elements: list[_Element], ends: list[bool]) -> bool:
    return all(kind != RULE or ends[value] for kind, value in elements)


def _refuse_left_recursion(tables: _Tables) -> None:
    """A rule that can reach itself before anything is read would be entered for ever."""
    empty = _possibly_empty(tables)

    def leading(rule: int) -> Iterator[int]:
        for elements in tables.rules[rule]:
            for kind, value in elements:
                if kind != RULE:
                    break
                yield value
                if not empty[value]:
                    break

    state = [0] * len(tables.rules)  # 1 = being followed, 2 = fine
    for start in range(len(tables.rules)):
        if state[start]:
            continue
        state[start] = 1
        path = [(start, leading(start))]
        while path:
            rule, rest = path[-1]
            following = next(rest, None)
            if following is None:
                state[rule] = 2
                path.pop()
            elif state[following] == 1:
                title = tables.titles[following] or tables.titles[rule]
                name = f" (rule '{title}')" if title else ""
                raise GrammarError(
                    "unsupported grammar, left recursion detected for nonterminal at index "
                    f"{following}{name}: something must be read before a rule comes round again"
                )
            elif not state[following]:
                state[following] = 1
                path.append((following, leading(following)))


def _possibly_empty(tables: _Tables) -> list[bool]:
    empty = [False] * len(tables.rules)
    users: list[list[int]] = [[] for _ in tables.rules]
    for rule, alternatives in enumerate(tables.rules):
        for elements in alternatives:
            for kind, value in elements:
                if kind == RULE:
                    users[value].append(rule)
    waiting = list(range(len(tables.rules)))
    while waiting:
        rule = waiting.pop()
        if not empty[rule] and any(
            all(kind == RULE and empty[value] for kind, value in elements)
            for elements in tables.rules[rule]
        ):
            empty[rule] = True
            waiting += users[rule]
    return empty
