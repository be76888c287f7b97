"""Records how far llama.cpp is from the truth on the tests' tiny mixtures of experts.

    python -m ref.mixtures PEER

Where experts of a model that was never trained are nearly tied, rounding chooses between them, and
one text says little: here it is the mean over several. Writes tests/data/models/mixtures.json: by
file the mean KL divergence of llama.cpp's next-token distributions (plain kernels) from those of
golem's reference executor, and the standard error of that mean.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from ref.peer import Peer
from tests.paths import external
from tests.plugins import tiny
from tests.plugins.test_mixtures import FILES, TARGET, kl, texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peer", type=Path, help="folder of ref.build_peer")
    peer = Peer.open(parser.parse_args().peer)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            path = external(f"llamacpp/{name}.gguf")
            model = tiny.decoder(path)
            truth = tiny.executor("reference", model)
            each = []
            for ids in texts(model.vocabulary):
                out = Path(folder) / "logits"
                logits = np.array(peer.logits(path, ids, out, repack=False))
                each.append(kl(logits, tiny.run(truth, (0, 0, ids, 1))["logits"]))
            error = np.std(each, ddof=1) / np.sqrt(len(each))
            found[name] = [round(float(x), 6) for x in (np.mean(each), error)]
            print(name, found[name], flush=True)
    TARGET.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
