"""The measure of ref/truth.py over every block type: one small model, requantised to each.

A quantised file is dequantised to F32 once and written again by the peer's llama-quantize in every
type whose blocks fit its rows; what the originals lost is lost already, and does not matter: each
file is compared with its own weights. SmolLM2-135M has rows of 576 and 1536 and takes the types
with blocks of 32 and 64; Gemma 3 270M has rows of 640, 1024 and 2048 and shows those with blocks
of 128 and 256 (rows that do not fit fall back to a 32-block type).

Types under 2.5 bits break a model that was not trained for them, and a broken model turns any
rounding into a different text (llama.cpp's own kernels are then 2 nats from the truth). They are
given to the down-projections of the last third of the blocks only, with Q8_0 around them.

    python -m ref.requantise MODEL --peer FOLDER --text FILE --types Q4_0,Q8_0 [--out table.md]

Options of ref.truth apply: --truth, --who, --threads, --scratch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from golem_core.formats.gguf import GGUF
from ref.peer import Peer, PeerError
from ref.truth import WHO, Figures, Measure, ids_of

SMALL_BLOCKS = "Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,IQ4_NL,MXFP4,Q2_0,F16,BF16,F32"
LARGE_BLOCKS = "Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_XS,TQ1_0,TQ2_0,Q1_0"
COARSE = ("Q2_0", "TQ1_0", "TQ2_0", "Q1_0")
# Types that llama-quantize knows as file types by another name.
FILE_TYPE = {"Q3_K": "Q3_K_S", "Q4_K": "Q4_K_S", "Q5_K": "Q5_K_S"}


def recipe(kind: str, blocks: int) -> tuple[str, ...]:
    """File type and flags of llama-quantize for a model of so many blocks."""
    if kind in COARSE:
        last = "|".join(map(str, range(2 * blocks // 3, blocks)))
        return "Q8_0", "--pure", "--tensor-type", rf"blk\.({last})\.ffn_down={kind.lower()}"
    if kind == "MXFP4":  # its file type keeps all but experts in Q8_0
        every = ("--tensor-type", "weight=mxfp4", "--token-embedding-type", "mxfp4")
        return "MXFP4_MOE", "--pure", *every
    return FILE_TYPE.get(kind, kind), "--pure"


def matrices(path: Path) -> str:
    """What the matrices of a file are quantised to: ``Q4_0 210, Q8_0 1``."""
    with GGUF.open(path) as file:
        kinds = Counter(t.type.name for t in file.tensors.values() if len(t.shape) > 1)
    return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())


def requantised(peer: Peer, model: Path, kinds: list[str], scratch: Path) -> Iterator[tuple]:
    """(type, path, matrices) of each requantised file in turn; one exists at a time."""
    full, target = scratch / "source-f32.gguf", scratch / "requantised.gguf"
    peer.quantise(model, full, "F32")
    with GGUF.open(model) as file:
        blocks = file.metadata[f"{file.architecture}.block_count"]
    for kind in kinds:
        try:
            peer.quantise(full, target, *recipe(kind, blocks))
        except PeerError as error:
            reason = str(error).strip()[-200:]
            print(f"{kind}: llama-quantize makes none of it: …{reason}", file=sys.stderr)
        else:
            yield kind, target, matrices(target)
        finally:
            target.unlink(missing_ok=True)
    full.unlink()


def row(kind: str, made: str, figures: dict[str, Figures]) -> str:
    """One line of the Markdown table."""
    cells = [f"{f.mean_kl:.3g} / {100 * f.top1:.1f} %" for f in figures.values()]
    return f"| {kind} | {made} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", type=Path, required=True, help="folder of ref.build_peer")
    parser.add_argument("--text", type=Path, required=True, help="read without its last newline")
    parser.add_argument(
        "--types", default="small", help=f"small ({SMALL_BLOCKS}), large ({LARGE_BLOCKS}) or a list"
    )
    parser.add_argument("--truth", choices=("reference", "peer"), default="reference")
    parser.add_argument("--who", default="golem,llama.cpp", help=f"of {', '.join(WHO)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help="a folder with room for files and logits")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    kinds = {"small": SMALL_BLOCKS, "large": LARGE_BLOCKS}.get(args.types, args.types).split(",")
    names = args.who.split(",")
    if unknown := [name for name in names if name not in WHO]:
        parser.error(f"--who {unknown[0]}: possible are {', '.join(WHO)}")

    peer = Peer.open(args.peer)
    ids = ids_of(args.model, args.text.read_text().removesuffix("\n"))
    print(f"| type | matrices | {' | '.join(f'{n}: mean KL / top-1' for n in names)} |")
    print("|---" * (2 + len(names)) + "|", flush=True)
    table = {}
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        measure = Measure(Path(folder), peer, args.threads, args.truth)
        for kind, path, made in requantised(peer, args.model, kinds, Path(folder)):
            with measure.truth(path, ids) as truth:
                figures = {name: measure.figures(name, path, ids, truth) for name in names}
            table[kind] = {name: asdict(f) for name, f in figures.items()}
            print(row(kind, made, figures), flush=True)
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
