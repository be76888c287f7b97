"""What a grammar is written with: a handful of expressions, whoever writes it.

GBNF texts and JSON schemas become these, and a caller may put them together: a fixed text, a
schema's value, a token, whatever comes until a marker. ``Grammar`` takes the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from golem_core.sample.grammar.ranges import Ranges, merged, minus


class Expression:
    """Anything a grammar is made of."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """Exactly these bytes; none at all is nothing."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Chars(Expression):
    """One character of a class of code points, in UTF-8, which surrogates do not have."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Bytes(Expression):
    """One byte of a class, whatever character it is part of."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Token(Expression):
    """One token, by id or by a text that stands for it. other: any token but that one."""

    name: int | str
    other: bool = False


@dataclass(frozen=True, slots=True)
class Chain(Expression):
    """One after the other."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice(Expression):
    """Any one of these; of none there is no text."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat(Expression):
    """An item several times in a row; most: None = without end."""

    item: Expression
    least: int
    most: int | None


@dataclass(slots=True, eq=False)
class Rule(Expression):
    """A name for an expression, so that it can be used in several places and inside itself."""

    name: str
    body: Expression = field(default_factory=lambda: Choice(()))


NOTHING = Text(b"")
NEVER = Choice(())


def text(value: str | bytes) -> Text:
    """A fixed text."""
    return Text(value.encode() if isinstance(value, str) else value)


def seq(*items: Expression | str) -> Expression:
    """One after the other; strings are fixed texts."""
    parts = tuple(text(item) if isinstance(item, str) else item for item in items)
    return parts[0] if len(parts) == 1 else Chain(parts)


def alt(*options: Expression | str) -> Expression:
    """Any one of these."""
    parts = tuple(text(item) if isinstance(item, str) else item for item in options)
    return parts[0] if len(parts) == 1 else Choice(parts)


def repeat(item: Expression, least: int = 0, most: int | None = None) -> Expression:
    """An item ``least`` to ``most`` times."""
    return Repeat(item, least, most)


def maybe(item: Expression) -> Expression:
    """An item or nothing."""
    return Choice((item, NOTHING))


def chars(*parts: str | tuple[int, int]) -> Chars:
    """A class of characters: single ones, "a-z" pairs, or (low, high) code points."""
    ranges = []
    for part in parts:
        if isinstance(part, tuple):
            ranges.append(part)
        elif len(part) == 3 and part[1] == "-":
            ranges.append((ord(part[0]), ord(part[2])))
        else:
            ranges += [(ord(c), ord(c)) for c in part]
    return Chars(merged(ranges))


def until(marker: bytes) -> Expression:
    """Whatever comes, up to and with the first occurrence of a marker; bytes need be no UTF-8."""
    if not marker:
        raise ValueError("an empty marker is everywhere")
    rules = [Rule(f"until-{i}") for i in range(len(marker))]
    for i, rule in enumerate(rules):
        options: list[Expression] = []
        rest = merged([(0, 255)])
        for byte in sorted(set(marker)):
            to = _overlap(marker, marker[:i] + bytes([byte]))
            rest = minus(rest, ((byte, byte),))
            follows = rules[to] if to < len(marker) else NOTHING
            options.append(seq(Bytes(((byte, byte),)), follows))
        if rest:
            options.append(seq(Bytes(rest), rules[0]))
        rule.body = Choice(tuple(options))
    return rules[0]


def _overlap(marker: bytes, seen: bytes) -> int:
    """Length of the longest beginning of ``marker`` that ``seen`` ends with."""
    return next(n for n in range(min(len(marker), len(seen)), -1, -1) if seen.endswith(marker[:n]))
