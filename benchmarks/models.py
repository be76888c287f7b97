"""The model a benchmark of the engine runs on: a file, or random weights of a shape."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from golem_core.model import Model, open_decoder
from golem_core.model.errors import ModelError
from golem_server.bench import arguments as kinds
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.shapes import SHAPES


def add_model(parser: argparse.ArgumentParser, default: str) -> None:
    """The flags that name it; ``default`` is a SHAPE:TYPE."""
    parser.add_argument("-m", "--model", type=kinds.file, metavar="FILE", help="a GGUF chat model")
    parser.add_argument(
        "--random",
        type=kinds.weights,
        metavar="SHAPE:TYPE",
        default=default,
        help=f"weights ({default})",
    )
    parser.add_argument(
        "-t", "--threads", type=kinds.threads(0), default=0, help="cores (0: the physical ones)"
    )


@contextmanager
def model(arguments: argparse.Namespace, **options: Any) -> Iterator[Model]:
    """The model of the arguments, open. options: of ``open_decoder``."""
    with tempfile.TemporaryDirectory(prefix="golem-benchmark-") as folder:
        path = arguments.model
        if path is None:
            shape, mixture = parse(arguments.random)
            path = Path(folder) / f"{shape}-{mixture.lower()}.gguf"
            write_invented(path, SHAPES[shape], mixture, 0)
        try:
            opened = open_decoder(path, threads=arguments.threads or None, **options)
        except ModelError as error:
            raise SystemExit(str(error)) from None
        try:
            yield opened
        finally:
            opened.close()
