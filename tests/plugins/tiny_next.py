"""Files made of the tiny gated delta nets': packed as Qwen3-Next, and with texts that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from golem_core.formats.gguf import GGUF
from tests.plugins import tiny


def packed_as_next(path: Path, target: Path, one_matrix: bool) -> Path:
    """A tiny qwen35 file as qwen3next packs it: grouped value heads, beta and alpha together.

    one_matrix: queries, keys, values and gates in ssm_in, as the first files had them.
    """
    with GGUF.open(path) as file:
        tensors = {name: t.numpy() for name, t in file.tensors.items()}
        keys = {k.replace("qwen35.", "qwen3next."): v for k, v in file.metadata.items()}
    keys |= {"general.architecture": "qwen3next"}
    keys |= dict.fromkeys(k for k in file.metadata if k.startswith("qwen35."))
    size, count, heads = 128, 4, 2
    order = np.array([0, 2, 1, 3])  # the tiled place of each grouped head
    rows = (order[:, None] * size + np.arange(size)).reshape(-1)
    before, drop = np.arange(2 * heads * size), []
    mixed = np.concatenate([before, before[-1] + 1 + rows])
    for name in [n for n in tensors if n.endswith("ssm_out.weight")]:
        b = name.removesuffix("ssm_out.weight")
        tensors[name] = tensors[name][:, rows]
        tensors[b + "attn_qkv.weight"] = qkv = tensors[b + "attn_qkv.weight"][mixed]
        tensors[b + "ssm_conv1d.weight"] = tensors[b + "ssm_conv1d.weight"][mixed]
        tensors[b + "attn_gate.weight"] = z = tensors[b + "attn_gate.weight"][rows]
        for part in ("ssm_a", "ssm_dt.bias"):
            tensors[b + part] = tensors[b + part][order]
        beta, alpha = (tensors[f"{b}ssm_{s}.weight"][order] for s in ("beta", "alpha"))
        drop += [f"{b}ssm_beta.weight", f"{b}ssm_alpha.weight"]
        pairs = [m.reshape(heads, count // heads, -1) for m in (beta, alpha)]
        tensors[b + "ssm_ba.weight"] = np.concatenate(pairs, 1).reshape(2 * count, -1)
        if one_matrix:
            parts = np.split(qkv, (heads * size, 2 * heads * size))
            each = [part.reshape(heads, -1, qkv.shape[1]) for part in (*parts, z)]
            tensors[b + "ssm_in.weight"] = np.concatenate(each, 1).reshape(-1, qkv.shape[1])
            drop += [f"{b}attn_qkv.weight", f"{b}attn_gate.weight"]
    return tiny.rewrite(path, target, keys, drop, tensors)


def moe_named_dense(path: Path, target: Path) -> Path:
    """A qwen35moe file under the dense architecture's name, which reads experts as well."""
    with GGUF.open(path) as file:
        names = [k for k in file.metadata if k.startswith("qwen35moe.")]
        keys = {k.replace("moe", ""): file.metadata[k] for k in names}
    return tiny.rewrite(path, target, keys | {"general.architecture": "qwen35"})


def of_the_last_token(path: Path, target: Path, rest: float = 0.0) -> Path:
    """A model with a prediction block, every block of which adds little: the next token follows
    from the last one, and the prediction block computes the same of it.

    rest: what is left of what blocks add. 0: of the last token alone, so guesses are always right.
    """
    with GGUF.open(path) as file:
        tensors = {name: t.numpy() for name, t in file.tensors.items()}
    silent = ("attn_output.weight", "ssm_out.weight", "ffn_down.weight")
    for name, array in tensors.items():
        if name.endswith(silent):
            tensors[name] = rest * array
        if name.endswith(("nextn.enorm.weight", "output_norm.weight", "shared_head_norm.weight")):
            tensors[name] = np.ones_like(array)
    for name in [n for n in tensors if n.endswith("eh_proj.weight")]:
        width = len(tensors[name])
        tensors[name] = np.eye(width, 2 * width, dtype=np.float32)
    return tiny.rewrite(path, target, tensors=tensors)
