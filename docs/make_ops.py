"""Writes docs/ops.md, the catalogue of ops, from the docstrings of golem_core.graph.ops.

    python docs/make_ops.py

A test fails when the file is older than the docstrings.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from golem_core.graph import ops
from golem_core.state import declare

TARGET = Path(__file__).with_name("ops.md")
GROUPS = (
    ops.ViewOps,
    ops.RowOps,
    ops.ProductOps,
    ops.AttentionOps,
    ops.RecurrentOps,
    ops.PictureOps,
    ops.ElementwiseOps,
)
STATES = (declare.Ring, declare.Matrix, declare.Window)


def document() -> str:
    """The whole of docs/ops.md."""
    return "\n".join([*_opening(), *(line for group in GROUPS for line in _group(group)), *_rest()])


def _opening() -> Iterator[str]:
    yield "# The ops of a program"
    yield ""
    yield "Made by `python docs/make_ops.py` from the docstrings; do not edit."
    yield ""
    yield from inspect.cleandoc(ops.__doc__).splitlines()
    yield ""
    yield "`n` is the number of columns of a pass, other letters are numbers that the file gives."
    yield "Methods without a mark are views or shorthands: they append no op of their own."
    yield ""


def _group(group: type) -> Iterator[str]:
    text = inspect.cleandoc(group.__doc__)
    title = re.split(r"[:.]", text, maxsplit=1)[0]
    yield f"## {title}"
    yield ""
    if text != f"{title}.":
        yield text
        yield ""
    for name, method in vars(group).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        yield f"### {name}"
        yield ""
        if name in ops.OPS:
            yield "An op, row-wise." if ops.OPS[name].rowwise else "An op."
            yield ""
        yield from _fenced(f"p.{name}{_signature(method)}", "python")
        yield from _fenced(inspect.cleandoc(method.__doc__), "text")


def _rest() -> Iterator[str]:
    yield "## Angles and states"
    yield ""
    yield "What `rope` and `attend` are given besides values."
    yield ""
    for kind in (ops.Rope, *STATES):
        yield f"### {kind.__name__}"
        yield ""
        yield from _fenced(inspect.cleandoc(kind.__doc__), "text")


def _signature(method) -> str:
    """The parameters without self and without types; the docstring tells those better."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(bare)).replace("'", '"')


def _fenced(text: str, language: str) -> Iterator[str]:
    yield f"```{language}"
    yield from text.splitlines()
    yield "```"
    yield ""


if __name__ == "__main__":
    TARGET.write_text(document(), "utf-8")
