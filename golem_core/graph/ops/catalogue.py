"""The list of all ops: what documentation is made of and what planners ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """An entry of the catalogue. rowwise: row i of the result depends on row i alone."""

    name: str
    rowwise: bool
    doc: str


OPS: dict[str, Op] = {}


def op(*, rowwise: bool = False) -> Callable:
    """Enters a builder method into the catalogue."""

    def enter(method):
        OPS[method.__name__] = Op(method.__name__, rowwise, method.__doc__)
        return method

    return enter
