"""Arguments of the Python API, checked where they are given.

A wrong one is refused by the call that got it, in the caller's words: its name, the value, and
what is possible. Without this a text for a number would surface passes later, as a failure of
the engine.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from golem_core.sample import SamplerParams

# What chat templates know each role as.
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
}
_SAMPLING: dict[str, Field] = {f.name: f for f in fields(SamplerParams)}
_OTHERS = ("max_tokens", "stop", "logprobs", "cache_prompt")  # that generate takes besides
_LONGEST = 80  # characters of a value that are shown


def whole(
    name: str,
    value: Any,
    low: int | None,
    high: int | None = None,
    *,
    meaning: str = "",
    none: bool = True,
) -> int | None:
    """A whole number from low to high, None = any. meaning: of the lowest. none: None is one too.

    Raises TypeError or ValueError.
    """
    if value is None and none:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={_shown(value)}: it must be a whole number") from None
    if low is not None and (number < low or (high is not None and number > high)):
        most = "or more" if high is None else f"to {high}"
        note = f" ({meaning})" if meaning else ""
        raise ValueError(f"{name}={number}: it must be {low} {most}{note}")
    return number


def seconds(name: str, value: Any) -> float:
    """A time. Raises TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={_shown(value)}: it must be a number of seconds")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}={value}: it must be 0 or more seconds (0 = none)")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """True or False. Raises TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={_shown(value)}: it must be True or False")
    return value


def choice(name: str, value: Any, among: Sequence[str]) -> str:
    """One of some words. Raises ValueError."""
    if value not in among:
        hint = _nearest(value, among) or f"; it is one of {', '.join(among)}"
        raise ValueError(f"{name}={_shown(value)}: there is no such choice{hint}")
    return value


def texts(name: str, value: Any) -> list[str]:
    """A text or several. Raises TypeError."""
    if isinstance(value, str):
        return [value]
    several = isinstance(value, Iterable) and not isinstance(value, bytes | Mapping)
    found = list(value) if several else [None]
    if not all(isinstance(text, str) for text in found):
        raise TypeError(f"{name}={_shown(value)}: it must be a text or a list of texts")
    return found


def text(name: str, value: Any) -> str:
    """A text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={_shown(value)}: it must be a text")
    return value


def ids(name: str, value: Any, n_vocab: int, wanted: str = "a list of token ids") -> list[int]:
    """Ids below n_vocab. wanted: what is possible. Raises TypeError or ValueError."""
    wrong = TypeError(f"{name}={_shown(value)}: it must be {wanted}")
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong
    found = list(value)
    for place, token in enumerate(found):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise wrong
        if not 0 <= operator.index(token) < n_vocab:
            raise ValueError(f"{name}[{place}]={token}: ids are 0 to {n_vocab - 1}")
    return found


def prompt(value: Any, n_vocab: int) -> str | Sequence[int]:
    """A text, or ids below n_vocab. Raises TypeError or ValueError."""
    wanted = "a text or a list of token ids (chat() takes a conversation)"
    found = value if isinstance(value, str) else ids("prompt", value, n_vocab, wanted)
    if not found:
        raise ValueError(f"prompt={found!r}: there is nothing to continue; give a text or ids")
    return found


def messages(value: Any) -> list[Mapping[str, Any]]:
    """A conversation: mappings with a role and a content, the roles as templates know them.

    Raises TypeError, ValueError.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(
            f"messages={_shown(value)}: it must be a list such as "
            '[{"role": "user", "content": "Hello"}] (generate() takes a text)'
        )
    found = list(value)
    if not found:
        raise ValueError("messages=[]: a conversation has at least one message")
    for place, message in enumerate(found):
        _check_message(f"messages[{place}]", message)
    return [{**message, "role": ROLES[message["role"]]} for message in found]


def _check_message(name: str, message: Any) -> None:
    if not isinstance(message, Mapping):
        raise TypeError(f'{name}={_shown(message)}: it must be a dict with "role" and "content"')
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in ROLES:
        raise ValueError(
            f"{name} has the role {_shown(role)}{_nearest(role, ROLES)}; "
            f"the roles are {', '.join(ROLES)}"
        )
    parts = isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content)
    silent = content is None and ROLES[role] == "assistant" and message.get("tool_calls")
    if not (isinstance(content, str) or parts or silent):
        raise TypeError(
            f"{name} has the content {_shown(content)}: it must be a text, or a list of parts "
            'such as {"type": "text", "text": "Hello"}'
        )


def path(name: str, value: Any) -> Path:
    """Where a file is. Raises TypeError."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name}={_shown(value)}: it must be a path")
    return Path(value)


def tools(value: Any) -> list[Mapping[str, Any]] | None:
    """What a template is told of tools, None for none. Raises TypeError."""
    if value is None:
        return None
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    found = list(value) if several else [None]
    if not all(isinstance(tool, Mapping) for tool in found):
        raise TypeError(
            f"tools={_shown(value)}: it must be a list of dicts such as "
            '{"type": "function", "function": {"name": …}}'
        )
    return found


def variables(name: str, value: Any, taken: Collection[str]) -> dict[str, Any]:
    """A template's variables by name. taken: those of others. Raises TypeError, ValueError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name}={_shown(value)}: it must be a dict from names to values")
    for key in value:
        if key in taken:
            raise ValueError(
                f"{name} cannot hold {key!r}: chat() gives that to the template itself"
            )
    return dict(value)


def sampling(given: Mapping[str, Any]) -> None:
    """SamplerParams' fields by name, of their types. Raises TypeError."""
    for name, value in given.items():
        if name not in _SAMPLING:
            raise unknown(name, [*_SAMPLING, *_OTHERS], "setting")
        kind = _SAMPLING[name].type
        if value is None:
            continue
        if kind == "bool":
            flag(name, value)
        elif kind in ("int", "float") and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            wanted = "a whole number" if kind == "int" else "a number"
            raise TypeError(f"{name}={_shown(value)}: it must be {wanted}")
        elif kind == "int" and math.isfinite(value) and value != int(value):
            raise TypeError(f"{name}={value}: it must be a whole number")


def unknown(name: str, known: Iterable[str], what: str) -> TypeError:
    """The error for a keyword that does not exist."""
    known = list(known)
    hint = _nearest(name, known) or f"; there are {', '.join(known)}"
    return TypeError(f"there is no {what} {name!r}{hint}")


def _nearest(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
