"""The calls of Gemma 4: ``call:NAME{key:value,…}`` in a notation of their own.

Keys are bare, strings stand between two ``<|"|>`` and mean what they say, character for character;
numbers, ``true``, ``false``, ``null``, objects and arrays are as in JSON.
"""

import json
import re

from golem_core.sample.grammar import Expression, GrammarError, seq
from golem_core.text.calls import (
    Call,
    CallError,
    CallFormat,
    Tools,
    Unfinished,
    compact,
    known,
    quoted,
    value_at,
)
from golem_plugins.gemma4.notation import QUOTE, GemmaNotation

DEEPEST = 200  # values inside of values

_START = "call:"
_space = re.compile(r"[ \t\r\n]*")
_key = re.compile(r"[^:}]+")
_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])")
_word = re.compile(r"\w+")
# The second row is how older templates print them, and so what a model may have read.
_WORDS = {"true": "true", "false": "false", "null": "null"}
_WORDS |= {"True": "true", "False": "false", "None": "null"}


class Gemma4Calls(CallFormat):
    """What follows the last call is what the model expects of the tool, and is left out."""

    open = "<|tool_call>"
    close = "<tool_call|>"
    quotes = (QUOTE,)
    drops_rest = True
    notation = GemmaNotation()

    def parse(self, body: str, tools: Tools) -> Call | None:
        text = body.strip()
        if not text.startswith(_START):
            raise CallError(f"a call that does not begin with {_START}")
        name, brace, _ = text[len(_START) :].partition("{")
        name = known(name.strip(), tools)
        if not brace:
            raise CallError("a call with no arguments block")
        reader = _Reader(text)
        try:
            arguments, end = reader.object(text.index("{"), 0)
        except Unfinished:
            return None
        if _skip(text, end) != len(text):
            raise CallError("a call that goes on after its arguments")
        return Call(name, arguments)

    def body(self, name: str, arguments: Expression) -> Expression:
        marks = ("{", self.open, self.close, QUOTE)
        if name != name.strip() or any(mark in name for mark in marks):
            raise GrammarError(
                f"{json.dumps(name)} cannot be called: names stand bare in this model's calls, "
                "without blanks around them, braces or the model's own marks"
            )
        return seq(f"{_START}{name}", arguments)


class _Reader:
    """Values of one text, as JSON and with where they end.

    Raises Unfinished where the text ends inside a string, CallError for what is no value.
    """

    def __init__(self, text: str):
        self._text = text

    def object(self, at: int, depth: int) -> tuple[str, int]:
        text, found = self._text, dict[str, str]()
        at = _skip(text, at + 1)
        while text[at : at + 1] != "}":
            key, at = self._read_key(at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise CallError("a call with an argument that has no value")
            found[key], at = self._value(_skip(text, at + 1), depth + 1)
            at = self._next(at, "}")
        return "{" + ",".join(f"{quoted(k)}:{v}" for k, v in found.items()) + "}", at + 1

    def _array(self, at: int, depth: int) -> tuple[str, int]:
        text, found = self._text, list[str]()
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]":
            one, at = self._value(at, depth + 1)
            found.append(one)
            at = self._next(at, "]")
        return "[" + ",".join(found) + "]", at + 1

    def _next(self, at: int, close: str) -> int:
        """Where the next part begins, or the closing bracket is."""
        text = self._text
        at = _skip(text, at)
        if text[at : at + 1] == close:
            return at
        if text[at : at + 1] != ",":
            raise CallError(f"a call whose arguments are not closed by {close}")
        at = _skip(text, at + 1)
        if text[at : at + 1] == close:
            raise CallError("a call with a comma that nothing follows")
        return at

    def _read_key(self, at: int) -> tuple[str, int]:
        text = self._text
        if text.startswith(QUOTE, at):
            return self._between_quotes(at)
        match = _key.match(text, at)
        key = match[0].strip() if match else ""
        if not key:
            raise CallError("a call with an argument that has no name")
        return key, match.end()

    def _between_quotes(self, at: int) -> tuple[str, int]:
        start = at + len(QUOTE)
        end = self._text.find(QUOTE, start)
        if end < 0:
            raise Unfinished
        return self._text[start:end], end + len(QUOTE)

    def _value(self, at: int, depth: int) -> tuple[str, int]:
        text = self._text
        if depth > DEEPEST:
            raise CallError("a call whose arguments nest too deep")
        if text.startswith(QUOTE, at):
            written, at = self._between_quotes(at)
            return quoted(written), at
        sign = text[at : at + 1]
        if sign == "{":
            return self.object(at, depth)
        if sign == "[":
            return self._array(at, depth)
        if sign == '"':  # as JSON has it, and as clear
            return self._json_string(at)
        number = _number.match(text, at)
        if number:
            return number[0], number.end()
        word = _word.match(text, at)
        if word and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        shown = quoted(text[at : at + 32].split(",")[0].split("}")[0])
        raise CallError(f"a call with a value that is none: {shown}")

    def _json_string(self, at: int) -> tuple[str, int]:
        try:
            _, end = value_at(self._text, at)
        except Unfinished:
            raise
        except ValueError:
            raise CallError("a call with a string that is none") from None
        return compact(self._text[at:end]), end


def _skip(text: str, at: int) -> int:
    return _space.match(text, at).end()
