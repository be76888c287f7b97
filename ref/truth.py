"""How far an answer is from the truth: golem and llama.cpp, on the same file and the same text.

The truth of a quantised file is what its own weights say when nothing else is rounded: weights
dequantised to f32, f32 activations, f32 keys and values. That is golem's reference executor
(``--truth reference``) or, to check that one, llama.cpp on the file written out in F32
(``--truth peer``; its cache stays f16 unless told otherwise). Against it stand the distributions
of the next token after every position of the text: mean and 99th percentile of
KL(truth || answer) over the whole vocabulary, and the share of positions whose best token is the
truth's.

    python -m ref.truth MODEL... --peer FOLDER --text FILE [--recorded truth.json]
        [--truth reference|peer] [--who golem,golem-drawn,llama.cpp,llama.cpp-plain,...]
        [--threads 2] [--scratch FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.model import open_decoder
from golem_core.text.tokenizer import load_tokenizer
from ref.peer import Peer

ROWS = 32  # positions compared at a time: 32 rows of a 262,144 vocabulary are 67 MB in f64


@dataclass(frozen=True)
class Figures:
    """mean_kl, p99_kl in nats; top1 the share of equal best tokens; positions compared."""

    mean_kl: float
    p99_kl: float
    top1: float
    positions: int


def log_softmax(rows: np.ndarray) -> np.ndarray:
    """Natural log-probabilities of logits (…, V), in f64."""
    rows = rows.astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    return rows


def compare(truth: np.ndarray, logits: np.ndarray) -> Figures:
    """Figures of ``logits`` against ``truth``, both f32 (positions, V)."""
    if truth.shape != logits.shape:
        raise ValueError(f"truth is {truth.shape} and the logits are {logits.shape}")
    divergence, same = [], 0
    for at in range(0, len(truth), ROWS):
        p, q = log_softmax(truth[at : at + ROWS]), log_softmax(logits[at : at + ROWS])
        divergence.append((np.exp(p) * (p - q)).sum(-1))
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
    kl = np.concatenate(divergence)
    return Figures(float(kl.mean()), float(np.percentile(kl, 99)), same / len(kl), len(kl))


def against_recorded(truth: np.ndarray, top: list) -> float:
    """Largest difference of log-probability to recorded ``top[i] = [[id, logprob], …]``."""
    worst = 0.0
    for row, best in zip(truth, top, strict=True):
        mine = log_softmax(row)
        worst = max(worst, max(abs(float(mine[id]) - value) for id, value in best))
    return worst


def golem_logits(
    model: Path,
    ids: np.ndarray,
    out: Path,
    *,
    executor: str = "cpu",
    drawn: bool = False,
    threads: int | None = None,
) -> np.ndarray:
    """golem's logits after each id, f32 (ids, V), memory-mapped from ``out``.

    ``drawn`` feeds the columns one by one in the role of drawn ones; otherwise the text is read
    as a prompt, in passes of as many columns as a pass can score.
    """
    opened = open_decoder(
        model, context=-(-len(ids) // 64) * 64, threads=threads, executor=executor
    )
    try:
        width = 1 if drawn else min(opened.pass_width, opened.program.axes["m"])
        with open(out, "wb") as file:
            for first in range(0, len(ids), width):
                count = min(width, len(ids) - first)
                columns = np.arange(count, dtype=np.int32)
                inputs = {
                    "runs": np.array([[0, 0, count, first, int(not drawn)]], np.int32),
                    "tokens": np.asarray(ids[first : first + count], np.int32),
                    "positions": columns + np.int32(first),
                    "outputs": columns,
                }
                opened.executor.run(inputs)["logits"].astype("<f4").tofile(file)
    finally:
        opened.close()
    return np.memmap(out, "<f4", "r").reshape(len(ids), -1)


# What is measured, by name: the arguments of golem_logits or of Peer.logits.
WHO = {
    "golem": {},
    "golem-drawn": {"drawn": True},
    "llama.cpp": {},
    "llama.cpp-plain": {"repack": False},
    "llama.cpp-noflash": {"flash": "off"},
    "llama.cpp-drawn": {"width": 1},
}


class Measure:
    """One text read by several programs; logits pass through files in ``scratch``."""

    def __init__(self, scratch: Path, peer: Peer | None, threads: int, truth: str):
        self.scratch, self.peer, self.threads, self.kind = scratch, peer, threads, truth

    def _peer(self) -> Peer:
        if self.peer is None:
            raise SystemExit("truth: llama.cpp is asked for; --peer FOLDER says where it was built")
        return self.peer

    @contextmanager
    def truth(self, model: Path, ids: np.ndarray) -> Iterator[np.ndarray]:
        """The truth's logits, f32 (ids, V), while the context lasts."""
        out, full = self.scratch / "truth.f32", self.scratch / "full.gguf"
        try:
            if self.kind == "reference":
                yield golem_logits(model, ids, out, executor="reference")
            else:
                self._peer().quantise(model, full, "F32")
                yield self._peer().logits(
                    full, ids, out, threads=self.threads, flash="off", repack=False
                )
        finally:
            out.unlink(missing_ok=True)
            full.unlink(missing_ok=True)

    def figures(self, who: str, model: Path, ids: np.ndarray, truth: np.ndarray) -> Figures:
        """Figures of one of ``WHO`` on a file."""
        read = golem_logits if who.startswith("golem") else self._peer().logits
        out = self.scratch / f"{who}.f32"
        try:
            return compare(truth, read(model, ids, out, threads=self.threads, **WHO[who]))
        finally:
            out.unlink(missing_ok=True)


def ids_of(model: Path, text: str) -> np.ndarray:
    """The text's ids by the file's own tokenizer, with the specials it puts around a text."""
    with GGUF.open(model) as file:
        return np.array(load_tokenizer(file.metadata).encode(text, add_special=True), np.int32)


def recorded_of(path: Path, ids: np.ndarray) -> dict:
    """The entry of a truth.json that was recorded on these ids, or an empty one."""
    entries = json.loads(path.read_text())["models"].values()
    return next((e for e in entries if e["ids"] == list(map(int, ids))), {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--peer", type=Path, help="folder of ref.build_peer")
    parser.add_argument("--text", type=Path, required=True, help="read without its last newline")
    parser.add_argument("--recorded", type=Path, help="truth.json to check the truth against")
    parser.add_argument("--truth", choices=("reference", "peer"), default="reference")
    parser.add_argument("--who", default="golem,golem-drawn,llama.cpp,llama.cpp-plain")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help="a folder with room for the logits")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    names = args.who.split(",")
    if unknown := [name for name in names if name not in WHO]:
        parser.error(f"--who {unknown[0]}: possible are {', '.join(WHO)}")

    text = args.text.read_text().removesuffix("\n")
    peer = Peer.open(args.peer) if args.peer else None
    table: dict[str, dict] = {}
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        measure = Measure(Path(folder), peer, args.threads, args.truth)
        for model in args.models:
            ids = ids_of(model, text)
            print(f"{model.name}: {len(ids)} positions, truth: {args.truth}")
            with measure.truth(model, ids) as truth:
                if args.recorded and (entry := recorded_of(args.recorded, ids)):
                    worst = against_recorded(truth, entry["top"])
                    print(f"  largest difference to the recorded ten best: {worst:.4f}")
                for name in names:
                    got = measure.figures(name, model, ids, truth)
                    table.setdefault(model.name, {})[name] = asdict(got)
                    print(
                        f"  {name:20} mean KL {got.mean_kl:.3g}  p99 {got.p99_kl:.3g}  "
                        f"top-1 {100 * got.top1:.2f} %",
                        flush=True,
                    )
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
