"""The list of all ops and what planners ask of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """An entry of the catalogue. rowwise: row i of the result depends on row i alone."""

    name: str
    rowwise: bool


OPS: dict[str, Op] = {}


def op(*, rowwise: bool = False) -> Callable:
    """Enters a builder method into the catalogue."""

    def enter(method):
        OPS[method.__name__] = Op(method.__name__, rowwise)
        return method

    return enter
