"""A Laya checkpoint of random weights in ModernBERT-large's shape, and a request to time it with.

The tokenizer knows bytes and its special tokens, so a character is a token and the request has
exactly the positions that are asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HIDDEN, LAYERS, HEADS, VOCABULARY = 1024, 2624, 28, 16, 50368
SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


def write(folder: Path, seed: int = 1) -> Path:
    """The directory, as Hugging Face ships one: F16 weights, 843 MB."""
    folder = Path(folder)
    for name in ("encoder", "tokenizer"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _json(folder / "rl_agent_config.json", _AGENT)
    _json(folder / "encoder" / "config.json", _ENCODER)
    _json(folder / "tokenizer" / "tokenizer.json", _tokenizer())
    names = {f"{name.lower()[1:-1]}_token": name for name in SPECIALS}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}
    _json(folder / "tokenizer" / "tokenizer_config.json", about | names)
    _weights(folder / "model.safetensors", np.random.default_rng(seed))
    return folder


def request(positions: int = 225) -> dict[str, Any]:
    """Three questions, one of each type, over rows of so many tokens together."""
    questions = {
        "a": {"type": "noul", "instructions": "ab", "labels": {"false": "n", "true": "y"}},
        "b": {"type": "choice", "instructions": "a", "criteria": ["x", "y"]},
        "c": {"type": "score", "instructions": "a", "criteria": ["x", "y"]},
    }
    questions["a"]["criteria"] = {"false": "x", "true": "y"}
    # [CLS] "TYPE question: TEXT" [SEP], a mask and " OPTION" for each option, [SEP], state, [SEP]
    fixed = 0
    for question, options in zip(questions.values(), (5, 2, 11), strict=True):
        fixed += 4 + len(f"{question['type']} question: {question['instructions']}")
        fixed += 2 * (1 + options)
    state, rest = divmod(positions - fixed, 3)
    if state < 1:
        raise ValueError(f"{positions} positions; three questions take {fixed + 3}")
    questions["a"]["instructions"] += "b" * rest
    return {"state": "s" * state, "questions": questions}


_AGENT = {
    "encoder": "invented",
    "head_layers": 2,
    "max_len": 512,
    "head_max_len": 192,
    "act_costs": {"escalate": 0.5},
    "temperature": [1.0, 1.0, 1.0],
}
_ENCODER = {
    "architectures": ["ModernBertModel"],
    "model_type": "modernbert",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_activation": "gelu",
    "max_position_embeddings": 8192,
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "pad_token_id": 3,
    "dtype": "float32",
}


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _tokenizer() -> dict[str, Any]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
    vocabulary = {text: i for i, text in enumerate([*SPECIALS, *letters])}
    plain_flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, "special": True} | plain_flags
            for i, text in enumerate(SPECIALS)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level | {"trim_offsets": True},
        "decoder": byte_level | {"trim_offsets": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def _shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint."""
    d, f = WIDTH, HIDDEN
    made: dict[str, tuple[int, ...]] = {
        "encoder.embeddings.tok_embeddings.weight": (VOCABULARY, d),
        "encoder.embeddings.norm.weight": (d,),
        "encoder.final_norm.weight": (d,),
        "type_emb.weight": (3, d),
        "scorer.0.weight": (d,),
        "scorer.0.bias": (d,),
        "scorer.1.weight": (d, d),
        "scorer.1.bias": (d,),
        "scorer.3.weight": (1, d),
        "scorer.3.bias": (1,),
        "act_head.0.weight": (256, d + 4),
        "act_head.0.bias": (256,),
        "act_head.2.weight": (2, 256),
        "act_head.2.bias": (2,),
        "temperature": (3,),
    }
    for i in range(LAYERS):
        at = f"encoder.layers.{i}."
        if i:
            made[at + "attn_norm.weight"] = (d,)
        made[at + "attn.Wqkv.weight"] = (3 * d, d)
        made[at + "attn.Wo.weight"] = (d, d)
        made[at + "mlp_norm.weight"] = (d,)
        made[at + "mlp.Wi.weight"] = (2 * f, d)
        made[at + "mlp.Wo.weight"] = (d, f)
    for j in range(2):
        at = f"head.layers.{j}."
        made[at + "self_attn.in_proj_weight"] = (3 * d, d)
        made[at + "self_attn.in_proj_bias"] = (3 * d,)
        for name, shape in (
            ("self_attn.out_proj", (d, d)),
            ("linear1", (4 * d, d)),
            ("linear2", (d, 4 * d)),
        ):
            made[f"{at}{name}.weight"], made[f"{at}{name}.bias"] = shape, (shape[0],)
        for name in ("norm1", "norm2"):
            made[f"{at}{name}.weight"] = made[f"{at}{name}.bias"] = (d,)
    return made


def _weights(path: Path, rng: np.random.Generator) -> None:
    """model.safetensors: the header, then the tensors one after the other."""
    shapes, header, at = _shapes(), {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            if len(shape) == 1:
                norm = "norm" in name and name.endswith("weight")
                array = np.full(shape, 1.0 if norm or name == "temperature" else 0.01)
            else:
                array = rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
            file.write(array.astype(np.float16).tobytes())
