"""The llama architecture: Llama 2 and 3, SmolLM2, Mistral, Mixtral and their relatives."""

from golem_core.plugins import hookimpl
from golem_plugins.llama.model import Llama


@hookimpl
def golem_architectures() -> dict[str, type]:
    return {"llama": Llama}
