"""The bar that shows a person at a terminal how far a model is loaded."""

import sys
from types import TracebackType
from typing import TextIO

WIDTH = 30  # cells
ERASE = "\r\x1b[K"


class LoadingBar:
    """Called with 0 … 1; gone at the end of its ``with`` block, whatever that was.

    stream: stderr when None. Where it is no terminal nothing is written.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._shown = ""

    def __call__(self, part: float) -> None:
        cells = int(WIDTH * part)
        bar = f"loading [{'#' * cells}{'.' * (WIDTH - cells)}] {int(100 * part):3d} %"
        if bar != self._shown and self._stream.isatty():
            self._write("\r" + bar)
            self._shown = bar

    def __enter__(self) -> "LoadingBar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._write(ERASE)
            self._shown = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
