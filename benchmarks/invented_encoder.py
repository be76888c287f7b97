"""A nomic-embed-text-v2-moe of random weights: the real shape, and a vocabulary nobody speaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from golem_core.formats.blocks import by_name, random_blocks
from golem_core.formats.writer import write_gguf

WIDTH, BLOCKS, HEADS, HIDDEN, EXPERTS, USED = 768, 12, 12, 3072, 8, 2
VOCABULARY, CONTEXT = 250048, 512
NORMAL, UNKNOWN, CONTROL = 1, 2, 3


def write(
    path: Path,
    kind: str = "F16",
    seed: int = 1,
    *,
    blocks: int = BLOCKS,
    vocabulary: int = VOCABULARY,
) -> Path:
    """The file, in the layout llama.cpp's converter writes; kind: the type of its matrices."""
    a = "nomic-bert-moe"
    tokens = ["<s>", "<pad>", "</s>", "<unk>"]
    tokens += [f"\u2581w{i}" for i in range(vocabulary - len(tokens))]
    types = np.full(vocabulary, NORMAL, np.int32)
    types[:4] = CONTROL, CONTROL, CONTROL, UNKNOWN
    header = {
        "general.architecture": a,
        "general.name": "invented",
        f"{a}.block_count": blocks,
        f"{a}.context_length": CONTEXT,
        f"{a}.embedding_length": WIDTH,
        f"{a}.feed_forward_length": HIDDEN,
        f"{a}.attention.head_count": HEADS,
        f"{a}.attention.layer_norm_epsilon": 1e-5,
        f"{a}.attention.causal": False,
        f"{a}.rope.freq_base": 10000.0,
        f"{a}.expert_count": EXPERTS,
        f"{a}.expert_used_count": USED,
        f"{a}.moe_every_n_layers": 2,
        f"{a}.pooling_type": 1,
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.zeros(vocabulary, np.float32),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.remove_extra_whitespaces": True,
        "tokenizer.ggml.token_type_count": 1,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
    }
    return write_gguf(path, header, list(_tensors(kind, seed, blocks, vocabulary)))


def _tensors(kind: str, seed: int, blocks: int, vocabulary: int) -> Iterator[tuple]:
    rng = np.random.default_rng(seed)

    def matrix(name: str, *shape: int, type: str = kind):
        rows = int(np.prod(shape[:-1]))
        blocks = random_blocks((rows, shape[-1]), type, rng, shape[-1] ** -0.5)
        return name, shape, by_name(type), blocks.reshape(*shape[:-1], -1)

    def vector(name: str, size: int, value: float):
        return name, (size,), by_name("F32"), np.full(size, value, np.float32)

    def norm(name: str):
        yield vector(f"{name}.weight", WIDTH, 1.0)
        yield vector(f"{name}.bias", WIDTH, 0.01)

    yield matrix("token_embd.weight", vocabulary, WIDTH)
    yield matrix("token_types.weight", 1, WIDTH, type="F32")
    yield from norm("token_embd_norm")
    for i in range(blocks):
        b = f"blk.{i}."
        yield matrix(b + "attn_qkv.weight", 3 * WIDTH, WIDTH)
        yield vector(b + "attn_qkv.bias", 3 * WIDTH, 0.01)
        yield matrix(b + "attn_output.weight", WIDTH, WIDTH)
        yield vector(b + "attn_output.bias", WIDTH, 0.01)
        yield from norm(b + "attn_output_norm")
        if i % 2:
            yield matrix(b + "ffn_gate_inp.weight", EXPERTS, WIDTH, type="F32")
            yield matrix(b + "ffn_up_exps.weight", EXPERTS, HIDDEN, WIDTH)
            yield matrix(b + "ffn_down_exps.weight", EXPERTS, WIDTH, HIDDEN)
        else:
            yield matrix(b + "ffn_up.weight", HIDDEN, WIDTH)
            yield vector(b + "ffn_up.bias", HIDDEN, 0.01)
            yield matrix(b + "ffn_down.weight", WIDTH, HIDDEN)
            yield vector(b + "ffn_down.bias", WIDTH, 0.01)
        yield from norm(b + "layer_output_norm")
