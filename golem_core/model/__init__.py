"""Chat models: the base of every architecture, and opening a file as one of them."""

from golem_core.model.decoder import Decoder
from golem_core.model.errors import ModelError
from golem_core.model.hyper import Hyper
from golem_core.model.memory import Estimate, memory_limit
from golem_core.model.open import Model, estimate, open_decoder
from golem_core.model.rope import RopeScaling
from golem_core.model.tensors import Tensors

__all__ = [
    "Decoder",
    "Estimate",
    "Hyper",
    "Model",
    "ModelError",
    "RopeScaling",
    "Tensors",
    "estimate",
    "memory_limit",
    "open_decoder",
]
