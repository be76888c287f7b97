"""Records what llama.cpp's prediction blocks guess on the tests' tiny models.

    python -m ref.prediction PEER

Writes tests/data/models/tiny_prediction.npz: "tokens" (n,) i32, and for each model the logits f32
(1 + STEPS, vocabulary) of the last token and of the guesses after it, each fed in turn.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from ref.peer import Peer
from tests.plugins import tiny, tiny_next

TARGET = Path(__file__).parent.parent / "tests/data/models/tiny_prediction.npz"
COUNT, STEPS = 70, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peer", type=Path, help="folder of ref.build_peer")
    peer = Peer.open(parser.parse_args().peer)
    tokens = np.random.default_rng(5).integers(0, 480, COUNT).astype("<i4")
    found = {"tokens": tokens}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        tokens.tofile(here / "ids")
        files = {n: tiny.write(here / n, n) for n in ("qwen35-mtp", "qwen35moe-mtp")}
        dense = tiny_next.moe_named_dense(files["qwen35moe-mtp"], here / "dense")
        files["qwen3next-mtp"] = tiny_next.packed_as_next(dense, here / "next", one_matrix=False)
        for name, path in files.items():
            peer.run("peer_prediction", path, here / "ids", here / "out", STEPS)
            logits = np.fromfile(here / "out", "<f4").reshape(COUNT + STEPS, -1)
            found[name] = logits[COUNT - 1 :]
    np.savez_compressed(TARGET, **found)


if __name__ == "__main__":
    main()
