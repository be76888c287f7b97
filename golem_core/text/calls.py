"""Tool calls as models write them: what a family's notation must give, and JSON kept as written.

Arguments leave as the model wrote them, white space apart: keys in its order, numbers digit for
digit. So JSON is cut into texts here instead of being decoded and written anew.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from golem_core.sample.grammar import Expression
    from golem_core.sample.grammar.notation import Notation

Tools = Mapping[str, Mapping[str, Any]]  # the JSON schema of each tool's parameters, by name


class CallError(ValueError):
    """A finished call that cannot be read; the text says why."""


class NoCall(Exception):
    """What looked like a call is something that the model says."""


class Call(NamedTuple):
    """One call."""

    name: str
    arguments: str  # a JSON object without white space between its parts


class CallFormat(ABC):
    """How a model family writes calls.

    open, close: the texts around one. ends_thought: whether a call may begin inside a thought and
    ends it. drops_rest: what follows the last call is left out; otherwise it is an error.
    notation: how the arguments are spelled, None for JSON. leads: a call is all of an answer: it
    begins where that begins, and nothing follows.
    """

    open: ClassVar[str]
    close: ClassVar[str]
    ends_thought: ClassVar[bool] = False
    drops_rest: ClassVar[bool] = False
    quotes: ClassVar[tuple[str, ...]] = ()  # further special tokens that stand in a call's text
    between: ClassVar[str] = ""  # what stands between two calls
    notation: ClassVar[Notation | None] = None
    leads: ClassVar[bool] = False

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text that must be seen in an answer for its calls to be read."""
        return (self.open, self.close, *self.quotes)

    @abstractmethod
    def parse(self, body: str, tools: Tools) -> Call | None:
        """The call that ``body`` is: what stands between ``open`` and a ``close``.

        None: the ``close`` after it lies inside of the call, which goes on. Raises CallError, and
        NoCall where it is none after all, which only one that ``leads`` may turn out to be.
        """

    def may_be(self, body: str, *, ended: bool = False) -> bool:
        """Whether what begins like this, after ``open``, may become a call. ended: nothing follows,
        so that it must be seen to have begun as one."""
        return True

    @abstractmethod
    def body(self, name: str, arguments: Expression) -> Expression:
        """A grammar of the calls of one function, between ``open`` and ``close``.

        arguments: a grammar of the objects that it takes, in the notation. Raises GrammarError for
        a name that could not be read back.
        """


def known(name: Any, tools: Tools) -> str:
    """The name of a tool that was offered. Raises CallError."""
    if not isinstance(name, str) or not name:
        raise CallError("a call with no function name")
    if name not in tools:
        raise CallError(f"a call of {json.dumps(name[:64])}, which is none of the tools")
    return name


# ---- JSON, kept as text ----


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Numbers are checked and not converted: their digits are what is passed on.
_decoder = json.JSONDecoder(
    strict=False,  # a line break in a string is read, and written as \n
    parse_constant=_no_constant,
    parse_int=lambda digits: 0,
    parse_float=lambda digits: 0.0,
)
_space = re.compile(r"[ \t\n\r]*")
_string_or_space = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[ \t\n\r]+', re.DOTALL)
_control = re.compile(r"[\x00-\x1f]")


class Unfinished(ValueError):
    """JSON that ends inside a string."""


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at ``at``, numbers as 0, and where it ends.

    Raises Unfinished, or ValueError for what is no JSON.
    """
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string"):
            raise Unfinished from None
        raise
    except RecursionError:
        raise ValueError("it nests too deep") from None


def members(text: str) -> dict[str, tuple[Any, str]]:
    """The members of a JSON object: their values, numbers as 0, and the texts of those.

    Raises Unfinished, or ValueError for what is no JSON object and nothing else.
    """
    found: dict[str, tuple[Any, str]] = {}
    at = _expect(text, 0, "{")
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            key, at = value_at(text, at)
            if not isinstance(key, str):
                raise ValueError("a key is a string")
            start = _expect(text, _skip(text, at), ":")
            value, at = value_at(text, start)
            found[key] = (value, text[start:at])
            at = _skip(text, at)
            if text[at : at + 1] == "}":
                at += 1
                break
            at = _expect(text, at, ",")
    if _skip(text, at) != len(text):
        raise ValueError("something follows the object")
    return found


def _skip(text: str, at: int) -> int:
    return _space.match(text, at).end()


def _expect(text: str, at: int, sign: str) -> int:
    """Where the next part begins after white space, a sign and white space."""
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign} is missing")
    return _skip(text, at + 1)


def compact(text: str) -> str:
    """A JSON text without white space between its parts, its strings and numbers unchanged."""
    return _string_or_space.sub(_keep_string, text)


def _keep_string(match: re.Match[str]) -> str:
    found = match.group()
    if found[0] != '"':
        return ""
    return _control.sub(lambda c: json.dumps(c.group())[1:-1], found)


def quoted(text: str) -> str:
    """A text as a JSON string; characters beyond ASCII stay as they are."""
    return json.dumps(text, ensure_ascii=False)
