"""What an architecture says of the pictures and sounds it takes: its towers, and its marks.

A projector's file (GGUF, architecture "clip") holds towers: programs that turn a picture or a
recording into rows as wide as the model, which stand in a prompt where tokens would. A plugin
names the towers its model was trained with and the texts around their rows; everything else, from
bytes to the rows' places in a pass, is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from golem_core.graph.builder import Builder
from golem_core.graph.program import Program
from golem_core.graph.values import Value
from golem_core.model.errors import ModelError
from golem_core.model.hyper import Hyper
from golem_core.model.tensors import Tensors

KINDS = {"image": "picture", "audio": "recording"}  # of media, and what messages call one


@dataclass(frozen=True)
class Marks:
    """The texts around a medium's rows in a prompt.

    place: what the chat template writes for one, a control token's text. opens, closes: what goes
    before and after the rows where the template does not write it itself.
    """

    place: str
    opens: str = ""
    closes: str = ""


@dataclass(frozen=True)
class Limits:
    """Bounds of media. Those of tokens are a tower's own where they are 0.

    tokens: rows one picture may become, at least and at most. pixels: of a picture as it was
    sent. seconds: of a recording. bytes: of either, encoded.
    """

    tokens: tuple[int, int] = (0, 0)
    pixels: int = 64 << 20
    seconds: float = 600.0
    bytes: int = 32 << 20

    def __post_init__(self) -> None:
        least, most = self.tokens
        if least < 0 or most < 0 or (most and least > most):
            raise ValueError(
                f"a picture of {least} to {most} tokens: give a range, or 0 for the tower's own "
                "(-image-min-tokens, -image-max-tokens)"
            )
        for name in ("pixels", "seconds", "bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)}: a bound is a number above 0")


@dataclass(frozen=True)
class Positions:
    """Where rows lie for the angles of a model, from the position of the first on.

    offsets: (rows, axes) i32. advance: how far the text after them is from the first.
    """

    offsets: np.ndarray
    advance: int


class Tower:
    """One tower of a projector's file: its numbers, its program, and what a pass of it takes.

    Class attribute ``kind``: "image" or "audio". A subclass reads its numbers in ``read``, writes
    the program in ``write`` and cuts a medium into inputs in ``pieces``.
    """

    kind: ClassVar[str]

    def __init__(self, hyper: Hyper, tensors: Tensors, limits: Limits):
        """hyper: keys below ``clip.vision`` or ``clip.audio``. tensors: the file's."""
        self.hyper = hyper
        self.tensors = tensors
        self.limits = limits
        self.read()

    def read(self) -> None:
        """Reads the tower's numbers; refuses with the key's name."""

    def bounds(self, least: int, most: int, longest: int) -> tuple[int, int]:
        """Rows of a picture at least and at most: the operator's, else these. Refuses > longest."""
        asked, limit = self.limits.tokens
        least = asked or min(least, limit or least)
        most = max(limit or most, least)
        if most > longest:
            raise self.fail(f"-image-max-tokens {most}: {longest} is the most")
        return least, most

    @property
    def width(self) -> int:
        """Width of the rows it makes."""
        raise NotImplementedError(f"{type(self).__name__}.width")

    @property
    def longest(self) -> int:
        """Most rows that one medium becomes."""
        raise NotImplementedError(f"{type(self).__name__}.longest")

    def write(self, p: Builder, w: Tensors) -> Value:
        """Writes the forward pass. -> rows (k, width)."""
        raise NotImplementedError(f"{type(self).__name__}.write")

    def pieces(self, medium: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
        """The inputs of each pass for a medium, whose rows follow each other.

        medium: a picture (height, width, 3) u8, or a recording (samples,) f32 at 16 kHz.
        """
        raise NotImplementedError(f"{type(self).__name__}.pieces")

    def positions(self, medium: np.ndarray, rows: int) -> Positions | None:
        """Where the rows lie; None: one after the other, as text does."""
        return None

    def program(self) -> Program:
        """The program; its output is named "rows"."""
        p = Builder(f"{self.hyper.architecture} tower")
        p.output("rows", self.write(p, self.tensors))
        return p.build()

    def fail(self, text: str) -> ModelError:
        """A refusal of the file."""
        return ModelError(f"{self.hyper.file}: {text}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind})"
