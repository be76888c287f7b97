"""What the engine has a decoder's executor compute: asked for by name, so planned when it loads."""

from __future__ import annotations

from collections.abc import Collection


def drawn_from(outputs: Collection[str], *, hidden: bool = False) -> tuple[str, ...]:
    """Of a program's outputs those that tokens are drawn from: ``logits``, and ``peaks`` if it has
    them. hidden: what a prediction block goes on from as well."""
    names = ("logits", "peaks") if "peaks" in outputs else ("logits",)
    return (*names, "hidden") if hidden else names
