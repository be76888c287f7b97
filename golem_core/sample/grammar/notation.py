"""How values are spelled: JSON, or what a model family writes in its calls instead.

A schema says which values there may be; the converter asks here how each is written down.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from golem_core.sample.grammar import json_text
from golem_core.sample.grammar.automaton import Automaton
from golem_core.sample.grammar.expressions import Expression, Rule, Text, alt, maybe, repeat, seq


class Speller(Protocol):
    """Writes strings."""

    def spell(self, automaton: Automaton, name: str = "string") -> Expression:
        """Those, quotes included, whose meaning an automaton accepts."""


class Notation:
    """JSON; a family with a notation of its own overrides what differs.

    space: what may stand between the parts of a value, in the order of llama.cpp's schema
    converter. string, key: any of them. value: anything at all.
    """

    space: ClassVar[Expression] = json_text.SPACE
    string: ClassVar[Expression] = json_text.STRING
    key: ClassVar[Expression] = json_text.STRING

    def __init__(self) -> None:
        value = self.value = Rule("value")
        member = self.pair(self.key, value)
        value.body = alt(
            Rule("object", self.braces(maybe(self.listed(member)))),
            Rule("array", self.brackets(maybe(self.listed(value)))),
            self.string,
            json_text.NUMBER,
            json_text.BOOLEAN,
            json_text.NULL,
        )

    def literal(self, value: Any) -> Text:
        """One value, without blanks."""
        return json_text.literal(value)

    def name(self, key: str) -> Text:
        """One key."""
        return json_text.literal(key)

    def strings(self, free: bool) -> Speller:
        """free: characters may be escaped that need not be."""
        return json_text.Strings(free)

    def keys(self, strings: Speller) -> Speller:
        """The same for keys; strings: what writes the strings beside them."""
        return strings

    def pair(self, key: Expression, value: Expression) -> Expression:
        """A key and its value."""
        return seq(key, self.space, ":", self.space, value)

    def listed(self, one: Expression) -> Expression:
        """One or more, with commas between."""
        return seq(one, repeat(seq(",", self.space, one)))

    def braces(self, inner: Expression) -> Expression:
        """An object around its members."""
        return seq("{", self.space, inner, self.space, "}")

    def brackets(self, inner: Expression) -> Expression:
        """An array around its items."""
        return seq("[", self.space, inner, self.space, "]")


JSON = Notation()
