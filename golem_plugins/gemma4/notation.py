"""How Gemma 4 spells the arguments of a call, for grammars: what a forced call may look like."""

import json
from collections.abc import Iterable
from typing import Any

from golem_core.sample.grammar import Expression, GrammarError, alt, seq, text
from golem_core.sample.grammar.automaton import Automaton, both, explore
from golem_core.sample.grammar.expressions import NOTHING, Text
from golem_core.sample.grammar.json_text import plain
from golem_core.sample.grammar.notation import Notation, Speller
from golem_core.sample.grammar.ranges import LAST

QUOTE = '<|"|>'
_LETTERS = sorted(map(ord, "$-./0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))


def _without(mark: str) -> Automaton:
    """Every text that does not hold a mark. A state is how much of it was read just now."""

    def edges(state: int) -> Iterable[tuple[int, int, int]]:
        at = 0
        for letter in sorted(set(mark)):
            seen = mark[:state] + letter
            if ord(letter) > at:
                yield at, ord(letter) - 1, 0
            at = ord(letter) + 1
            to = next(n for n in range(len(seen), -1, -1) if seen.endswith(mark[:n]))
            if to < len(mark):
                yield ord(letter), ord(letter), to
        yield at, LAST, 0

    return explore(0, edges, lambda state: True)


_STRINGS = _without(QUOTE)
_BARE = explore(0, lambda state: [(c, c, 1) for c in _LETTERS], lambda state: state == 1)


def _quoted(value: str) -> str:
    """A fixed text between quotes. Raises GrammarError for one that holds the quote itself."""
    if QUOTE in value:
        raise GrammarError(
            f"{json.dumps(value[:64])} cannot be said in this model's calls, which write {QUOTE} "
            "around texts and have no escape for it: choose another name or value"
        )
    return f"{QUOTE}{value}{QUOTE}"


class _Strings:
    """Strings between quotes; there are no escapes, so the quote itself cannot be said."""

    def spell(self, automaton: Automaton, name: str = "string") -> Expression:
        return seq(QUOTE, plain(both(automaton, _STRINGS), name), QUOTE)


class _Keys:
    """Keys, between quotes only where their letters need it."""

    def spell(self, automaton: Automaton, name: str = "string") -> Expression:
        return alt(plain(both(automaton, _BARE), name), _Strings().spell(automaton, name))


class GemmaNotation(Notation):
    """``{key:<|"|>text<|"|>,other:[1,true]}``, without blanks."""

    space = NOTHING
    string = seq(QUOTE, plain(_STRINGS, "string"), QUOTE)
    key = plain(_BARE, "key")

    def literal(self, value: Any) -> Text:
        return text(self._written(value))

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, dict):
            return (
                "{" + ",".join(f"{self._key(k)}:{self._written(v)}" for k, v in value.items()) + "}"
            )
        if isinstance(value, list | tuple):
            return "[" + ",".join(map(self._written, value)) + "]"
        return json.dumps(value, allow_nan=False)

    def _key(self, key: str) -> str:
        return key if _BARE.accepts(key) else _quoted(key)

    def name(self, key: str) -> Text:
        return text(self._key(key))

    def strings(self, free: bool) -> Speller:
        return _Strings()

    def keys(self, strings: Speller) -> Speller:
        return _Keys()
