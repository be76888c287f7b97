"""How JSON spells things: blanks, strings with their escapes, numbers.

Blanks and numbers are those of llama.cpp's schema converter. A string
of a schema is an automaton over what it means; here it becomes the ways of writing that down,
where a character may stand for itself or be escaped, and two escapes may be one character.
"""

from __future__ import annotations

import json
from typing import Any

from golem_core.sample.grammar.automaton import Automaton, ranges_of
from golem_core.sample.grammar.expressions import (
    NOTHING,
    Expression,
    Rule,
    Text,
    alt,
    chars,
    maybe,
    repeat,
    seq,
    text,
)
from golem_core.sample.grammar.ranges import Ranges, common, complement, merged, minus, split

_DELETE = ((0x7F, 0x7F),)  # JSON allows it raw; llama.cpp only where a key is none of those named
_RAW = complement(merged([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), *_DELETE, (0xD800, 0xDFFF)]))
_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_HIGH, _LOW = ((0xD800, 0xDBFF),), ((0xDC00, 0xDFFF),)
_PLAIN = merged([(0, 0xD7FF), (0xE000, 0xFFFF)])  # what one \u escape says by itself
_ASTRAL = ((0x10000, 0x10FFFF),)

_digit = chars("0-9")
_hex = chars("0-9", "a-f", "A-F")
_char = alt(
    chars(*_RAW),
    seq("\\", alt(chars(*_SHORT.values()), seq("u", repeat(_hex, 4, 4)))),
)

SPACE = Rule(
    "space",
    alt(NOTHING, " ", seq(repeat(text("\n"), 1, 2), repeat(chars(" \t"), 0, 20))),
)
STRING = Rule("string", seq('"', repeat(Rule("char", _char)), '"'))
_INTEGRAL = Rule("integral-part", alt("0", seq(chars("1-9"), repeat(_digit, 0, 15))))
INTEGER = Rule("integer", seq(maybe(text("-")), _INTEGRAL))
NUMBER = Rule(
    "number",
    seq(
        INTEGER,
        maybe(seq(".", repeat(_digit, 1, 16))),
        maybe(seq(chars("eE"), maybe(chars("+-")), _INTEGRAL)),
    ),
)
BOOLEAN = Rule("boolean", alt("true", "false"))
NULL = Rule("null", text("null"))


def literal(value: Any) -> Text:
    """A value as it is written without blanks."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text(written)
    except UnicodeEncodeError:  # half a surrogate pair: only an escape can say it
        return text(json.dumps(value, separators=(",", ":")))


def plain(automaton: Automaton, name: str) -> Expression:
    """The texts of an automaton, as they are."""
    if automaton.never:
        return alt()
    rules = [Rule(f"{name}-{state}") for state in range(len(automaton.edges))]
    for state, rule in enumerate(rules):
        options: list[Expression] = [
            seq(chars(*ranges), rules[to])
            for to, ranges in ranges_of(automaton.edges[state]).items()
        ]
        if state in automaton.ends:
            options.append(seq())
        rule.body = alt(*options)
    return rules[0]


class Strings:
    """Automata as JSON strings; what they have in common is written once.

    free: any character may be escaped, as the escapes' excuse is that they mean the same. Else
    only what has to be, and what is not ASCII.
    """

    def __init__(self, free: bool):
        self._free = free
        self._units: dict[tuple[Ranges, bool], Expression | None] = {}
        self._hexes: dict[tuple[Ranges, int], Expression] = {}
        self._spelled: dict[Automaton, Expression] = {}

    def spell(self, automaton: Automaton, name: str = "string") -> Expression:
        """The JSON strings, quotes included, whose meaning the automaton accepts."""
        if automaton not in self._spelled:
            self._spelled[automaton] = self._spell(automaton, name)
        return self._spelled[automaton]

    def _spell(self, automaton: Automaton, name: str) -> Expression:
        # Twice a state: after an escape that is the first half of a pair, a second half would
        # make them one character.
        rules: dict[tuple[int, bool], Rule] = {}

        def rule(state: int, halved: bool) -> Rule:
            known = rules.get((state, halved))
            if known is None:
                known = rules[state, halved] = Rule(f"{name}-{state}")
                waiting.append((state, halved))
            return known

        waiting: list[tuple[int, bool]] = []
        if automaton.never:
            return alt()
        start = rule(0, False)
        while waiting:
            state, halved = waiting.pop()
            options: list[Expression] = []
            for to, ranges in ranges_of(automaton.edges[state]).items():
                unit = self._unit(ranges, halved)
                if unit is not None:
                    options.append(seq(unit, rule(to, False)))
                half = common(ranges, _HIGH)
                if half:
                    options.append(seq("\\u", self._hex(half, 16), rule(to, True)))
            if state in automaton.ends:
                options.append(text('"'))
            rules[state, halved].body = alt(*options)
        return seq('"', start)

    def _unit(self, ranges: Ranges, halved: bool) -> Expression | None:
        """One character of a class, but for first halves of pairs, and for second ones too when
        it follows a first."""
        key = (ranges, halved)
        if key not in self._units:
            options: list[Expression] = []
            raw = common(ranges, merged([*_RAW, *_DELETE]) if self._free else _RAW)
            if raw:
                options.append(chars(*raw))
            escaped = ranges if self._free else minus(ranges, common(_RAW, ((0, 0x7F),)))
            short = [s for c, s in _SHORT.items() if common(escaped, ((ord(c), ord(c)),))]
            if short:
                options.append(seq("\\", chars(*short)))
            plain = common(escaped, _PLAIN if halved else merged([*_PLAIN, *_LOW]))
            if plain:
                options.append(seq("\\u", self._hex(plain, 16)))
            astral = common(escaped, _ASTRAL)
            if astral:
                options.append(self._pairs(astral))
            self._units[key] = Rule("char", alt(*options)) if options else None
        return self._units[key]

    def _pairs(self, ranges: Ranges) -> Expression:
        by_second: dict[Ranges, list[tuple[int, int]]] = {}
        for high, seconds in split(tuple((a - 0x10000, b - 0x10000) for a, b in ranges), 10):
            second = tuple((a + 0xDC00, b + 0xDC00) for a, b in seconds)
            by_second.setdefault(second, []).append((high[0] + 0xD800, high[1] + 0xD800))
        return alt(
            *(
                seq("\\u", self._hex(merged(first), 16), "\\u", self._hex(second, 16))
                for second, first in by_second.items()
            )
        )

    def _hex(self, ranges: Ranges, bits: int) -> Expression:
        """Numbers of so many bits as hexadecimal digits, in capitals or not."""
        key = (ranges, bits)
        if key not in self._hexes:
            full = ((0, (1 << bits) - 1),)
            if ranges == full:
                body: Expression = repeat(_hex, bits // 4, bits // 4)
            else:
                options = []
                for digits, rest in split(ranges, bits - 4):
                    digit = _digits(digits)
                    options.append(seq(digit, self._hex(rest, bits - 4)) if bits > 4 else digit)
                body = alt(*options)
            self._hexes[key] = Rule("hex", body)
        return self._hexes[key]


def _digits(span: tuple[int, int]) -> Expression:
    digits = "0123456789abcdef"[span[0] : span[1] + 1]
    return chars(*digits, *digits.upper())
