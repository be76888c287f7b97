"""Tiny projectors' files of any width, with pictures and recordings to show to them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.blocks import by_name
from golem_core.formats.gguf import GGUF, write_gguf
from tests.paths import data

PROJECTIONS = ("mm.input_projection.weight", "mm.a.input_projection.weight")
PROJECTIONS += ("mm.2.weight", "mm.2.bias")  # of Qwen's


def write_projector(
    path: Path, width: int, name: str = "clip_audio", *, without: str = "", **changed: Any
) -> Path:
    """One of tests/data's projectors with rows of another width, drawn at random.

    name: clip_audio (both towers), std (eyes alone) and unified are Gemma 4's; or qwen35. without:
    "vision" or "audio", to leave that tower out. changed: keys of the header below ``clip.``, with
    _ for a dot between sections (``vision_projector_type``).
    """
    plain = path.with_suffix(".plain")
    family = "" if name == "qwen35" else "gemma4_"
    plain.write_bytes(gzip.decompress(data(f"media/mmproj_{family}{name}.gguf.gz").read_bytes()))
    rng = np.random.default_rng(width)
    with GGUF.open(plain) as file:
        keys = dict(file.metadata.items())
        for section in ("vision", "audio"):
            if f"clip.{section}.projection_dim" in keys:
                keys[f"clip.{section}.projection_dim"] = width
        if without:
            keys[f"clip.has_{without}_encoder"] = False
        for key, value in changed.items():
            keys["clip." + key.replace("_", ".", 1)] = value
        tensors = []
        for tensor in file.tensors.values():
            blocks, shape = tensor.data, tensor.shape
            if tensor.name in PROJECTIONS:
                shape = (width, *shape[1:])
                drawn = rng.standard_normal(shape).astype(np.float32) * 0.2
                blocks = drawn.view(np.uint8)
            tensors.append((tensor.name, shape, by_name("F32"), np.array(blocks)))
        write_gguf(path, keys, tensors)
    plain.unlink()
    return path


def picture(seed: int = 1, width: int = 40, height: int = 30, kind: str = "PNG") -> bytes:
    """A random picture's file."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, kind)
    return made.getvalue()


def recording(seed: int = 1, seconds: float = 0.6, rate: int = 16000, kind: str = "WAV") -> bytes:
    """A random recording's file."""
    import soundfile

    samples = np.random.default_rng(seed).uniform(-0.5, 0.5, int(seconds * rate))
    made = io.BytesIO()
    soundfile.write(made, samples, rate, format=kind)
    return made.getvalue()


CONTROLS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>", "<|think|>"]
CONTROLS += ["<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>", "<|video|>"]
CONTROLS += ["<|tool>", "<tool|>"]
WRITTEN = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>"]
WRITTEN += ["<tool_response|>", '<|"|>']


def write_seeing_model(path: Path, tiny: Path) -> Path:
    """A tiny gemma4 model with a vocabulary of the real one's kind: marks, bytes and letters."""
    texts = [*CONTROLS, *WRITTEN, *(f"<0x{i:02X}>" for i in range(256))]
    kinds = [3] * len(CONTROLS) + [4] * len(WRITTEN) + [6] * 256
    letters = ["\u2581", "\n", "th", "he", *(chr(i) for i in range(33, 127))]
    texts, kinds = texts + letters, kinds + [1] * len(letters)
    with GGUF.open(tiny) as file:
        size = next(t.shape[0] for t in file.tensors.values() if t.name == "token_embd.weight")
        unused = size - len(texts)
        texts += [f"<unused{i}>" for i in range(unused)]
        kinds += [5] * unused
        keys = {k: v for k, v in file.metadata.items() if not k.startswith("tokenizer.")}
        keys |= {
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.tokens": texts,
            "tokenizer.ggml.scores": np.zeros(size, np.float32),
            "tokenizer.ggml.token_type": np.array(kinds, np.int32),
            "tokenizer.ggml.merges": ["t h", "h e"],
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 6,
            "tokenizer.ggml.padding_token_id": 0,
            "tokenizer.ggml.unknown_token_id": 3,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.add_space_prefix": False,
        }
        tensors = [(t.name, t.shape, t.type, np.array(t.data)) for t in file.tensors.values()]
        return write_gguf(path, keys, tensors)


def error(found, wanted) -> float:
    """Largest difference over the largest value."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def squares(image, side):
    """(3, h, w) -> (squares, 3 · side²), row by row, channel after channel; written anew here."""
    _, high, wide = image.shape
    return np.array(
        [
            image[:, y : y + side, x : x + side].reshape(-1)
            for y in range(0, high, side)
            for x in range(0, wide, side)
        ]
    )
