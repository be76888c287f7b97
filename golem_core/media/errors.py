"""Why a picture or a recording is not taken, in one line that a client can be shown."""

from __future__ import annotations

import importlib
from types import ModuleType


class MediaError(ValueError):
    """A picture or a recording that cannot be used: what it is, and what can be."""


class MissingPackage(MediaError):
    """What decodes media is not installed."""


def need(module: str, what: str) -> ModuleType:
    """Imports a package of the extra ``media``. Raises MissingPackage, which names the command."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"{what} cannot be read: the package {package} is not installed "
            f'({error}); pip install "golem-server[media]"'
        ) from error


def one_line(error: BaseException) -> str:
    """An error's text, short enough to quote."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:160] + "…"
