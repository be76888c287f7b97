"""Tiny models of every architecture, drawn from a seed, and running them.

tests/data/models holds what llama.cpp b11434 (plain kernels, F32 weights, f16 cache) computed on
these very weights: the order and spread of the draws below are part of the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.blocks import by_name, quantise
from golem_core.formats.gguf import GGUF
from golem_core.formats.writer import write_gguf
from golem_core.model import Decoder
from golem_core.plugins import load_plugins
from golem_core.reference import ReferenceExecutor
from golem_server.bench.invented import metadata
from golem_server.bench.qwen35 import full_name
from golem_server.bench.shapes import Gemma4Shape, Qwen35Shape, Shape
from tests.plugins import tiny_gemma4, tiny_qwen35

_QWEN3 = Shape("qwen3", "tiny", 256, 3, 4, 2, 128, 512, 480, tied=False, context=4096)
SHAPES = {
    "llama": replace(
        _QWEN3, architecture="llama", head_size=64, base=1e5, eps=1e-5, context=2048, pre="smollm"
    ),
    "qwen3": _QWEN3,
    "qwen3-tied": replace(_QWEN3, tied=True),
    "qwen3moe": replace(_QWEN3, architecture="qwen3moe", experts=8, used=2, expert_width=256),
    "gemma3": replace(
        _QWEN3, architecture="gemma3", blocks=6, kv_heads=1, vocabulary=576, window=16
    ),
    **tiny_gemma4.SHAPES,
    **tiny_qwen35.SHAPES,
}
_GAIN = {"llama": 16.0, "qwen3": 16.0, "qwen3-tied": 4.8, "qwen3moe": 16.0, "gemma3": 0.3}


def weights(name: str) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a tiny model in the order they are drawn."""
    rng = np.random.default_rng(1234)
    shape = SHAPES[name]

    def matrix(*size: int, gain: float = 1.0) -> np.ndarray:
        return rng.standard_normal(size, dtype=np.float32) * np.float32(gain / np.sqrt(size[-1]))

    def norm(size: int) -> np.ndarray:
        return 1.0 + 0.1 * rng.standard_normal(size, dtype=np.float32)

    if isinstance(shape, Gemma4Shape):
        yield from tiny_gemma4.weights(shape, matrix, rng)
        return
    if isinstance(shape, Qwen35Shape):
        yield from tiny_qwen35.weights(shape, matrix, rng)
        return
    width, head, hidden = shape.width, shape.head_size, shape.feed_forward
    queries, keys = shape.heads * head, shape.kv_heads * head
    yield "token_embd", matrix(shape.vocabulary, width, gain=_GAIN[name])
    yield "output_norm", norm(width)
    if not shape.tied:
        yield "output", matrix(shape.vocabulary, width)
    gemma, heads_normed = shape.architecture == "gemma3", shape.architecture != "llama"
    for i in range(shape.blocks):
        b = f"blk.{i}."
        yield b + "attn_norm", norm(width)
        if gemma:
            for part in ("post_attention_norm", "ffn_norm", "post_ffw_norm"):
                yield b + part, norm(width)
        for part, out in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
            yield b + part, matrix(out, width)
        yield b + "attn_output", matrix(width, queries)
        if heads_normed:
            yield b + "attn_q_norm", norm(head)
            yield b + "attn_k_norm", norm(head)
        if not gemma:
            yield b + "ffn_norm", norm(width)
        stack = (shape.experts,) if shape.experts else ()
        suffix, inner = ("_exps", shape.expert_width) if shape.experts else ("", hidden)
        if shape.experts:
            yield b + "ffn_gate_inp", matrix(shape.experts, width)
        yield b + f"ffn_gate{suffix}", matrix(*stack, inner, width)
        yield b + f"ffn_up{suffix}", matrix(*stack, inner, width)
        yield b + f"ffn_down{suffix}", matrix(*stack, width, inner)


def write(path: Path, name: str, type: str = "F32", keys: dict[str, Any] | None = None) -> Path:
    """Writes a tiny model; matrices in ``type``. keys change the header (None removes one)."""
    header = metadata(SHAPES[name], type) | (keys or {})
    header = {key: value for key, value in header.items() if value is not None}
    kind, f32 = by_name(type), by_name("F32")

    def tensor(name: str, array: np.ndarray):
        plain = array.ndim == 1 or name.endswith(("ffn_gate_inp", "ssm_conv1d"))
        plain = plain or name == "per_layer_model_proj"
        data = array.astype(np.float32) if plain else quantise(array, kind)
        return full_name(name), array.shape, f32 if plain else kind, data

    return write_gguf(path, header, (tensor(n, a) for n, a in weights(name)))


def rewrite(
    source: Path,
    target: Path,
    keys: dict[str, Any] | None = None,
    drop: Sequence[str] = (),
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """A copy of a model with other header keys (None removes one) or F32 tensors."""
    with GGUF.open(source) as file:
        header = {k: v for k, v in {**file.metadata, **(keys or {})}.items() if v is not None}
        kept = {n: (t.shape, t.type, np.array(t.data)) for n, t in file.tensors.items()}
        for name, array in (tensors or {}).items():
            kept[name] = (array.shape, by_name("F32"), array.astype(np.float32))
        items = [(name, *tensor) for name, tensor in kept.items() if name not in drop]
        return write_gguf(target, header, items)


def decoder(path: Path, **scaling: Any) -> Decoder:
    """The model class of a file, as the plugins give it."""
    file = GGUF.open(path)
    return load_plugins().architecture(file.architecture)(file, scaling=scaling)


def executor(
    kind: str,
    model: Decoder,
    *,
    slots: int = 1,
    context: int = 256,
    pass_width: int = 64,
    threads: int = 2,
    **more: Any,
) -> Any:
    """An executor of the model: "reference" or "cpu", which alone takes more."""
    program = model.program(pass_width, pass_width)
    maxima = {"n": pass_width, "m": pass_width}
    if kind == "reference":
        return ReferenceExecutor(program, slots=slots, context=context, maxima=maxima)
    from golem_core.cpu import CpuExecutor

    settings = {"slots": slots, "context": context, "maxima": maxima, "threads": threads}
    return CpuExecutor(program, **settings, **more)


def run(
    executor: Any,
    *parts: tuple[int, int, Sequence[int], int],
    wanted: Sequence[str] = ("logits",),
) -> dict[str, np.ndarray]:
    """One pass of parts (slot, index, tokens, role), every column scored. -> copies."""
    runs, tokens = [], []
    for slot, index, ids, role in parts:
        runs.append([slot, len(tokens), len(ids), index, role])
        tokens += list(ids)
    inputs = {
        "runs": np.array(runs, np.int32),
        "tokens": np.array(tokens, np.int32),
        "outputs": np.arange(len(tokens), dtype=np.int32),
    }
    return {name: array.copy() for name, array in executor.run(inputs, wanted).items()}


def relative_rms(found: np.ndarray, wanted: np.ndarray) -> float:
    """rms(found - wanted) / rms(wanted)."""
    error = np.asarray(found, np.float64) - wanted
    return float(np.sqrt((error**2).mean() / (np.asarray(wanted, np.float64) ** 2).mean()))
