"""The qwen3 and qwen3moe architectures: Qwen3, dense and as a mixture of experts."""

from golem_core.plugins import hookimpl
from golem_plugins.qwen3.model import Qwen3, Qwen3Moe


@hookimpl
def golem_architectures() -> dict[str, type]:
    return {"qwen3": Qwen3, "qwen3moe": Qwen3Moe}
