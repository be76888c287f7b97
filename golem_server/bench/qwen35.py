"""The header and the tensors of the gated delta nets' shapes, whose blocks are of two kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from golem_server.bench.shapes import Qwen35Shape


def header(shape: Qwen35Shape) -> dict[str, Any]:
    """The keys below the architecture that others lack or that differ."""
    found: dict[str, Any] = {
        "rope.dimension_count": shape.rotated,
        "rope.dimension_sections": np.array([*shape.sections, 0], np.int32),
        "full_attention_interval": shape.period,
        "ssm.conv_kernel": shape.taps,
        "ssm.state_size": shape.state,
        "ssm.group_count": shape.delta_keys,
        "ssm.time_step_rank": shape.delta_values,
        "ssm.inner_size": shape.inner,
    }
    if shape.experts:
        found["expert_shared_feed_forward_length"] = shape.shared_width
    if shape.prediction:
        found["block_count"] = shape.blocks + shape.prediction
        found["nextn_predict_layers"] = shape.prediction
    return {f"{shape.architecture}.{key}": value for key, value in found.items()}


def block(shape: Qwen35Shape, i: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a block's tensors, ``.weight`` left out where they end in it."""
    width, head = shape.width, shape.head_size
    found: dict[str, tuple[int, ...]] = {"attn_norm": (width,), "post_attention_norm": (width,)}
    if shape.attends(i):
        queries, keys = shape.heads * head, shape.kv_heads * head
        found |= {"attn_q": (2 * queries, width), "attn_k": (keys, width), "attn_v": (keys, width)}
        found |= {"attn_output": (width, queries), "attn_q_norm": (head,), "attn_k_norm": (head,)}
    else:
        values = shape.delta_values
        found |= {"attn_qkv": (shape.mixed, width), "attn_gate": (shape.inner, width)}
        found |= {"ssm_conv1d": (shape.mixed, shape.taps), "ssm_dt.bias": (values,)}
        found |= {"ssm_a": (values,), "ssm_beta": (values, width), "ssm_alpha": (values, width)}
        found |= {"ssm_norm": (shape.state,), "ssm_out": (width, shape.inner)}
    if i >= shape.blocks:
        found |= {"nextn.eh_proj": (width, 2 * width), "nextn.enorm": (width,)}
        found |= {"nextn.hnorm": (width,), "nextn.shared_head_norm": (width,)}
    if not shape.experts:
        hidden = shape.feed_forward
        dense = {"ffn_gate": (hidden, width), "ffn_up": (hidden, width)}
        return found | dense | {"ffn_down": (width, hidden)}
    count, hidden, shared = shape.experts, shape.expert_width, shape.shared_width
    found |= {"ffn_gate_inp": (count, width), "ffn_gate_exps": (count, hidden, width)}
    found |= {"ffn_up_exps": (count, hidden, width), "ffn_down_exps": (count, width, hidden)}
    found |= {"ffn_gate_inp_shexp": (width,), "ffn_gate_shexp": (shared, width)}
    return found | {"ffn_up_shexp": (shared, width), "ffn_down_shexp": (width, shared)}


def full_name(name: str) -> str:
    """The name of a tensor in the file: some of a delta net's end otherwise than in ".weight"."""
    return name if name.endswith((".scale", ".bias", "ssm_a")) else f"{name}.weight"
