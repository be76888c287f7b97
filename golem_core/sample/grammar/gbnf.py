"""GBNF, llama.cpp's notation for grammars, read into expressions.

    root  ::= greeting ("," " "? name)* [.!]        # a comment
    name  ::= [A-Z] [a-z]{1,20} | <|image|> | !<[12]>

The syntax, its limits and the opening words of its errors are llama.cpp's; each error also names
line and column. Beyond it: a class with nothing in it, a range that runs backwards and a
repetition whose bounds are swapped are refused rather than read as something nobody meant.
"""

from __future__ import annotations

from golem_core.sample.grammar.errors import GrammarError
from golem_core.sample.grammar.expressions import (
    Chain,
    Chars,
    Choice,
    Expression,
    Repeat,
    Rule,
    Text,
    Token,
)
from golem_core.sample.grammar.ranges import EVERY, complement, merged

MOST_REPETITIONS = 2000  # llama.cpp's MAX_REPETITION_THRESHOLD
_DEEPEST = 200  # parentheses within parentheses

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_DIGITS = frozenset("0123456789")
_ESCAPES = {"t": 9, "r": 13, "n": 10, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45}
_HEX = {"x": 2, "u": 4, "U": 8}


def parse(text: str) -> dict[str, Rule]:
    """The rules of a grammar by name; ``root`` is among them. Raises GrammarError."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str):
        self._text = text
        self._at = 0
        self._rules: dict[str, Rule] = {}
        self._defined: set[str] = set()
        self._used: dict[str, dict[str, int]] = {}  # rule -> names in it, where each stands
        self._names: dict[str, int] = {}  # those of the rule being read
        self._depth = 0

    def parse(self) -> dict[str, Rule]:
        self._space(newlines=True)
        while self._at < len(self._text):
            self._rule()
            self._space(newlines=True)
        if "root" not in self._defined:
            raise GrammarError("grammar does not contain a 'root' symbol: define root ::= …")
        for names in self._used.values():
            for name, at in names.items():
                if name not in self._defined:
                    raise self._error(f"Undefined rule identifier '{name}'", at)
        return self._rules

    # ---- characters ----

    def _error(self, message: str, at: int | None = None) -> GrammarError:
        at = self._at if at is None else at
        before = self._text[:at].replace("\r\n", "\n").replace("\r", "\n")
        line = before.count("\n") + 1
        return GrammarError(message, line, at - (self._text.rfind("\n", 0, at) + 1) + 1)

    def _expected(self, what: str) -> GrammarError:
        """An error that shows what stands there instead."""
        rest = self._text[self._at : self._at + 30].split("\n")[0]
        return self._error(f"{what} at {rest!r}" if rest else f"{what} at the end")

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _space(self, newlines: bool) -> None:
        blanks = " \t\r\n" if newlines else " \t"
        while self._next:
            if self._next == "#":
                while self._next and self._next not in "\r\n":
                    self._at += 1
            elif self._next in blanks:
                self._at += 1
            else:
                return

    def _name(self) -> str:
        start = self._at
        while self._next in _WORD and self._next:
            self._at += 1
        if start == self._at:
            raise self._expected("expecting name")
        return self._text[start : self._at]

    def _number(self) -> int:
        start = self._at
        while self._next in _DIGITS and self._next:
            self._at += 1
        if start == self._at:
            raise self._expected("expecting an int")
        return int(self._text[start : self._at][:9])

    def _char(self) -> int:
        """The code point of a character or an escape."""
        start = self._at
        char = self._next
        if not char:
            raise self._error("unexpected end of input")
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = self._next
        self._at += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind not in _HEX or not kind:
            self._at = start
            raise self._expected("unknown escape")
        digits = self._text[self._at : self._at + _HEX[kind]]
        try:
            value = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            value = -1
        if value < 0 or len(digits) < _HEX[kind]:
            self._at = start
            raise self._expected(f"expecting {_HEX[kind]} hex chars")
        if value > 0x10FFFF:
            raise self._error(f"U+{value:X} is no character: the last is U+10FFFF", start)
        self._at += _HEX[kind]
        return value

    # ---- rules ----

    def _rule(self) -> None:
        name = self._name()
        self._space(newlines=False)
        if self._text[self._at : self._at + 3] != "::=":
            raise self._expected("expecting ::=")
        self._at += 3
        self._space(newlines=True)
        rule = self._rules.setdefault(name, Rule(name))
        self._names = self._used[name] = {}
        rule.body, _ = self._alternatives(nested=False)
        self._defined.add(name)
        if self._next and self._next not in "\r\n":
            raise self._expected("expecting newline or end")

    def _alternatives(self, nested: bool) -> tuple[Expression, int]:
        """Alternatives, and how many rules llama.cpp would make for what is inside them."""
        made = 0
        options = []
        while True:
            option, rules = self._sequence(nested)
            options.append(option)
            made += rules
            if self._next != "|":
                return Choice(tuple(options)), made
            self._at += 1
            self._space(newlines=True)

    def _sequence(self, nested: bool) -> tuple[Expression, int]:
        items: list[Expression] = []
        weights: list[int] = []  # rules that a copy of each item stands for
        made = 0
        while char := self._next:
            if char in "*+?{":
                if not items:
                    raise self._expected("expecting preceding item to */+/?/{")
                least, most = self._bounds(nested)
                copies = most or least or 1
                if weights[-1] * copies > MOST_REPETITIONS:
                    raise self._error(
                        "number of rules that are going to be repeated multiplied by the new "
                        "repetition exceeds sane defaults, please reduce the number of "
                        "repetitions or rule complexity"
                    )
                items[-1] = Repeat(items[-1], least, most)
                weights[-1] *= copies
                made += 1 if most is None else most - least
                self._space(newlines=nested)
                continue
            item, rules = self._item(char)
            if item is None:
                break
            items.append(item)
            weights.append(max(1, rules))
            made += rules
            self._space(newlines=nested)
        return (items[0] if len(items) == 1 else Chain(tuple(items))), made

    def _item(self, char: str) -> tuple[Expression | None, int]:
        if char == '"':
            return self._literal(), 0
        if char == "[":
            return self._class(), 0
        if char == ".":
            self._at += 1
            return Chars(EVERY), 0
        if char in "<!":
            return self._token(), 0
        if char == "(":
            return self._group()
        if char in _WORD:
            at = self._at
            name = self._name()
            self._names.setdefault(name, at)
            return self._rules.setdefault(name, Rule(name)), 0
        return None, 0

    def _literal(self) -> Expression:
        self._at += 1
        points = []
        while self._next != '"':
            points.append(self._char())
        self._at += 1
        if any(0xD800 <= p <= 0xDFFF for p in points):
            return Chain(tuple(Chars(((p, p),)) for p in points))
        return Text("".join(map(chr, points)).encode())

    def _class(self) -> Expression:
        start = self._at
        self._at += 1
        negated = self._next == "^"
        self._at += negated
        ranges = []
        while self._next != "]":
            low = high = self._char()
            if self._next == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._char()
            if low > high:
                raise self._error("a range that runs backwards in the class", start)
            ranges.append((low, high))
        self._at += 1
        if not ranges:
            raise self._error("an empty class; . is any character", start)
        found = merged(ranges)
        return Chars(complement(found) if negated else found)

    def _token(self) -> Expression:
        start = self._at
        other = self._next == "!"
        self._at += other
        end = self._text.find(">", self._at)
        name = self._text[self._at : end + 1]
        if self._next != "<" or end < 0 or "\n" in name or len(name) < 3:
            self._at = start
            raise self._expected("expecting a token, <[id]> or <text>,")
        self._at = end + 1
        inner = name[1:-1]
        if not inner.startswith("["):
            return Token(name, other)
        digits = inner[1:-1]
        if not inner.endswith("]") or not digits.isascii() or not digits.isdigit():
            raise self._error(f"invalid token '{name}'", start)
        return Token(int(digits[:10]), other)

    def _group(self) -> tuple[Expression, int]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} parentheses within each other")
        self._at += 1
        self._space(newlines=True)
        inner, made = self._alternatives(nested=True)
        if self._next != ")":
            raise self._expected("expecting ')'")
        self._at += 1
        self._depth -= 1
        return inner, made + 1

    def _bounds(self, nested: bool) -> tuple[int, int | None]:
        """Least and most of a repetition; most is None without end."""
        start = self._at
        char = self._next
        self._at += 1
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        self._space(nested)
        least = self._number()
        most: int | None = least
        self._space(nested)
        if self._next == ",":
            self._at += 1
            self._space(nested)
            most = self._number() if self._next in _DIGITS and self._next else None
            self._space(nested)
        elif self._next != "}":
            raise self._expected("expecting ','")
        if self._next != "}":
            raise self._expected("expecting '}'")
        self._at += 1
        if most is not None and most < least:
            raise self._error(f"a repetition of at least {least} and at most {most}", start)
        if least > MOST_REPETITIONS:
            raise self._error(
                "number of repetitions exceeds sane defaults, please reduce the number of "
                "repetitions",
                start,
            )
        if most is not None and most > MOST_REPETITIONS:
            most = None
        return least, most
