"""Models of a real shape and quantisation with random weights: for speed, never for text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.blocks import BlockType, by_name, random_blocks
from golem_core.formats.writer import TensorSource, write_gguf
from golem_server.bench import gemma4, prism, qwen35
from golem_server.bench.quantised import MIXTURES, PRISM, type_of
from golem_server.bench.shapes import SHAPES, Gemma4Shape, Qwen35Shape, Shape
from golem_server.bench.vocabulary import byte_level, gemma_pieces, sentencepiece

_CHUNK = 1 << 26  # bytes made at once


def parse(text: str) -> tuple[str, str]:
    """ "qwen3-4b:q4_0" -> its shape's and mixture's names. Raises ValueError with what there is."""
    shape, _, mixture = text.lower().partition(":")
    mixture = {"Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "Q3_K": "Q3_K_M"}.get(
        mixture.upper(), mixture.upper() or "Q4_K_M"
    )
    for what, asked, known in (("shape", shape, SHAPES), ("type", mixture, MIXTURES)):
        if asked not in known:
            near = difflib.get_close_matches(asked, known, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"{what} {asked!r} of {text!r}: {hint}there are {' '.join(known)}")
    return shape, mixture


def write_invented(path: Path, shape: Shape, mixture: str, seed: int = 0) -> Path:
    """Writes a model of random weights that golem and llama.cpp both load."""
    return write_gguf(path, metadata(shape, mixture), tensors(shape, mixture, seed))


def metadata(shape: Shape, mixture: str) -> dict[str, Any]:
    """The header of such a model."""
    a = shape.architecture
    keys: dict[str, Any] = {
        "general.architecture": a,
        "general.type": "model",
        "general.name": f"{a} {shape.size}, random weights",
        "general.size_label": shape.size,
        "general.file_type": MIXTURES[mixture][0],
        "general.quantization_version": 2,
        f"{a}.context_length": shape.context,
        f"{a}.embedding_length": shape.width,
        f"{a}.block_count": shape.blocks,
        f"{a}.feed_forward_length": shape.feed_forward,
        f"{a}.attention.head_count": shape.heads,
        f"{a}.attention.head_count_kv": shape.kv_heads,
        f"{a}.attention.key_length": shape.head_size,
        f"{a}.attention.value_length": shape.head_size,
        f"{a}.attention.layer_norm_rms_epsilon": float(shape.eps),
        f"{a}.rope.freq_base": float(shape.base),
        f"{a}.rope.dimension_count": shape.head_size,
        f"{a}.vocab_size": shape.vocabulary,
    }
    if shape.window:
        keys[f"{a}.attention.sliding_window"] = shape.window
    if shape.experts:
        keys[f"{a}.expert_count"] = shape.experts
        keys[f"{a}.expert_used_count"] = shape.used
        keys[f"{a}.expert_feed_forward_length"] = shape.expert_width
    if isinstance(shape, Gemma4Shape):
        return keys | gemma4.header(shape) | gemma_pieces(shape.vocabulary)
    if isinstance(shape, Qwen35Shape):
        keys |= qwen35.header(shape)
        if mixture in PRISM:
            keys |= prism.contract(shape, mixture, _sizes(shape))
    if a == "gemma3":
        return keys | sentencepiece(shape.vocabulary)
    return keys | byte_level(shape.vocabulary, shape.pre)


def tensors(shape: Shape, mixture: str, seed: int) -> Iterator[TensorSource]:
    """The tensors of such a model, made when they are written."""
    rng = np.random.default_rng(seed)
    for name, size in _top(shape).items():
        yield _tensor(shape, mixture, rng, name, size)
    factors = None
    if isinstance(shape, Gemma4Shape):
        factors = gemma4.rope_divisors(shape)
        for name, size in gemma4.top(shape):
            yield _tensor(shape, mixture, rng, name, size)
    elif shape.rope_factors:
        factors = np.geomspace(1.0, 8.0, shape.head_size // 2, dtype=np.float32)
    if factors is not None:
        yield "rope_freqs.weight", factors.shape, by_name("F32"), factors
    for block in range(shape.blocks):
        for name, size in _block(shape, block).items():
            yield _tensor(shape, mixture, rng, name, size, block)


def _top(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors outside of blocks that every decoder has."""
    table = (shape.vocabulary, shape.width)
    found: dict[str, tuple[int, ...]] = {"output_norm": (shape.width,), "token_embd": table}
    return found if shape.tied else found | {"output": table}


def _sizes(shape: Qwen35Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Full names and shapes of all tensors of a delta net."""
    yield from ((qwen35.full_name(name), size) for name, size in _top(shape).items())
    for i in range(shape.blocks):
        for name, size in _block(shape, i).items():
            yield f"blk.{i}.{qwen35.full_name(name)}", size


def _block(shape: Shape, block: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a block's tensors."""
    if isinstance(shape, Gemma4Shape):
        return gemma4.block(shape, block)
    if isinstance(shape, Qwen35Shape):
        return qwen35.block(shape, block)
    width, head = shape.width, shape.head_size
    queries, keys = shape.heads * head, shape.kv_heads * head
    found: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "attn_q": (queries, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, queries),
        "ffn_norm": (width,),
    }
    if shape.architecture != "llama":
        found |= {"attn_q_norm": (head,), "attn_k_norm": (head,)}
    if shape.architecture == "gemma3":
        found |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
    if shape.experts:
        count, hidden = shape.experts, shape.expert_width
        return found | {
            "ffn_gate_inp": (count, width),
            "ffn_gate_exps": (count, hidden, width),
            "ffn_up_exps": (count, hidden, width),
            "ffn_down_exps": (count, width, hidden),
        }
    hidden = shape.feed_forward
    return found | {
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }


def _tensor(
    shape: Shape,
    mixture: str,
    rng: np.random.Generator,
    name: str,
    size: tuple[int, ...],
    block: int | None = None,
) -> TensorSource:
    full = qwen35.full_name(name)
    full = full if block is None else f"blk.{block}.{full}"
    if len(size) == 1:
        # A delta net's decays are negative: with others its state grows past all numbers.
        return full, size, by_name("F32"), np.full(size, -1.0 if name == "ssm_a" else 1.0, "f4")
    kind = type_of(mixture, shape, name, size[-1], block or 0)
    return full, size, kind, lambda: _rows(size, kind, rng)


def _rows(size: tuple[int, ...], kind: BlockType, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The tensor's rows in turn, so that no large tensor is ever in memory whole."""
    rows, width = int(np.prod(size[:-1])), size[-1]
    step = max(1, _CHUNK // kind.row_bytes(width))
    for start in range(0, rows, step):
        yield random_blocks((min(step, rows - start), width), kind, rng, std=width**-0.5)
