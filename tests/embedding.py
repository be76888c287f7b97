"""The tiny embedding model of tests/data, for every test that wants one."""

import gzip
import json
from pathlib import Path

from tests.paths import data


def write_tiny(folder: Path) -> Path:
    """A nomic-bert-moe of 4 blocks, width 64, 704 tokens, F16."""
    path = folder / "tiny-nomic-moe.f16.gguf"
    path.write_bytes(gzip.decompress(data("embed/tiny-nomic-moe.f16.gguf.gz").read_bytes()))
    return path


def cases() -> list[dict]:
    """Of 13 texts the ids and vectors that llama-server and PyTorch gave."""
    return json.loads(gzip.decompress(data("embed/nomic_vectors.json.gz").read_bytes()))
