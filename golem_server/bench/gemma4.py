"""The header and the tensors of Gemma 4's shapes, whose blocks are not all alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from golem_server.bench.shapes import Gemma4Shape

_ROTATED = 0.25  # the share of a full block's head that turns
_STANDS_STILL = 1e30  # divisor of the angles of the rest


def header(shape: Gemma4Shape) -> dict[str, Any]:
    """The keys below ``gemma4.`` that other architectures lack or that differ by block."""
    sliding = shape.sliding
    keys = [shape.window_kv_heads if s else shape.kv_heads for s in sliding]
    hidden = [_hidden(shape, i) for i in range(shape.blocks)]
    found: dict[str, Any] = {
        "attention.head_count_kv": np.array(keys, np.int32),
        "attention.key_length_swa": shape.window_head,
        "attention.value_length_swa": shape.window_head,
        "rope.dimension_count_swa": shape.window_head,
        "rope.freq_base_swa": 10000.0,
        "attention.sliding_window_pattern": np.array(sliding, bool),
        "attention.shared_kv_layers": shape.shared,
        "embedding_length_per_layer_input": shape.per_block,
        "final_logit_softcapping": 30.0,
        "feed_forward_length": np.array(hidden, np.int32),
    }
    return {f"gemma4.{key}": value for key, value in found.items()}


def top(shape: Gemma4Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the matrices and vectors outside of blocks, the embedding apart."""
    if shape.per_block:
        wide = shape.blocks * shape.per_block
        yield "per_layer_token_embd", (shape.vocabulary, wide)
        yield "per_layer_model_proj", (wide, shape.width)
        yield "per_layer_proj_norm", (shape.per_block,)


def rope_divisors(shape: Gemma4Shape) -> np.ndarray:
    """(head / 2,) f32: 1 for the pairs of full blocks that turn, huge for the others."""
    pairs = shape.head_size // 2
    return np.where(np.arange(pairs) < pairs * _ROTATED, 1.0, _STANDS_STILL).astype(np.float32)


def block(shape: Gemma4Shape, i: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a block's tensors, ``.weight`` left out where they end in it."""
    width, hidden, sliding = shape.width, _hidden(shape, i), shape.sliding[i]
    head = shape.window_head if sliding else shape.head_size
    queries = shape.heads * head
    keys = (shape.window_kv_heads if sliding else shape.kv_heads) * head
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    found: dict[str, tuple[int, ...]] = dict.fromkeys(norms, (width,))
    found |= {"attn_q": (queries, width), "attn_q_norm": (head,)}
    if not shape.is_shared(i):
        found |= {"attn_k": (keys, width), "attn_k_norm": (head,)}
        if i in shape.values:
            found["attn_v"] = (keys, width)
    found |= {"attn_output": (width, queries), "layer_output_scale": (1,)}
    found |= {"ffn_gate": (hidden, width), "ffn_up": (hidden, width), "ffn_down": (width, hidden)}
    if shape.experts:
        count, inner = shape.experts, shape.expert_width
        found |= {
            "ffn_gate_inp": (count, width),
            "ffn_gate_inp.scale": (width,),
            "ffn_gate_up_exps": (count, 2 * inner, width),
            "ffn_down_exps": (count, width, inner),
            "ffn_down_exps.scale": (count,),
        }
        found |= dict.fromkeys(("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"), (width,))
    if shape.per_block:
        size = shape.per_block
        found |= {"inp_gate": (size, width), "proj": (width, size), "post_norm": (width,)}
    return found


def _hidden(shape: Gemma4Shape, i: int) -> int:
    return shape.shared_feed_forward if shape.is_shared(i) else shape.feed_forward
