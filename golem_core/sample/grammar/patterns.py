"""Regular expressions of JSON schemas, made into automata.

Where dialects disagree on what a pattern matches (ECMA-262, which JSON Schema names, and Python's
``re``, which the jsonschema package uses), the narrow reading allows what both match and the wide
one what either does: a text to be written must match for sure, a text to be excluded must not
match at all. What no finite automaton or not every dialect expresses is refused by name.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from golem_core.sample.grammar.automaton import Automaton, Nfa, TooLarge
from golem_core.sample.grammar.ranges import EVERY, Ranges, complement, merged, minus

_DEEPEST = 100  # groups within groups, as llama.cpp
_MOST_COPIES = 5000


class PatternError(ValueError):
    """A pattern that cannot be used. invalid: it is no regular expression at all."""

    def __init__(self, reason: str, invalid: bool = False):
        self.invalid = invalid
        super().__init__(reason)


class _Set(NamedTuple):
    ranges: Ranges


class _Chain(NamedTuple):
    items: tuple[_Node, ...]


class _Choice(NamedTuple):
    options: tuple[_Node, ...]


class _Repeat(NamedTuple):
    item: _Node
    least: int
    most: int | None


class _Anchor(NamedTuple):
    start: bool


_Node = _Set | _Chain | _Choice | _Repeat | _Anchor

# ECMA-262's classes.
_CLASSES: dict[str, Ranges] = {
    "d": merged([(48, 57)]),
    "w": merged([(48, 57), (65, 90), (95, 95), (97, 122)]),
    "s": merged(
        (ord(c), ord(c))
        for c in "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
        "\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
    ),
}
_SIMPLE = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_HEX = {"x": 2, "u": 4}


@functools.lru_cache(maxsize=256)
def automaton(pattern: str, *, wide: bool = False) -> Automaton:
    """The texts in which a pattern is found anywhere. Raises PatternError."""
    tree = _Parser(pattern, wide).parse()
    nfa = Nfa.new()
    start, end = nfa.state(), nfa.state()
    nfa.steps[start].append((EVERY, start))
    nfa.steps[end].append((EVERY, end))
    inner = nfa.state()
    nfa.free[start].append(inner)
    try:
        _build(nfa, tree, inner, end)
        return nfa.determinised(start, end)
    except TooLarge:
        raise PatternError("it is too large to be expressed exactly") from None


def _build(nfa: Nfa, node: _Node, start: int, end: int) -> None:
    """States between start and end that read a node."""
    match node:
        case _Set(ranges):
            nfa.steps[start].append((ranges, end))
        case _Anchor(at_start):
            (nfa.first if at_start else nfa.last)[start].append(end)
        case _Choice(options):
            for option in options:
                _build(nfa, option, start, end)
        case _Chain(items):
            for item in items:
                following = nfa.state()
                _build(nfa, item, start, following)
                start = following
            nfa.free[start].append(end)
        case _Repeat(item, least, most):
            if max(least, most or 0) > _MOST_COPIES:
                raise TooLarge
            for _ in range(least):
                following = nfa.state()
                _build(nfa, item, start, following)
                start = following
            if most is None:
                loop = nfa.state()
                nfa.free[start].append(loop)
                again = nfa.state()
                _build(nfa, item, loop, again)
                nfa.free[again].append(loop)
                nfa.free[loop].append(end)
                return
            for _ in range(most - least):
                nfa.free[start].append(end)
                following = nfa.state()
                _build(nfa, item, start, following)
                start = following
            nfa.free[start].append(end)


@functools.cache
def _python_class(kind: str) -> Ranges:
    """What Python's re takes for a class of letters, digits or blanks."""
    found = re.compile(rf"\{kind}+").finditer("".join(map(chr, range(0x110000))))
    return tuple((match.start(), match.end() - 1) for match in found)


class _Parser:
    def __init__(self, pattern: str, wide: bool):
        self._text = pattern
        self._at = 0
        self._wide = wide
        self._depth = 0

    def parse(self) -> _Node:
        tree = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("unbalanced parentheses", invalid=True)
        return tree

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _alternatives(self) -> _Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self._next and self._next not in "|)":
            item = self._item()
            bounds = self._bounds()
            if bounds is not None:
                if isinstance(item, _Anchor):
                    raise PatternError("nothing to repeat", invalid=True)
                item = _Repeat(item, *bounds)
                if self._take("+"):
                    raise PatternError("possessive repetitions are not expressed")
                self._take("?")  # as few as possible: the same texts
                if self._bounds() is not None:
                    raise PatternError("nothing to repeat", invalid=True)
            items.append(item)
        return items[0] if len(items) == 1 else _Chain(tuple(items))

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        match = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII).match(self._text, self._at)
        if match is None or not (match[1] or match[3]):
            return None
        self._at = match.end()
        least = int(match[1][:9] or 0)
        most = least if not match[2] else int(match[3][:9]) if match[3] else None
        if most is not None and most < least:
            raise PatternError("a repetition whose bounds are swapped", invalid=True)
        return least, most

    def _item(self) -> _Node:
        char = self._next
        if char in "*+?" or self._is_bounds():
            raise PatternError("nothing to repeat", invalid=True)
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return _Set(self._class())
        if char == ".":
            return _Set(complement(((10, 10),) if self._wide else ((10, 10), (13, 13))))
        if char == "^":
            return _Anchor(True)
        if char == "$":
            return self._end()
        if char == "\\":
            return _Set(self._escape(self._wide))
        return _Set(((ord(char), ord(char)),))

    def _end(self) -> _Node:
        """``$``. Python finds the end before a last newline too."""
        end = _Anchor(False)
        if not self._wide:
            return end
        before_newline = _Chain((_Set(((10, 10),)), end))
        if not self._depth and self._next in ("", "|"):
            return _Choice((end, before_newline))
        # What follows in the pattern may look at that newline: any place will do, to be sure.
        return _Choice((end, before_newline, _Chain(())))

    def _is_bounds(self) -> bool:
        at = self._at
        found = self._next == "{" and self._bounds() is not None
        self._at = at
        return found

    def _group(self) -> _Node:
        if self._take("?") and not self._take(":"):
            kind = re.compile(r"<?[=!]|P?<?\w*[>:]?|#", re.ASCII).match(self._text, self._at)
            raise PatternError(f"the group (?{kind[0] if kind else ''} is not expressed")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise PatternError(f"more than {_DEEPEST} groups within each other")
        inner = self._alternatives()
        if not self._take(")"):
            raise PatternError("unbalanced parentheses", invalid=True)
        self._depth -= 1
        return inner

    def _class(self) -> Ranges:
        negated = self._take("^")
        wide = self._wide != negated  # what is excluded for sure must match nowhere
        if self._next == "]":
            raise PatternError("dialects disagree on a class that starts with ]")
        found: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._member(wide)
            if self._next == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member(wide)
                if any(len(end) != 1 or end[0][0] != end[0][1] for end in (low, high)):
                    raise PatternError("a range of characters needs a single one at either end")
                if low[0][0] > high[0][0]:
                    raise PatternError("a range of characters that runs backwards", invalid=True)
                found.append((low[0][0], high[0][0]))
            else:
                found += low
        ranges = merged(found)
        return complement(ranges) if negated else ranges

    def _member(self, wide: bool) -> Ranges:
        char = self._next
        if not char:
            raise PatternError("unterminated character class", invalid=True)
        self._at += 1
        if char != "\\":
            return ((ord(char), ord(char)),)
        if self._take("b"):
            return ((8, 8),)
        return self._escape(wide)

    def _escape(self, wide: bool) -> Ranges:
        char = self._next
        if not char:
            raise PatternError("trailing backslash", invalid=True)
        self._at += 1
        if char in "dws":
            return _shorthand(char, wide)
        if char in "DWS":
            return complement(_shorthand(char.lower(), not wide))
        if char in _SIMPLE:
            return ((_SIMPLE[char], _SIMPLE[char]),)
        if char in _HEX:
            digits = self._text[self._at : self._at + _HEX[char]]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{_HEX[char]}}}", digits):
                raise PatternError(f"\\{char} without {_HEX[char]} hexadecimal digits", True)
            self._at += _HEX[char]
            return ((int(digits, 16), int(digits, 16)),)
        if char == "0" and not self._next.isdigit():
            return ((0, 0),)
        if char.isascii() and char.isalnum():
            raise PatternError(f"\\{char} is not expressed")
        return ((ord(char), ord(char)),)


def _shorthand(kind: str, wide: bool) -> Ranges:
    # Python's classes hold all of ECMA-262's but the byte order mark.
    ecma = _CLASSES[kind]
    return merged([*ecma, *_python_class(kind)]) if wide else minus(ecma, ((0xFEFF, 0xFEFF),))
