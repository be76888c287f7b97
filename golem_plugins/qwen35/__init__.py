"""The gated delta nets: Qwen3.5, 3.6 and 3.8, dense and as a mixture of experts, Qwen3-Next."""

from golem_core.plugins import hookimpl
from golem_plugins.qwen35.model import Qwen3Next, Qwen35


@hookimpl
def golem_architectures() -> dict[str, type]:
    return {"qwen35": Qwen35, "qwen3.8": Qwen35, "qwen35moe": Qwen35, "qwen3next": Qwen3Next}
