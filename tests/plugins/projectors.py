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
