"""Whose mistake it was: what a plugin's model class raises by accident is told with its place.

Without this a misspelt name in ``write`` reaches an operator as the bare text of a NameError.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from golem_core.formats.errors import FormatError
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import WeightError
from golem_core.model.decoder import Decoder
from golem_core.model.errors import ModelError

MEANT = (ModelError, FormatError, ProgramError, WeightError, OSError, MemoryError)


@contextmanager
def plugins_own(architecture: str) -> Iterator[None]:
    """Around the code of a plugin. Raises ModelError, one line, for an error nobody meant."""
    try:
        yield
    except MEANT:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = "; ".join(f"{type(error).__name__}: {error}".splitlines())
        raise ModelError(
            f"the plugin of {architecture} fails at {place.filename}:{place.lineno}, in "
            f"{place.name}: {what}"
        ) from error


@contextmanager
def written(decoder: Decoder) -> Iterator[None]:
    """Around a program's writing: what it refuses is told with the file, as a ModelError, and with
    what opens the file without the block at fault."""
    try:
        with plugins_own(decoder.architecture):
            yield
    except (WeightError, ProgramError) as error:
        guesses = decoder.predicting and f"blk.{decoder.blocks}." in str(error)
        way = "; -draft ngram and off leave the prediction block out" if guesses else ""
        raise ModelError(f"{decoder.hyper.file}: {error}{way}") from error
