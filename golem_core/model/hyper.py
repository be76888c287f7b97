"""Hyperparameters: the numbers of a file's header, read by type and range.

A header may hold anything, so every number an architecture uses is asked for here with the range
it must lie in; a wrong one is refused with the key, what was found and what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from golem_core.model.errors import ModelError

_REQUIRED: Any = object()
MAX_BLOCKS = 4096
MAX_WIDTH = 1 << 24


class Hyper:
    """The header of one file. Keys are given below the architecture: "attention.head_count".

    A key that starts with "." is taken as it is: ".general.file_type". A getter without a default
    refuses a file that lacks the key; all raise ModelError.
    """

    def __init__(self, metadata: Mapping[str, Any], architecture: str, file: str):
        self.metadata = metadata
        self.architecture = architecture
        self.file = file

    def key(self, name: str) -> str:
        """The full key of a name."""
        return name[1:] if name.startswith(".") else f"{self.architecture}.{name}"

    def __contains__(self, name: str) -> bool:
        return self.key(name) in self.metadata

    def is_array(self, name: str) -> bool:
        """Whether the file gives an array under the name."""
        return _is_array(self.metadata.get(self.key(name)))

    def fail(self, name: str, expected: str) -> ModelError:
        """The refusal of a key that is missing or wrong."""
        key = self.key(name)
        found = f"is {_shown(self.metadata[key])}" if name in self else "is missing"
        return ModelError(f"{self.file}: the key {key} {found}; {expected} is expected")

    def _get(self, name: str, default: Any) -> tuple[Any, bool]:
        """The value, and whether it is the default."""
        key = self.key(name)
        if key in self.metadata:
            return self.metadata[key], False
        return default, default is not _REQUIRED

    def integer(
        self, name: str, default: Any = _REQUIRED, *, low: int = 1, high: int = MAX_WIDTH
    ) -> int:
        """A whole number from low to high. An array counts as a number when it repeats one."""
        value, done = self._get(name, default)
        if done:
            return value
        if _is_array(value) and len(value) and all(v == value[0] for v in value):
            value = value[0]
        if not _is_integer(value) or not low <= value <= high:
            raise self.fail(name, f"a whole number from {low} to {high}")
        return int(value)

    def number(self, name: str, default: Any = _REQUIRED, *, low: float = -math.inf) -> float:
        """A finite number of at least low."""
        value, done = self._get(name, default)
        if done:
            return value
        is_number = _is_integer(value) or isinstance(value, float | np.floating)
        if not is_number or not math.isfinite(value) or value < low:
            raise self.fail(name, "a finite number" + (f" from {low}" if low > -math.inf else ""))
        return float(value)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        """A truth value."""
        value, done = self._get(name, default)
        if not done and not isinstance(value, bool | np.bool_):
            raise self.fail(name, "true or false")
        return value

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        """A text."""
        value, done = self._get(name, default)
        if not done and not isinstance(value, str):
            raise self.fail(name, "a text")
        return value

    def integers(
        self, name: str, count: int, default: Any = _REQUIRED, *, low: int = 1
    ) -> tuple[int, ...]:
        """A whole number for each of count blocks; a single one serves all."""
        value, _ = self._get(name, default)
        if not _is_array(value):
            value = [value] * count
        if len(value) < count or not all(_is_integer(v) and low <= v <= MAX_WIDTH for v in value):
            raise self.fail(name, f"a whole number of at least {low}, or {count} of them,")
        return tuple(int(v) for v in value[:count])

    def flags(self, name: str, count: int, default: Any = _REQUIRED) -> tuple[bool, ...]:
        """A truth value for each of count blocks."""
        value, _ = self._get(name, default)
        if not _is_array(value) or len(value) < count:
            raise self.fail(name, f"an array of {count} truth values")
        return tuple(bool(v) for v in value[:count])


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)


def _is_array(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _shown(value: Any) -> str:
    if _is_array(value):
        return f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
