"""Sorts an answer while it is drawn: what was thought, what is said, what is called.

Models mark thoughts and calls with texts of their own; the marks never leave, nor do the line
breaks that templates put around a thought. Text that may still turn out to be a mark is held
back. A call is held until it is whole, read once, and leaves as one piece.
"""

import re
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any, NamedTuple

from golem_core.text.calls import Call, CallError, CallFormat, NoCall, Tools

__all__ = ["Call", "CallError", "CallFormat", "Kind", "Piece", "Sorter", "Tools", "shown_tokens"]

WHITE = " \t\r\n"


class Kind(Enum):
    """What a piece of an answer is."""

    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"


class Piece(NamedTuple):
    """A part of the message; pieces of one kind concatenate, each call is one piece."""

    kind: Kind
    text: str  # of a call: its arguments, a JSON object
    name: str = ""  # of the function called


class _In(Enum):
    """What the unsorted text is a part of."""

    PROSE = 1
    THOUGHT = 2
    CALL = 3
    AFTER = 4  # a call, which only another may follow
    REST = 5  # which is left out


class Sorter:
    """One answer.

    reasoning: the texts that open and close a thought, None when the model has none. calls: its
    notation of calls, None when no tools were offered: calls are prose then. tools: those
    offered. inside: the prompt ended in an open thought. inline: thoughts stay in the content, as
    the model wrote them. single: what follows the first call is left out. strays: texts that mean
    nothing by themselves and never leave, such as a mark without what belongs to it.
    """

    def __init__(
        self,
        reasoning: tuple[str, str] | None = None,
        calls: CallFormat | None = None,
        tools: Tools | None = None,
        *,
        inside: bool = False,
        inline: bool = False,
        single: bool = False,
        strays: tuple[str, ...] = (),
    ):
        self.called = 0  # calls that have left
        self._open, self._close = reasoning or ("", "")
        self._calls = calls
        self._call = calls.open if calls else ""
        self._tools = tools or {}
        self._inline = inline
        self._single = single
        self._strays = frozenset(strays)
        self._leading = bool(calls and calls.leads)  # a call may begin here, and nowhere later
        self._white = ""  # before what may be such a call
        self._prose = _Marks((self._open, "" if self._leading else self._call, *strays))
        ending = self._call if calls and calls.ends_thought else ""
        self._thought = _Marks((self._close, self._open, ending, *strays))
        self._where = _In.THOUGHT if inside and reasoning else _In.PROSE
        self._rest = ""  # not sorted yet
        self._breaks: str | None = None  # held line breaks of a thought; None: it has no text yet
        self._trims = False  # line breaks at the beginning of prose are the template's
        self._looked = 0  # where in the call a closing text was last looked for
        self._pieces: list[Piece] = []

    def push(self, text: str) -> list[Piece]:
        """Takes what was drawn; returns what can leave. Raises CallError."""
        if not (self._prose.texts or self._leading) and self._where is _In.PROSE:
            return [Piece(Kind.CONTENT, text)] if text else []
        self._rest += text
        return self._sort(final=False)

    def finish(self, *, ended: bool = True) -> list[Piece]:
        """The end of the answer: what was held back can leave.

        ended: the model ended it. Otherwise it was cut, and an open call was never finished: its
        text is left out. Raises CallError.
        """
        pieces = self._sort(final=True)
        rest, self._rest = self._rest, ""
        leads = self._where is _In.CALL and self._calls.leads
        if not ended or not (rest or leads):
            return pieces
        if self._where is _In.CALL:
            return pieces + self._unclosed(rest)
        if self._where is _In.AFTER and not self._calls.drops_rest:
            raise _follows()
        return pieces

    def _unclosed(self, rest: str) -> list[Piece]:
        """A call that the model ended without its closing text, which is fine if it is whole."""
        never = CallError("a call that never closes")
        try:
            if not self._calls.may_be(rest, ended=True):
                raise NoCall
            call = self._calls.parse(rest, self._tools)
        except NoCall:
            return [Piece(Kind.CONTENT, self._white + self._call + rest)]
        except CallError:
            raise never from None
        if call is None:
            raise never
        self.called += 1
        return [Piece(Kind.CALL, call.arguments, call.name)]

    # ---- the walk over the text ----

    def _sort(self, final: bool) -> list[Piece]:
        step = {
            _In.PROSE: self._in_prose,
            _In.THOUGHT: self._in_thought,
            _In.CALL: self._in_call,
            _In.AFTER: self._after_call,
            _In.REST: self._in_rest,
        }
        while step[self._where](final):
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    def _in_prose(self, final: bool) -> bool:
        rest = self._rest
        if self._leading:
            start = rest.lstrip(WHITE)
            if not (start or final):
                return False
            self._leading = False
            if start.startswith(self._call):
                self._white = rest[: len(rest) - len(start)]
                self._rest = start[len(self._call) :]
                self._enter_call()
                return True
        match = self._prose.find(rest, final)
        if match is None:
            end = len(rest) if final else self._prose.sure(rest)
            self._say(rest[:end])
            self._rest = rest[end:]
            return False
        self._say(rest[: match.start()])
        self._rest = rest[match.end() :]
        mark = match.group()
        if mark == self._open:
            self._enter_thought(mark)
        elif mark == self._call:
            self._enter_call()
        elif self._inline:
            self._emit(Kind.CONTENT, mark)
        return True

    def _in_thought(self, final: bool) -> bool:
        rest = self._rest
        match = self._thought.find(rest, final)
        if match is None:
            end = len(rest) if final else self._thought.sure(rest)
            self._think(rest[:end])
            self._rest = rest[end:]
            return False
        self._think(rest[: match.start()])
        self._rest = rest[match.end() :]
        mark = match.group()
        if mark == self._close:
            if self._inline:
                self._emit(Kind.CONTENT, mark)
            self._trims = not self._inline
            self._where = _In.AFTER if self.called else _In.PROSE
        elif mark == self._open or mark in self._strays:  # a thought in a thought is the same one
            if self._inline:
                self._emit(Kind.CONTENT, mark)
        else:
            self._enter_call()
        return True

    def _in_call(self, final: bool) -> bool:
        close = self._calls.close
        if not self._calls.may_be(self._rest):
            return self._is_said()
        at = self._rest.find(close, self._looked)
        if at < 0:
            self._looked = max(0, len(self._rest) - len(close) + 1)
            return False
        try:
            call = self._calls.parse(self._rest[:at], self._tools)
        except NoCall:
            return self._is_said()
        if call is None:
            self._looked = at + len(close)
            return True
        self.called += 1
        self._pieces.append(Piece(Kind.CALL, call.arguments, call.name))
        self._rest = self._rest[at + len(close) :]
        self._where = _In.REST if self._single or self._calls.leads else _In.AFTER
        return True

    def _is_said(self) -> bool:
        """What was held back as the beginning of a call is none."""
        self._rest = self._white + self._call + self._rest
        self._where = _In.PROSE
        return True

    def _after_call(self, final: bool) -> bool:
        rest = self._rest = self._rest.lstrip(WHITE)
        if rest.startswith(self._call):
            self._rest = rest[len(self._call) :]
            self._enter_call()
            return True
        if self._open and rest.startswith(self._open):
            self._rest = rest[len(self._open) :]
            self._enter_thought(self._open)
            return True
        if not rest or self._prose.sure(rest) == 0:
            return False
        stray = next((text for text in self._strays if rest.startswith(text)), None)
        if stray is not None:
            self._rest = rest[len(stray) :]
            return True
        if not self._calls.drops_rest:
            raise _follows()
        self._where = _In.REST
        return True

    def _in_rest(self, final: bool) -> bool:
        self._rest = ""
        return False

    def _enter_thought(self, mark: str) -> None:
        self._where = _In.THOUGHT
        self._breaks = None
        if self._inline:
            self._emit(Kind.CONTENT, mark)

    def _enter_call(self) -> None:
        self._where = _In.CALL
        self._looked = 0

    def _say(self, text: str) -> None:
        if self._trims:
            text = text.lstrip("\n")
            self._trims = not text
        self._emit(Kind.CONTENT, text)

    def _think(self, text: str) -> None:
        if self._inline:
            self._emit(Kind.CONTENT, text)
            return
        text = text.lstrip("\n") if self._breaks is None else self._breaks + text
        shown = text.rstrip("\n")
        if shown or self._breaks is not None:
            self._breaks = text[len(shown) :]
        self._emit(Kind.REASONING, shown)

    def _emit(self, kind: Kind, text: str) -> None:
        if text:
            self._pieces.append(Piece(kind, text))


class _Marks:
    """Texts to look for; empty ones are ignored."""

    def __init__(self, texts: Iterable[str]):
        self.texts = sorted({text for text in texts if text}, key=len, reverse=True)
        starts = {text[:n] for text in self.texts for n in range(1, len(text))}
        longest_first = sorted(starts, key=len, reverse=True)
        self._whole = _any_of(self.texts)
        self._part = _any_of(longest_first, r"\Z")
        self._longest = max(map(len, longest_first), default=0)

    def find(self, text: str, final: bool) -> re.Match[str] | None:
        """The first of the texts; none that may yet become a longer one, unless it is final."""
        match = self._whole.search(text) if self.texts else None
        return None if match and not final and self.sure(text) <= match.start() else match

    def sure(self, text: str) -> int:
        """Where a text that may go on as one of them begins; the length when there is none."""
        if not self.texts:
            return len(text)
        match = self._part.search(text, max(0, len(text) - self._longest))
        return match.start() if match else len(text)


def _any_of(texts: Iterable[str], end: str = "") -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(map(re.escape, texts))}){end}")


def _follows() -> CallError:
    return CallError("something follows a call and is neither another one nor the end")


def shown_tokens(tokenizer: Any, texts: Iterable[str], hidden: Collection[int]) -> frozenset[int]:
    """The control tokens that the given texts are written with: a Sorter must see theirs.

    hidden: ids that stay unseen, such as those that end an answer.
    """
    ids = {i for text in texts for i in tokenizer.encode(text, parse_special=True)}
    return frozenset(i for i in ids if i not in hidden and tokenizer.is_control(i))
