"""Tiny models and their oracles, made once a session."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.paths import data
from tests.plugins import tiny


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Callable[..., Path]:
    """tiny_model(name, type="F32") -> the path of a tiny model."""
    folder, made = tmp_path_factory.mktemp("tiny"), {}

    def model(name: str, type: str = "F32") -> Path:
        if (name, type) not in made:
            path = folder / f"{name}-{type.lower()}.gguf"
            made[name, type] = tiny.write(path, name, type)
        return made[name, type]

    return model


@pytest.fixture(scope="session")
def oracle() -> dict:
    """Tokens and greedy answers by model; "logits" by model; "rel_rms_vs_f32" by file."""
    found = {"logits": {}, "rel_rms_vs_f32": {}}
    for name in ("tiny", "tiny_gemma4", "tiny_qwen35"):
        part = json.loads(data(f"models/{name}.json").read_text())
        found["rel_rms_vs_f32"] |= part.pop("rel_rms_vs_f32")
        found["logits"] |= np.load(data(f"models/{name}_logits.npz"))
        found |= part
    return found
