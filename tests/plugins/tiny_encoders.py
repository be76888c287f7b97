"""Tiny embedding models of every architecture and pooling, drawn from a seed.

tests/data/embed/tiny_encoders.npz holds what llama-server answered on these very weights
(ref/embed_vectors.py): the order and spread of the draws below are part of the oracle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.blocks import by_name
from golem_core.formats.writer import write_gguf
from tests.plugins import tiny

WIDTH, BLOCKS, HEADS, HIDDEN, CONTEXT = 64, 3, 4, 96, 128
NORMAL, CONTROL = 1, 3
_WORDS = ["the", "of", "and", "to", "in", "is", "cat", "dog", "sat", "on", "mat", "rain", "wet"]
_WORDS += ["un", "##happi", "##ness", "##ing", "##d"]
_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*_SPECIALS, *"abcdefghijklmnopqrstuvwxyz.,!?", *_WORDS]
# architecture, pooling_type, whether a classification head follows
KINDS: dict[str, tuple[str, int, bool]] = {
    "bert-cls": ("bert", 2, False),
    "bert-mean": ("bert", 1, False),
    "bert-rank": ("bert", 4, True),
    "nomic-bert": ("nomic-bert", 1, False),
    "qwen3-last": ("qwen3", 3, False),
    "qwen3-mean": ("qwen3", 1, False),
}
TEXTS = ["the cat sat on the mat.", "Unhappiness!", "rain, rain and wet dogs?", "un", "a " * 60]


def write(path: Path, kind: str) -> Path:
    """The file of a kind."""
    architecture, pooling, ranks = KINDS[kind]
    if architecture == "qwen3":
        return tiny.write(path, "qwen3", keys={"qwen3.pooling_type": pooling})
    f32 = by_name("F32")
    tensors = [(name, a.shape, f32, a) for name, a in _tensors(architecture, ranks).items()]
    return write_gguf(path, _header(architecture, pooling), tensors)


def _header(a: str, pooling: int) -> dict[str, Any]:
    spelled = [
        text if text in _SPECIALS else text[2:] if text.startswith("##") else "\u2581" + text
        for text in TOKENS
    ]
    types = np.full(len(TOKENS), NORMAL, np.int32)
    types[: len(_SPECIALS)] = CONTROL
    return {
        "general.architecture": a,
        "general.name": f"tiny {a}",
        f"{a}.block_count": BLOCKS,
        f"{a}.context_length": CONTEXT,
        f"{a}.embedding_length": WIDTH,
        f"{a}.feed_forward_length": HIDDEN,
        f"{a}.attention.head_count": HEADS,
        f"{a}.attention.layer_norm_epsilon": 1e-12,
        f"{a}.attention.causal": False,
        f"{a}.rope.freq_base": 1000.0,
        f"{a}.pooling_type": pooling,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "jina-v2-en",
        "tokenizer.ggml.tokens": spelled,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.mask_token_id": 4,
    }


def _tensors(architecture: str, ranks: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(20)
    made: dict[str, np.ndarray] = {}

    def matrix(name: str, out: int, width: int, bias: bool = True, gain: float = 1.0) -> None:
        draw = rng.standard_normal((out, width), np.float32)
        made[f"{name}.weight"] = draw * np.float32(gain / np.sqrt(width))
        if bias:
            made[f"{name}.bias"] = 0.1 * rng.standard_normal(out, np.float32)

    def norm(name: str) -> None:
        made[f"{name}.weight"] = 1 + 0.1 * rng.standard_normal(WIDTH, np.float32)
        made[f"{name}.bias"] = 0.1 * rng.standard_normal(WIDTH, np.float32)

    matrix("token_embd", len(TOKENS), WIDTH, bias=False, gain=8.0)
    matrix("token_types", 2, WIDTH, bias=False)
    nomic = architecture == "nomic-bert"
    if not nomic:
        matrix("position_embd", CONTEXT, WIDTH, bias=False, gain=4.0)
    norm("token_embd_norm")
    for i in range(BLOCKS):
        b = f"blk.{i}."
        if nomic:
            matrix(b + "attn_qkv", 3 * WIDTH, WIDTH, bias=False, gain=1.5)
        else:
            for part in "qkv":
                matrix(b + f"attn_{part}", WIDTH, WIDTH, gain=1.5)
        matrix(b + "attn_output", WIDTH, WIDTH, bias=not nomic)
        norm(b + "attn_output_norm")
        if nomic:
            matrix(b + "ffn_gate", HIDDEN, WIDTH, bias=False)
        matrix(b + "ffn_up", HIDDEN, WIDTH, bias=not nomic)
        matrix(b + "ffn_down", WIDTH, HIDDEN, bias=not nomic)
        norm(b + "layer_output_norm")
    if ranks:
        matrix("cls", WIDTH, WIDTH)
        matrix("cls.output", 1, WIDTH, gain=3.0)
    return made
