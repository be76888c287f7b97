"""The gemma3 architecture: the text part of Gemma 3."""

from golem_core.plugins import hookimpl
from golem_plugins.gemma3.model import Gemma3


@hookimpl
def golem_architectures() -> dict[str, type]:
    return {"gemma3": Gemma3}
