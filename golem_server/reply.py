"""One choice of a chat answer, sorted while it is drawn, for any dialect to write.

The pieces of a stream are exactly the parts of the whole message: both come from here.
"""

import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from golem_core.schedule import Result, Step
from golem_core.text.sorter import CallError, Kind, Piece, Sorter
from golem_server.errors import Refusal
from golem_server.logprobs import Entries, Entry

_ALPHABET = string.ascii_letters + string.digits
UNREADABLE = "the model wrote a call this server cannot read"


def random_letters(count: int) -> str:
    """So many random letters and digits, for ids."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))


class Delta(NamedTuple):
    """A piece of an answer as it leaves."""

    piece: Piece
    index: int  # of a call, counted from 0
    id: str  # of a call
    entries: list[Entry]  # of the tokens it is made of


@dataclass(frozen=True)
class Called:
    """A call of the message."""

    id: str
    name: str
    arguments: str  # a JSON object


class Reply:
    """One choice.

    sorter: fresh. beginning: the text that the client gave of the answer; it is part of the
    message and of no delta. entries: None when no probabilities were asked for.
    """

    def __init__(self, sorter: Sorter, beginning: str = "", entries: Entries | None = None):
        self.content = ""
        self.reasoning = ""
        self.calls: list[Called] = []
        self.finish_reason = ""
        self.entries: list[Entry] = []  # all that left
        self._sorter = sorter
        self._entries = entries
        if beginning:
            self._leave(self._sorted(lambda: sorter.push(beginning)))

    def take(self, steps: Sequence[Step]) -> list[Delta]:
        """What drawn steps release. Raises Refusal for a call that cannot be read."""
        deltas = []
        for step in steps:
            if self._entries is not None:
                self._entries.take(step)
            deltas += self._push(step.text)
        return deltas

    def end(self, result: Result) -> list[Delta]:
        """The last pieces; ``finish_reason`` is known now. Raises Refusal as ``take`` does."""
        if self._entries is not None:
            self._entries.end(result)
        ended = result.stop_type == "eos"
        deltas = self._leave(self._sorted(lambda: self._sorter.finish(ended=ended)))
        called = bool(self.calls) and result.finish_reason == "stop"
        self.finish_reason = "tool_calls" if called else result.finish_reason
        return deltas

    def rest(self) -> list[Entry]:
        """Entries that left with no piece."""
        if self._entries is None:
            return []
        rest = self._entries.release()
        self.entries += rest
        return rest

    def whole(self, text: str) -> None:
        """Takes a whole answer at once, where no probabilities are asked for."""
        self._push(text)

    def _push(self, text: str) -> list[Delta]:
        return self._leave(self._sorted(lambda: self._sorter.push(text))) if text else []

    def _sorted(self, sort: Callable[[], list[Piece]]) -> list[Piece]:
        try:
            return sort()
        except CallError as error:
            raise Refusal(f"{UNREADABLE}: {error}", "server_error", logged=UNREADABLE) from None

    def _leave(self, pieces: list[Piece]) -> list[Delta]:
        """Adds pieces to the message; waiting entries leave with the last one."""
        deltas = []
        for place, piece in enumerate(pieces):
            entries: list[Entry] = []
            if self._entries is not None and place == len(pieces) - 1:
                entries = self._entries.release()
                self.entries += entries
            index, call_id = 0, ""
            if piece.kind is Kind.CONTENT:
                self.content += piece.text
            elif piece.kind is Kind.REASONING:
                self.reasoning += piece.text
            else:
                index, call_id = len(self.calls), "call_" + random_letters(24)
                self.calls.append(Called(call_id, piece.name, piece.text))
            deltas.append(Delta(piece, index, call_id, entries))
        return deltas


def call_json(call: Called) -> dict[str, Any]:
    """A call as OpenAI's messages have it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"type": "function", "function": function, "id": call.id}
