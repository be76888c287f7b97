"""A conversation with media, rendered: where each picture and recording stands in the tokens.

Chat templates write a control token's text where a medium goes. Anybody may write that text into a
message too, so messages go to the template with stand-ins for it, which nobody can guess; what is
found afterwards are the template's own places.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from golem_core.media import MediaError
from golem_core.model.media import Marks
from golem_core.model.projector import Rows
from golem_core.schedule.errors import ContextExceeded
from golem_core.schedule.media import Span
from golem_core.text.rendered import encode_rendered


def hidden(value: Any, marks: Mapping[str, Marks], salt: str) -> Any:
    """A message whose texts hold stand-ins for the marks of media: none is taken for a place."""
    if isinstance(value, str):
        for kind, mark in marks.items():
            value = value.replace(mark.place, _stand_in(kind, salt))
        return value
    if isinstance(value, list):
        return [hidden(item, marks, salt) for item in value]
    if isinstance(value, dict):
        return {key: hidden(item, marks, salt) for key, item in value.items()}
    return value


def shown(text: str, marks: Mapping[str, Marks], salt: str) -> str:
    """A text with the marks that ``hidden`` replaced."""
    for kind, mark in marks.items():
        text = text.replace(_stand_in(kind, salt), mark.place)
    return text


def refuse_overlong_media(rows: Sequence[Rows], context: int) -> None:
    """Refuses media that fill a slot by themselves, before more of them are looked at.

    Raises ContextExceeded.
    """
    count = sum(map(len, rows))
    if count >= context:
        raise ContextExceeded(count, context, counted=False)


def new_salt() -> str:
    """What makes a stand-in that no text of a client's contains."""
    return secrets.token_hex(16)


def _stand_in(kind: str, salt: str) -> str:
    return f"golem{salt}{kind}"


def place(model: Any, text: str, rows: Sequence[Rows], salt: str) -> tuple[list[int], list[Span]]:
    """The tokens of a rendered prompt with padding where its media go, and those places.

    Raises:
        MediaError: when the template has written other places than the conversation has media, or
            the vocabulary has no marks for them.
    """
    marks = model.marks
    pieces = _cut(marks, text)
    found = [kind for kind, _ in pieces if kind]
    if found != [one.kind for one in rows]:
        raise MediaError(
            f"the chat template has written {len(found)} places for the conversation's {len(rows)} "
            "pictures and recordings, or in another order: many have none in a system message, so "
            "send them in the user's; if they are there, start the server with -builtin-template "
            "(in Python: builtin_template=True), which has a place for each"
        )
    tokens: list[int] = []
    spans: list[Span] = []
    left = iter(rows)
    for kind, piece in pieces:
        if not kind:
            tokens += _encoded(model.tokenizer, shown(piece, marks, salt), not tokens)
            continue
        one = next(left)
        tokens += _mark(model, marks[kind].opens)
        spans.append(Span(len(tokens), one))
        tokens += [model.padding] * len(one)
        tokens += _mark(model, marks[kind].closes)
    return tokens, spans


def _cut(marks: Mapping[str, Marks], text: str) -> list[tuple[str, str]]:
    """A rendered prompt cut at the places of media: ("", text) and (kind, "") in order."""
    found: list[tuple[str, str]] = []
    while True:
        hits = [(text.find(m.place), kind) for kind, m in marks.items() if m.place in text]
        if not hits:
            return [*found, ("", text)]
        at, kind = min(hits)
        found += [("", text[:at]), (kind, "")]
        text = text[at + len(marks[kind].place) :]


def _encoded(tokenizer: Any, text: str, first: bool) -> list[int]:
    if first:
        return encode_rendered(tokenizer, text)
    return tokenizer.encode(text, add_special=False, parse_special=True) if text else []


def _mark(model: Any, text: str) -> list[int]:
    """The one token of a mark."""
    tokens = model.tokenizer.encode(text, add_special=False, parse_special=True) if text else []
    if len(tokens) > 1:
        raise MediaError(f"{model.name} has no token {text}: its vocabulary is not made for media")
    return tokens
