"""Kinds of arguments of the commands that measure: a bad one is a line before anything is done.

Each is a ``type`` of argparse, which puts the flag before what is said here.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from golem_core.cpu.cores import check_threads
from golem_core.formats.gguf import GGUF
from golem_core.model.memory import memory_limit
from golem_server.bench.invented import parse
from golem_server.bench.shapes import SHAPES
from golem_server.serve import one_line

MOST = 1 << 24  # of any count

One = TypeVar("One")


def whole(low: int = 1, high: int = MOST, of: int = 1) -> Callable[[str], int]:
    """A whole number from low to high, a multiple of ``of``."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if number < low:
            raise argparse.ArgumentTypeError(f"{text!r}: it must be at least {low}")
        if number > high:
            raise argparse.ArgumentTypeError(f"{text!r}: it may be at most {high}")
        if number % of:
            raise argparse.ArgumentTypeError(f"{text!r}: it must be a multiple of {of}")
        return number

    return read


def threads(low: int = 1) -> Callable[[str], int]:
    """As many threads as may pay. low: 0 where that stands for a choice of golem's."""

    def read(text: str) -> int:
        number = whole(low)(text)
        try:
            check_threads(number)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return number

    return read


def mebibytes(text: str) -> int:
    """So much memory, which is there."""
    return whole(1, memory_limit() >> 20)(text)


def several(one: Callable[[str], One], *, none: bool = False) -> Callable[[str], list[One]]:
    """A list of them, separated by commas. none: an empty one too."""

    def read(text: str) -> list[One]:
        return [] if none and not text else [one(part) for part in text.split(",")]

    return read


def among(known: Iterable[str]) -> Callable[[str], str]:
    """One of some names."""
    known = list(known)

    def read(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text!r}: there are {', '.join(known)}")
        return text

    return read


def sizes(of: int) -> Callable[[str], tuple[int, int]]:
    """Two of them, as in 4096x12288, each a multiple of ``of``."""

    def read(text: str) -> tuple[int, int]:
        if text.count("x") != 1:
            raise argparse.ArgumentTypeError(f"{text!r}: it must be two sizes, such as {of}x{of}")
        first, second = map(whole(of, of=of), text.split("x"))
        return first, second

    return read


def seconds(text: str) -> float:
    """A time that passes."""
    return _positive(text, "of seconds")


def minutes(text: str) -> float:
    """The same, in another unit."""
    return _positive(text, "of minutes")


def _positive(text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number {unit} above 0")
    return number


def file(text: str) -> Path:
    """A file that is there."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r}: there is no such file")
    return Path(text)


def folder(text: str) -> Path:
    """A folder that is there, or can be made."""
    if not text or (Path(text).exists() and not Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    return Path(text)


def program(text: str) -> str:
    """A program that can be run."""
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: there is no such program")
    return text


def weights(text: str) -> str:
    """SHAPE:TYPE of random weights."""
    try:
        parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def model(text: str) -> str:
    """A GGUF file, or SHAPE:TYPE of random weights."""
    if not Path(text).exists():
        try:
            parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no file, and {error}") from None
        return text
    try:
        GGUF.open(text).close()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(one_line(error)) from None
    return text


def mixture(text: str) -> str:
    """A type of random weights."""
    weights(f"{next(iter(SHAPES))}:{text}")
    return text
