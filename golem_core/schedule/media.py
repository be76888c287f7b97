"""Pictures and sound in a prompt: where their rows lie, and what makes two prompts the same.

A position that is a row of a picture has no token. In the ids by which prompts are compared it is
a negative number, made from the hash of the picture's bytes and the row's place in it: the same
picture in the same place continues a conversation, another one parts from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golem_core.model.projector import Rows
from golem_core.sample import ParamError


@dataclass(frozen=True)
class Span:
    """Rows in a prompt: those of positions ``first`` .. ``last``, whose tokens are the padding."""

    first: int
    rows: Rows

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


class Media:
    """The media of one prompt.

    tokens: (n,) i32, what is fed, the padding where rows are. ids: (n,) i32, what prompts are
    compared by. counts: positions by kind. shift: how far the positions of the text behind lie
    behind its indices.
    """

    def __init__(self, tokens: np.ndarray, spans: Sequence[Span], width: int):
        """width: of the model's rows. Raises ParamError where rows do not fit into the prompt."""
        self.tokens = tokens
        self.ids = tokens.copy()
        self.spans = sorted(spans, key=lambda span: span.first)
        self.counts = {"image": 0, "audio": 0}
        at = 0
        for span in self.spans:
            if span.first < at or span.last >= len(tokens):
                raise ParamError("media", f"rows {span.first} to {span.last} of {len(tokens)}")
            if span.rows.embeddings.shape[1] != width:
                raise ParamError(
                    "media",
                    f"rows of {span.rows.embeddings.shape[1]} values; this model reads {width}",
                )
            at = span.last + 1
            self.ids[span.first : at] = keys(span.rows)
            self.counts[span.rows.kind] += len(span.rows)
        self.whole = [(s.first, s.last + 1) for s in self.spans if s.rows.both_ways]
        self.positions = self._positions()
        self.shift = 0 if self.positions is None else self._shift

    def _positions(self) -> np.ndarray | None:
        """(n, axes) i32: of models whose pictures lie on several axes."""
        axes = {s.rows.positions.offsets.shape[1] for s in self.spans if s.rows.positions}
        if not axes:
            return None
        found = np.repeat(np.arange(len(self.tokens), dtype=np.int32)[:, None], max(axes), axis=1)
        self._shift = 0
        for span in self.spans:
            given, end = span.rows.positions, span.last + 1
            if given is None:
                continue
            found[span.first : end] = span.first + self._shift + given.offsets
            moved = given.advance - len(span.rows)
            self._shift += moved
            found[end:] += moved
        return found

    def floor(self, position: int) -> int:
        """The last place at or before a position from which reading may go on: not inside rows
        that see each other."""
        for first, end in self.whole:
            if first < position < end:
                return first
        return position

    def cut(self, at: int, count: int, room: int) -> int:
        """Of the next ``count`` columns from ``at`` on, those up to where a pass may end.

        Rows that see each other are fed in one pass, more than ``count`` of them where there is
        room for ``room``.
        """
        end = at + count
        for first, stop in self.whole:
            if first < end < stop:
                return stop - at if stop - at <= room else max(first - at, 0)
        return count

    def ahead(self, at: int) -> int:
        """Columns of the rows that see each other and begin at a position; 0 where none do."""
        return next((end - first for first, end in self.whole if first == at), 0)

    def rows_in(self, at: int, count: int) -> list[tuple[int, np.ndarray, int | None]]:
        """(first column, rows, last index they see) of what lies in columns at .. at + count - 1.

        Columns are counted from ``at``; the last index is None where each sees up to itself.
        """
        found = []
        for span in self.spans:
            first, end = max(span.first, at), min(span.last + 1, at + count)
            if first < end:
                rows = span.rows.embeddings[first - span.first : end - span.first]
                found.append((first - at, rows, span.last if span.rows.both_ways else None))
        return found


def keys(rows: Rows) -> np.ndarray:
    """(rows,) i32 below 0: what stands for each row in the ids of a prompt."""
    size = len(rows).to_bytes(8, "little")
    drawn = hashlib.shake_256(rows.digest + rows.kind.encode() + size).digest(4 * len(rows))
    return -1 - (np.frombuffer(drawn, np.uint32) & 0x7FFFFFFF).astype(np.int32)
