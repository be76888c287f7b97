"""Random answers through the sorter of tool calls and thoughts.

Every answer is sorted whole and in random pieces; both must give the same message or the same
error. A mark that opens something never leaves, a mark that closes a thought never leaves from
one, and every call is JSON of a tool that was offered.
"""

import json
import random
from collections.abc import Iterable
from pathlib import Path

from golem_core.text.sorter import CallError, Kind, Piece, Sorter
from golem_core.text.tagged_calls import QwenCalls, TaggedCalls
from tests.fuzz.harness import Case


class Dropping(QwenCalls):
    """A notation that leaves out what follows its calls."""

    drops_rest = True


OPEN, CLOSE = MARKS = ("<think>", "</think>")
NOTATIONS = (None, QwenCalls(), QwenCalls(), TaggedCalls(), Dropping())
TOOLS = {
    "f": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}},
    "g": {"type": "object", "properties": {}},
}
CALLS = (
    '<tool_call>\n{"name": "f", "arguments": {"s": "é <b>", "n": 1}}\n</tool_call>',
    '<tool_call>{"arguments":{},"name":"g"}</tool_call>',
    '<tool_call>\n{"name": "f", "arguments": {"s": "a </tool_call> b"}}\n</tool_call>',
    "<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
    '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
)
WORDS = (
    *("a", "é🙂", " ", "\n", "\n\n", "<", ">", "</", '"', "\\", "{", "}", "text <t", "1"),
    *(OPEN, OPEN + "\n", CLOSE, "\n" + CLOSE, CLOSE + "\n\n", "<tool_call>", "</tool_call>"),
    *('{"name": "f", "arguments": {', "<function=f>", "<parameter=s>", "\n</parameter>"),
    *("</function>", "<think", "think>", "<tool_", "call>", "</think"),
)
Message = tuple[str, str, list[tuple[str, str]]]


def parts(pieces: Iterable[Piece]) -> Message:
    """Content, reasoning and calls of pieces."""
    content, reasoning, calls = [], [], []
    for kind, text, name in pieces:
        if kind is Kind.CALL:
            calls.append((name, text))
        else:
            assert text, "an empty piece"
            (content if kind is Kind.CONTENT else reasoning).append(text)
    return "".join(content), "".join(reasoning), calls


def answer(rng: random.Random) -> str:
    """Marks, parts of marks, calls and words in a row."""
    words = [rng.choice(WORDS if rng.random() < 0.9 else CALLS) for _ in range(rng.randrange(12))]
    return "".join(words)


def cut(text: str, rng: random.Random) -> Iterable[str]:
    """A text in random pieces."""
    at = 0
    longest = rng.choice((1, 3, 8, 30))
    while at < len(text):
        size = rng.randint(1, longest)
        yield text[at : at + size]
        at += size


def prepare(folder: Path) -> Case:
    """The case that the harness runs."""
    return check


def check(rng: random.Random) -> bool:
    """One answer; False when a call in it could not be read."""
    text = answer(rng)
    calls = rng.choice(NOTATIONS)
    options = {"inside": rng.random() < 0.3, "single": rng.random() < 0.2}
    ended = rng.random() < 0.7
    pieces = outcome([text], calls, options, ended)
    whole = pieces if isinstance(pieces, str) else parts(pieces)
    streamed = outcome(cut(text, rng), calls, options, ended)
    assert whole == (streamed if isinstance(streamed, str) else parts(streamed)), text
    raw = Sorter(MARKS, None, inline=True, inside=options["inside"])
    unsorted = [piece for part in cut(text, rng) for piece in raw.push(part)]
    assert parts(unsorted + raw.finish()) == (text, "", [])
    if isinstance(pieces, str):
        return False
    inspect(text, pieces, calls, options["inside"])
    return True


def outcome(texts: Iterable[str], calls, options, ended: bool) -> list[Piece] | str:
    """The pieces, or why a call cannot be read."""
    one = Sorter(MARKS, calls, TOOLS, **options)
    pieces: list[Piece] = []
    try:
        for text in texts:
            pieces += one.push(text)
        return pieces + one.finish(ended=ended)
    except CallError as error:
        return str(error)


def inspect(text: str, pieces: list[Piece], calls, inside: bool) -> None:
    """No mark leaks, nothing is invented, calls are whole.

    What stood on both sides of a mark may look like one when it is joined: pieces are looked at
    one by one.
    """
    for kind, piece, name in pieces:
        if kind is Kind.CALL:
            assert name in TOOLS
            assert isinstance(json.loads(piece), dict)
            continue
        assert OPEN not in piece, text
        if kind is Kind.REASONING:
            assert CLOSE not in piece, text
        if calls is not None and (kind is Kind.CONTENT or calls.ends_thought):
            assert calls.open not in piece, text
    if not inside and OPEN not in text:
        content, reasoning, called = parts(pieces)
        assert not reasoning, text
        assert calls is not None or (content == text and not called)
