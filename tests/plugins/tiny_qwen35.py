"""Tiny gated delta nets: the draws that llama.cpp's recordings were made on (see tiny.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from golem_server.bench.qwen35 import block
from golem_server.bench.shapes import Qwen35Shape

_DENSE = Qwen35Shape(
    "qwen35", "tiny", 256, 8, 4, 2, 128, 512, 480, tied=False, base=1e7, context=4096, pre="qwen35",
    delta_keys=2, delta_values=4, state=128, rotated=32, sections=(6, 5, 5),
)  # fmt: skip
SHAPES = {
    "qwen35": _DENSE,
    "qwen35moe": replace(
        _DENSE, architecture="qwen35moe", experts=8, used=2, expert_width=256, shared_width=256
    ),
}
SHAPES |= {f"{name}-mtp": replace(shape, prediction=1) for name, shape in SHAPES.items()}

Draw = Callable[..., np.ndarray]


def weights(shape: Qwen35Shape, matrix: Draw, rng: np.random.Generator) -> Iterator[tuple]:
    """The tensors of a tiny model in the order they are drawn: (name, array)."""

    def vector(size: int, mean: float = 1.0, spread: float = 0.1) -> np.ndarray:
        return (mean + spread * rng.standard_normal(size, dtype=np.float32)).astype(np.float32)

    table = shape.vocabulary, shape.width
    yield "token_embd", matrix(*table, gain=np.sqrt(shape.width))
    yield "output_norm", vector(shape.width)
    yield "output", matrix(*table)
    for i in range(shape.blocks + shape.prediction):
        for name, size in block(shape, i).items():
            if name == "ssm_a":
                array = -np.exp(rng.uniform(-2.0, 1.5, size[0])).astype(np.float32)
            elif name == "ssm_dt.bias":
                array = vector(size[0], 0.0, 1.0)
            elif name == "ffn_gate_inp_shexp":
                array = vector(size[0], 0.0, 0.06)
            else:
                array = matrix(*size) if len(size) > 1 else vector(size[0])
            yield f"blk.{i}.{name}", array
