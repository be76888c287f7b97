"""Drawing tokens: llama-server's sampler chain and its random numbers, in C."""

from golem_core.sample._sampler import (
    Generator,
    NonFiniteLogits,
    Sampler,
    Workspace,
    refusal,
)
from golem_core.sample.dry import DryHeads, dry_heads
from golem_core.sample.params import NAMES, ORDER, RANDOM_SEED, ParamError, SamplerParams
from golem_core.sample.probs import Probs

__all__ = [
    "NAMES",
    "ORDER",
    "RANDOM_SEED",
    "DryHeads",
    "Generator",
    "NonFiniteLogits",
    "ParamError",
    "Probs",
    "Sampler",
    "SamplerParams",
    "Workspace",
    "dry_heads",
    "refusal",
]
