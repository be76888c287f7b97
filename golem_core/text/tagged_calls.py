"""The calls of the Qwen family: between ``<tool_call>`` tags, in one of two spellings.

Qwen3 writes a JSON object with ``name`` and ``arguments``. Its successors write
``<function=NAME>`` with a ``<parameter=KEY>`` for each argument, whose values are bare text: what
type they have, the tool's schema says. Both are read whatever the model is.
"""

import re
from collections.abc import Mapping
from typing import Any

from golem_core.sample.grammar import Expression, seq
from golem_core.text.calls import (
    Call,
    CallError,
    CallFormat,
    Tools,
    Unfinished,
    compact,
    known,
    members,
    quoted,
    value_at,
)

_FUNCTION = re.compile(r"<function=([^>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]*)>")
_CLOSED = re.compile(r"\s*</function>\s*\Z")
_NEXT = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
_PYTHON = {"True": "true", "False": "false", "None": "null"}  # as the templates print them


class QwenCalls(CallFormat):
    """Qwen3's; a call in a thought is part of the thought. A forced call is written as JSON."""

    open = "<tool_call>"
    close = "</tool_call>"
    between = "\n"

    def parse(self, body: str, tools: Tools) -> Call | None:
        text = body.strip()
        return _tags(text, tools) if text.startswith("<function") else _json(text, tools)

    def body(self, name: str, arguments: Expression) -> Expression:
        return seq(f'\n{{"name": {quoted(name)}, "arguments": ', arguments, "}\n")


class TaggedCalls(QwenCalls):
    """Those of its successors: a call may end a thought."""

    ends_thought = True


def _json(text: str, tools: Tools) -> Call | None:
    try:
        found = members(text)
    except Unfinished:
        return None
    except ValueError:
        raise CallError("a call that is not JSON") from None
    name = known(found.get("name", ("", ""))[0], tools)
    if "arguments" not in found:
        raise CallError("a call with no arguments block")
    value, written = found["arguments"]
    if not isinstance(value, dict):
        raise CallError("a call whose arguments are not a JSON object")
    return Call(name, compact(written))


def _tags(text: str, tools: Tools) -> Call | None:
    opened = _FUNCTION.match(text)
    if opened is None:
        raise CallError("a function tag that never closes")
    name = known(opened[1], tools)
    properties = tools[name].get("properties")
    written: dict[str, str] = {}
    at = opened.end()
    while not _CLOSED.match(text, at):
        tag = _PARAMETER.match(text, at)
        if tag is None:
            raise CallError("a function block that holds something besides parameters")
        key = tag[1]
        if not key:
            raise CallError("a parameter with no name")
        found = _raw(text, tag.end())
        if found is None:
            return None
        raw, at = found
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        written[key] = _value(raw, schema)
    return Call(name, "{" + ",".join(f"{quoted(k)}:{v}" for k, v in written.items()) + "}")


def _raw(text: str, at: int) -> tuple[str, int] | None:
    """A parameter's text and where its tag ends; None when it does not end.

    A value on lines of its own ends where ``</parameter>`` begins a line, so that the tag may
    stand inside of it.
    """
    if text[at : at + 1] == "\n":
        end = text.find("\n</parameter>", at)
        if end >= 0:
            return text[at + 1 : max(end, at + 1)], end + len("\n</parameter>")
    closed = _NEXT.search(text, at)
    if closed is None:
        return None
    return text[at : closed.start()].removeprefix("\n"), closed.end()


def _value(raw: str, schema: Any) -> str:
    """A parameter's text as JSON, by its type where the schema says one."""
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return quoted(raw)
    text = raw.strip()
    if kinds:
        text = _PYTHON.get(text, text)
    try:
        value, end = value_at(text, 0)
        whole = end == len(text)
    except ValueError:
        value, whole = "", False
    if whole and (kinds or not isinstance(value, str)):
        return compact(text)
    if kinds and "string" not in kinds:
        raise CallError("a parameter whose value is not of the type that the tool asks for")
    return quoted(raw)


def _kinds(schema: Any) -> set[str]:
    """The JSON types a schema names; empty when it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    given = schema.get("type")
    if isinstance(given, str):
        return {given}
    if isinstance(given, list):
        return {kind for kind in given if isinstance(kind, str)}
    fixed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(fixed, list) and fixed and all(isinstance(v, str) for v in fixed):
        return {"string"}
    return set()
