"""Random answers through the sorter of tool calls and thoughts.

Every answer is sorted whole and in random pieces; both must give the same message or the same
error. A mark that opens something never leaves, a mark that closes a thought never leaves from
one, and every call is JSON of a tool that was offered.
"""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from golem_core.text.object_calls import ObjectCalls
from golem_core.text.sorter import CallError, CallFormat, Kind, Piece, Sorter
from golem_core.text.tagged_calls import QwenCalls, TaggedCalls
from golem_plugins.gemma4.calls import Gemma4Calls
from tests.fuzz.harness import Case


class Dropping(QwenCalls):
    """A notation that leaves out what follows its calls."""

    drops_rest = True


TOOLS = {
    "f": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}},
    "g": {"type": "object", "properties": {}},
}
_WORDS = ("a", "é🙂", " ", "\n", "\n\n", "<", ">", "</", '"', "\\", "{", "}", "text <t", "1")


class Family(NamedTuple):
    """What a family of models writes. notations: None is an answer to which no tools belong."""

    marks: tuple[str, str]
    strays: tuple[str, ...]
    notations: tuple[CallFormat | None, ...]
    calls: tuple[str, ...]
    words: tuple[str, ...]


QWEN = Family(
    ("<think>", "</think>"),
    (),
    (None, QwenCalls(), QwenCalls(), TaggedCalls(), Dropping()),
    (
        '<tool_call>\n{"name": "f", "arguments": {"s": "é <b>", "n": 1}}\n</tool_call>',
        '<tool_call>{"arguments":{},"name":"g"}</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"s": "a </tool_call> b"}}\n</tool_call>',
        "<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
    ),
    (
        *("<think>", "<think>\n", "</think>", "\n</think>", "</think>\n\n"),
        *("<tool_call>", "</tool_call>", '{"name": "f", "arguments": {', "<function=f>"),
        *("<parameter=s>", "\n</parameter>", "</function>", "<think", "think>", "<tool_"),
        *("call>", "</think"),
    ),
)
GEMMA = Family(
    ("<|channel>thought", "<channel|>"),
    ("<|channel>", "<channel|>"),
    (None, Gemma4Calls(), Gemma4Calls()),
    (
        '<|tool_call>call:f{s:<|"|>é <b> "x"<|"|>,n:1}<tool_call|>',
        "<|tool_call>call:g{}<tool_call|>",
        '<|tool_call>call:f{s:<|"|>a <tool_call|> b<|"|>}<tool_call|>',
        '<|tool_call>call:f{ n : [ 1 , {a:null} ] , s : "j" }<tool_call|><|tool_response>',
        "<|tool_call>call:nobody{}<tool_call|>",
    ),
    (
        *("<|channel>thought", "<|channel>thought\n", "<channel|>", "\n<channel|>", "<|channel>"),
        *("<|tool_call>", "<tool_call|>", "call:f{", "s:", '<|"|>', "<|chan", "nel>", "thought"),
        *("<|tool_", "call>", "<chan", "<|", "|>", "<|channel>th"),
    ),
)
LLAMA = Family(
    ("<think>", "</think>"),
    (),
    (None, ObjectCalls(), ObjectCalls()),
    (
        '{"name": "f", "parameters": {"s": "é } \\" <b>", "n": [1]}}',
        '{"type": "function", "name": "g", "parameters": {}}',
        '{"name": "Bob", "age": 3}',
        '{"name": "nobody", "parameters": {}}',
    ),
    ("<think>", "</think>", '{"name": "f"', '"parameters": {', "}}", "]", "[", '{"na', ": "),
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


def answer(rng: random.Random, family: Family) -> str:
    """Marks, parts of marks, calls and words in a row."""
    words = (*_WORDS, *family.words)
    count = rng.randrange(12)
    return "".join(rng.choice(words if rng.random() < 0.9 else family.calls) for _ in range(count))


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
    family = rng.choice((QWEN, GEMMA, LLAMA))
    text = answer(rng, family)
    calls = rng.choice(family.notations)
    options = {"inside": rng.random() < 0.3, "strays": family.strays}
    ended = rng.random() < 0.7
    raw = Sorter(family.marks, None, inline=True, **options)
    unsorted = [piece for part in cut(text, rng) for piece in raw.push(part)]
    assert parts(unsorted + raw.finish()) == (text, "", [])
    options |= {"single": rng.random() < 0.2}
    pieces = outcome([text], family.marks, calls, options, ended)
    whole = pieces if isinstance(pieces, str) else parts(pieces)
    streamed = outcome(cut(text, rng), family.marks, calls, options, ended)
    assert whole == (streamed if isinstance(streamed, str) else parts(streamed)), text
    if isinstance(pieces, str):
        return False
    inspect(text, pieces, family, calls, options["inside"])
    return True


def outcome(texts: Iterable[str], marks, calls, options, ended: bool) -> list[Piece] | str:
    """The pieces, or why a call cannot be read."""
    one = Sorter(marks, calls, TOOLS, **options)
    pieces: list[Piece] = []
    try:
        for text in texts:
            pieces += one.push(text)
        return pieces + one.finish(ended=ended)
    except CallError as error:
        return str(error)


def inspect(text: str, pieces: list[Piece], family: Family, calls, inside: bool) -> None:
    """No mark leaks, nothing is invented, calls are whole.

    What stood on both sides of a mark may look like one when it is joined: pieces are looked at
    one by one.
    """
    opens, closes = family.marks
    for kind, piece, name in pieces:
        if kind is Kind.CALL:
            assert name in TOOLS
            assert isinstance(json.loads(piece), dict)
            continue
        assert opens not in piece, text
        assert not any(stray in piece for stray in family.strays), text
        if kind is Kind.REASONING:
            assert closes not in piece, text
        if calls is not None and not calls.leads and (kind is Kind.CONTENT or calls.ends_thought):
            assert calls.open not in piece, text
    if not inside and opens not in text and calls is None:
        for stray in family.strays:
            text = text.replace(stray, "")
        assert parts(pieces) == (text, "", []), text
