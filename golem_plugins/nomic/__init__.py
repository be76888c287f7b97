"""Nomic's encoders: nomic-embed-text v1.5 (``nomic-bert``) and v2 (``nomic-bert-moe``)."""

from golem_core.plugins import hookimpl
from golem_plugins.nomic.model import Nomic, NomicMoe


@hookimpl
def golem_embedders() -> dict[str, type]:
    return {"nomic-bert": Nomic, "nomic-bert-moe": NomicMoe}
