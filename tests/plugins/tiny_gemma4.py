"""Tiny Gemma 4 models: the draws that llama.cpp's recordings were made on (see tiny.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from golem_server.bench.gemma4 import block, rope_divisors
from golem_server.bench.shapes import Gemma4Shape

_LARGE = Gemma4Shape(
    "gemma4", "tiny", 256, 6, 4, 1, 128, 512, 576, context=4096, window=16, window_head=64,
    window_kv_heads=2, keys_as_values=True,
)  # fmt: skip
_SMALL = Gemma4Shape(
    "gemma4", "tiny", 256, 10, 4, 1, 128, 512, 576, context=4096, window=16, window_head=64,
    period=5, shared=5, shared_feed_forward=1024, per_block=256,
)  # fmt: skip
_MIXTURE = Gemma4Shape(
    "gemma4", "tiny", 256, 6, 4, 1, 128, 512, 576, context=4096, window=16, window_head=64,
    window_kv_heads=2, keys_as_values=True, experts=8, used=2, expert_width=256,
)  # fmt: skip
SHAPES = {"gemma4-e2b": _SMALL, "gemma4-moe": _MIXTURE, "gemma4-dense": _LARGE}

Draw = Callable[..., np.ndarray]


def weights(shape: Gemma4Shape, matrix: Draw, rng: np.random.Generator) -> Iterator[tuple]:
    """The tensors of a tiny model in the order they are drawn: (name, array)."""

    def vector(size: int, mean: float = 1.0, spread: float = 0.1) -> np.ndarray:
        return (mean + spread * rng.standard_normal(size, dtype=np.float32)).astype(np.float32)

    width = shape.width
    yield "token_embd", matrix(shape.vocabulary, width, gain=0.3)
    yield "output_norm", vector(width)
    yield "rope_freqs", rope_divisors(shape)
    if shape.per_block:
        wide = shape.blocks * shape.per_block
        gain = np.sqrt(shape.blocks)
        yield "per_layer_token_embd", matrix(shape.vocabulary, wide, gain=gain)
        yield "per_layer_model_proj", matrix(wide, width, gain=4.0)
        yield "per_layer_proj_norm", vector(shape.per_block)
    for i in range(shape.blocks):
        sizes, first = block(shape, i), ("attn_norm", "post_attention_norm", "ffn_norm")
        order = [*first, "post_ffw_norm", "attn_q", "attn_q_norm", "attn_k", "attn_v"]
        order += ["attn_k_norm", "attn_output", "layer_output_scale", "ffn_gate", "ffn_up"]
        order += ["ffn_down", "ffn_gate_inp", "ffn_gate_inp.scale", "ffn_gate_up_exps"]
        order += ["ffn_down_exps", "ffn_down_exps.scale", "pre_ffw_norm_2", "post_ffw_norm_1"]
        order += ["post_ffw_norm_2", "inp_gate", "proj", "post_norm"]
        assert set(sizes) <= set(order)
        for name in (n for n in order if n in sizes):
            size = sizes[name]
            if len(size) > 1:
                array = matrix(*size, gain=4.0 if name == "ffn_gate_inp" else 1.0)
            elif name == "attn_q_norm":  # scores are not scaled, so this keeps them small
                array = vector(size[0], size[0] ** -0.5, 0.01)
            elif name == "layer_output_scale":
                array = vector(1, 0.9, 0.05)
            else:
                array = vector(size[0], 16.0 if name == "ffn_gate_inp.scale" else 1.0)
            yield f"blk.{i}.{name}", array
