"""The rotations PrismML's ternary files say their matrices were folded with, for random ones too.

They cost time at every product, so a model without them would be faster than the real one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from golem_core.model.rotations import PREFIX
from golem_server.bench.quantised import PRISM, type_of
from golem_server.bench.shapes import Qwen35Shape

_BLOCK = 1024
_TABLE = "token_embd.weight"


def contract(
    shape: Qwen35Shape, mixture: str, matrices: Iterable[tuple[str, tuple[int, ...]]]
) -> dict[str, Any]:
    """The header's keys of a mixture of PrismML's. matrices: full names and shapes of all."""
    widths = {
        name: size[-1]
        for name, size in matrices
        if len(size) > 1 and type_of(mixture, shape, name.split(".")[-2], size[-1]).name in PRISM
    }
    signs = np.random.default_rng(0)
    different = sorted(set(widths.values()))
    keys = {
        "version": 1,
        "block_size": math.gcd(_BLOCK, *different),
        "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension",
        "sign_mode": "explicit",
        "sign_widths": np.array(different, np.int32),
        "sign_values": signs.choice(np.array([-1, 1], np.int32), sum(different)),
        "weight_names": [name for name in widths if name != _TABLE],
        "inverse_weight_names": [_TABLE],
        "gdn_v_grouped": True,
    }
    return {PREFIX + key: value for key, value in keys.items()}
