"""BERT encoders of GGUF files: all-MiniLM, bge, e5, gte and their like."""

from golem_core.plugins import hookimpl
from golem_plugins.bert.model import Bert


@hookimpl
def golem_embedders() -> dict[str, type]:
    return {"bert": Bert}
