"""The kinds of values that settings have: how each is read from text and from TOML, and shown."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType

Duration = NewType("Duration", float)  # seconds
Size = NewType("Size", int)  # bytes


@dataclass(frozen=True)
class Kind:
    """How a type of value is read from text and from TOML, and shown."""

    name: str  # in messages: "a whole number"
    placeholder: str
    parse: Callable[[str], Any]
    toml: tuple[type, ...]  # the TOML types that are taken
    show: Callable[[Any], str] = str
    each: bool = False  # a flag is given once for each element, whose text may hold anything


def parse_bool(text: str) -> bool:
    """``true``, ``1``, ``yes``, ``on`` and their opposites, in any case."""
    word = text.strip().lower()
    if word in {"1", "t", "true", "yes", "on"}:
        return True
    if word in {"0", "f", "false", "no", "off"}:
        return False
    raise ValueError(text)


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = r"(\d+(?:\.\d*)?|\.\d+)"


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``10m``, ``1h30m``, ``250ms`` or ``-1``."""
    text = text.strip().lower()
    if text.startswith("-"):
        return -_positive_duration(text[1:])
    return _positive_duration(text)


def _positive_duration(text: str) -> float:
    if re.fullmatch(_AMOUNT, text):
        return float(text)
    if not re.fullmatch(rf"({_AMOUNT}(ms|s|m|h|d))+", text):
        raise ValueError(text)
    return sum(float(n) * _UNITS[unit] for n, unit in re.findall(rf"{_AMOUNT}(ms|[smhd])", text))


LONGEST = 3.2e9  # seconds of a duration: a century
MOST = {"N": (1 << 31) - 1, "SIZE": 1 << 60, "TIME": LONGEST}  # where a setting has no limit


def show_duration(seconds: float) -> str:
    """The shortest text that :func:`parse_duration` reads back: ``10m``, ``1.5s``, ``0s``."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds:g}s"


_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes of ``4096``, ``64MiB``, ``64M`` or ``1.5g``; units are powers of 1024. ``-1`` is -1,
    which a setting may take for no size."""
    if text.strip() == "-1":
        return -1
    match = re.fullmatch(rf"{_AMOUNT}\s*([kmgt]?)(i?b)?", text.strip().lower())
    if match is None:
        raise ValueError(text)
    count = float(match[1]) * _SIZES[match[2]]
    return int(count) if math.isfinite(count) else MOST["SIZE"] + 1


def show_size(count: int) -> str:
    """``64MiB``, ``1.5GiB``, ``100B``."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if count >= unit:
            return f"{count / unit:g}{letter}iB" if count % (unit // 4) == 0 else f"{count}B"
    return f"{count}B"


def _parse_list(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:  # an unset variable of a shell must not turn a list of keys off
        raise ValueError("an empty list")
    return parts


def _parse_path(text: str) -> Path:
    if not text:  # which would be the folder that the program runs in
        raise ValueError("an empty path")
    return Path(text)


def _parse_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


KINDS: dict[Any, Kind] = {
    str: Kind("a text", "TEXT", str, (str,)),
    Path: Kind("a path", "FILE", _parse_path, (str,)),
    bool: Kind("true or false", "", parse_bool, (bool,), lambda value: str(value).lower()),
    int: Kind("a whole number", "N", int, (int,)),
    float: Kind("a number", "X", _parse_number, (int, float), lambda value: f"{value:g}"),
    Duration: Kind(
        "a duration such as 30s, 10m or 1h30m",
        "TIME",
        parse_duration,
        (str, int, float),
        show_duration,
    ),
    Size: Kind("a size such as 512MiB", "SIZE", parse_size, (str, int), show_size),
    tuple[str, ...]: Kind("a list of texts", "A,B", _parse_list, (list, str), ",".join),
    tuple[Path, ...]: Kind(
        "a path",
        "FILE",
        lambda text: (_parse_path(text),),
        (str,),
        lambda value: " ".join(map(str, value)),
        each=True,
    ),
}
