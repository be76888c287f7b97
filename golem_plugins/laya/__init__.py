"""Laya: typed decisions. A state and questions go in, probabilities of the options come out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golem_core.plugins import Description, Runtime, hookimpl
from golem_core.settings import Size, setting


@dataclass(frozen=True)
class LayaSettings:
    """``-laya DIR`` and the limits of a request."""

    dir: Path | None = setting(
        None, "a Laya checkpoint, for /v1/systemone", own_name=True, placeholder="DIR"
    )
    max_body: Size = setting(1 << 20, "largest request of decisions", low=1 << 10)
    questions: int = setting(64, "most questions of one request", low=1, high=4096)
    queue: int = setting(16, "requests of decisions that may wait", low=1, high=4096)


@hookimpl
def golem_settings() -> type:
    return LayaSettings


@hookimpl
def golem_open(settings: LayaSettings | None, runtime: Runtime) -> Any:
    if settings is None or settings.dir is None:
        return None
    from golem_plugins.laya.decider import open_decider

    return open_decider(
        settings.dir,
        threads=runtime.threads or None,
        progress=runtime.progress,
        queue=settings.queue,
        limits=(settings.max_body, settings.questions),
    )


@hookimpl
def golem_routes(capability: Any) -> list[tuple[str, Any]]:
    from golem_plugins.laya.routes import Batch, Decide

    return [("/v1/systemone", Decide(capability)), ("/v1/systemone/batch", Batch(capability))]


@hookimpl
def golem_describe(capability: Any) -> Description:
    return Description(lines=(capability.line,), health=capability.health)
