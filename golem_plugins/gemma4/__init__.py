"""The gemma4 architecture: Gemma 4 of every size, dense and as a mixture of experts."""

from golem_core.plugins import hookimpl
from golem_plugins.gemma4.model import Gemma4


@hookimpl
def golem_architectures() -> dict[str, type]:
    return {"gemma4": Gemma4}
