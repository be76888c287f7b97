"""Calls without marks: an answer that is nothing but a JSON object with a function's name.

Llama 3.1 and its successors write ``{"name": …, "parameters": {…}}``, some of them with a
``"type": "function"`` in front, and after ``<|python_tag|>``, which is a control token and has no
text. An object that is something else is what the model says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from golem_core.text.calls import (
    Call,
    CallError,
    CallFormat,
    NoCall,
    Tools,
    compact,
    known,
    members,
    quoted,
)

if TYPE_CHECKING:
    from golem_core.sample.grammar import Expression

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]+")
_HEADS = ('"name":"', '"type":"function","name":"')  # without white space
_SEEN = 256  # characters in which one of them must have come


class ObjectCalls(CallFormat):
    """Llama 3's; arguments are called ``parameters``, and ``arguments`` are read too."""

    open = "{"
    close = "}"
    leads = True

    def may_be(self, body: str, *, ended: bool = False) -> bool:
        start = _SPACE.sub("", body[:_SEEN])
        if start.startswith(_HEADS):
            return True
        return not ended and any(head.startswith(start) for head in _HEADS)

    def parse(self, body: str, tools: Tools) -> Call | None:
        text = self.open + body + self.close
        bare = _STRING.sub("", text)
        depth = bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        if '"' in bare or depth > 0:
            return None
        if not self.may_be(body, ended=True):
            raise NoCall
        try:
            found = members(text)
        except ValueError:
            raise CallError("a call that is not JSON") from None
        given = found.get("parameters") or found.get("arguments")
        if given is None:
            raise NoCall
        name = known(found.get("name", ("", ""))[0], tools)
        value, written = given
        if not isinstance(value, dict):
            raise CallError("a call whose parameters are not a JSON object")
        return Call(name, compact(written))

    def body(self, name: str, arguments: Expression) -> Expression:
        from golem_core.sample.grammar import seq

        return seq(f'"name": {quoted(name)}, "parameters": ', arguments)
