"""Ollama's Modelfile: a text that says what a model is made of."""

import json
import re
from typing import Any

from golem_server.errors import Refusal

_LINE = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)
_KNOWN = ("from", "system", "template", "parameter", "message", "license")
_QUOTES = '"""'


def read_modelfile(text: str) -> dict[str, Any]:
    """The fields of ``POST /api/create`` that a Modelfile stands for.

    Raises:
        Refusal: for a line that is none, or asks for what golem does not do.
    """
    fields: dict[str, Any] = {}
    for word, value in _commands(text):
        if word not in _KNOWN:
            raise Refusal(
                f"modelfile: {word.upper()} is not implemented; there are "
                f"{', '.join(known.upper() for known in _KNOWN)}"
            )
        if word == "parameter":
            name, _, given = value.partition(" ")
            _parameter(fields.setdefault("parameters", {}), name.lower(), given.strip())
        elif word == "message":
            role, _, content = value.partition(" ")
            message = {"role": role.lower(), "content": _unquoted(content.strip())}
            fields.setdefault("messages", []).append(message)
        else:
            fields[word] = value
    return fields


def _commands(text: str) -> list[tuple[str, str]]:
    """``(word in lower case, value)`` of every command, in order."""
    found = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise Refusal(f"modelfile: this line is no command: {line.strip()[:80]!r}")
        value = match["rest"].strip()
        while value.count(_QUOTES) == 1:
            more = next(lines, None)
            if more is None:
                raise Refusal(f"modelfile: {match['word'].upper()} has no closing {_QUOTES}")
            value += "\n" + more
        word = match["word"].lower()
        plain = word in ("parameter", "message")
        found.append((word, value if plain else _unquoted(value)))
    return found


def _unquoted(value: str) -> str:
    for quotes in (_QUOTES, '"'):
        size = len(quotes)
        if len(value) >= 2 * size and value.startswith(quotes) and value.endswith(quotes):
            return value[size:-size]
    return value


def _parameter(parameters: dict[str, Any], name: str, given: str) -> None:
    if name == "stop":
        parameters.setdefault("stop", []).append(_unquoted(given))
        return
    try:
        parameters[name] = json.loads(given)
    except ValueError:
        parameters[name] = given  # read_options says what it should have been
