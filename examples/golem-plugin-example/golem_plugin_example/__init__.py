"""A golem plugin: the hooks, and nothing else. What they return is in the modules beside this."""

from typing import Any

from golem_core.plugins import Description, hookimpl
from golem_plugin_example.model import ParallelLlama
from golem_plugin_example.words import Complete, Words, WordsSettings


@hookimpl
def golem_architectures() -> dict[str, type]:
    return {"parallel-llama": ParallelLlama}


@hookimpl
def golem_settings() -> type:
    return WordsSettings


@hookimpl
def golem_open(settings: WordsSettings) -> Words | None:
    return Words(settings.file) if settings.file else None


@hookimpl
def golem_routes(capability: Words) -> list[tuple[str, Any]]:
    return [("/v1/words", Complete(capability))]


@hookimpl
def golem_describe(capability: Words) -> Description:
    return Description(lines=(f"words: {len(capability.words)} from {capability.path}",))
