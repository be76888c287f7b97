"""How long a model stays in memory after an answer, in every spelling that clients send.

Numbers are seconds, negative ones mean for ever; texts are Go's durations (``10m``, ``1h30m``,
``-1m``), and a text that is a bare number is seconds too.
"""

import math
import re
from typing import Any

from golem_server.body import json_type
from golem_server.errors import Refusal

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_NUMBER = r"(\d+\.?\d*|\.\d+)"
_PART = re.compile(_NUMBER + r"(ns|us|µs|μs|ms|s|m|h)")


def read_keep_alive(value: Any) -> float | None:
    """Seconds, infinity for ever, None where the server's own time holds.

    Raises:
        Refusal: for what is no time.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Refusal(
            f'invalid type for "keep_alive" (expected a number of seconds or a duration such as '
            f'"10m", got {json_type(value)})'
        )
    seconds = _seconds(value) if isinstance(value, str) else value
    return math.inf if seconds < 0 else float(min(seconds, 1e12))


def _seconds(text: str) -> float:
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[0] in "+-" else text
    if re.fullmatch(_NUMBER, rest, re.ASCII):
        return sign * float(rest)
    if not re.fullmatch(rf"({_PART.pattern})+", rest, re.ASCII):
        raise Refusal(f'keep_alive {text[:50]!r} is no duration; write "10m", "1h30m" or seconds')
    return sign * sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(rest))
