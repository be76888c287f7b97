"""golem against its peers on this machine: alternated runs, medians, and their ratio.

Every figure is a ratio of two programs that ran in turns within one invocation: same file, same
number of threads, same minutes. Peers are folders that ref.build_peer filled; with several, the
ratio is to the better one of each line. A round whose plain reads of memory vary by more than 15 %
was disturbed by others and is left out.

    python -m benchmarks.compare MODEL... --peer FOLDER [--peer FOLDER] [--build-peer]
        [--only 'pp*,tg64,4 clients*'] [--quick] [--list] [--threads 2] [--rounds 3]
        [--models FOLDER] [--json FILE]

MODEL is a file or random weights of a shape, such as qwen3-4b:q4_0, which are written once to the
folder of ``--models``. ``--only`` takes patterns of the lines that ``--list`` shows; ``--quick`` is
one round of a few of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.bandwidth import SPREAD, PlainRead
from benchmarks.clients import ClientError
from benchmarks.lines import LINES, Line, measure
from benchmarks.programs import Golem, Llama, ProgramError
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.shapes import SHAPES
from ref.peer import MANIFEST, Peer, PeerError

BUSY = 0.7  # a load average above which somebody else must be computing
READ = 256 << 20  # bytes a plain read takes, or the file where that is smaller
QUICK = ("pp512", "tg64", "4x tg32@0", "4 clients*")
Samples = dict[str, dict[str, list[float]]]  # line -> program -> values of all rounds


@contextmanager
def peer_may_fail(program) -> Iterator[None]:
    """A peer that cannot run something leaves a gap in the table; golem has to run everything."""
    try:
        yield
    except (ProgramError, PeerError, ClientError, OSError) as error:
        if isinstance(program, Golem):
            raise
        print(f"{program.name} failed: {str(error).strip()[-300:]}", file=sys.stderr)


def chosen(patterns: list[str]) -> list[Line]:
    """The lines whose names fit one of the patterns, in their order."""
    for pattern in patterns:
        if not any(fnmatchcase(line.name, pattern) for line in LINES):
            names = ", ".join(line.name for line in LINES)
            raise SystemExit(f"compare: {pattern!r} fits none of: {names}")
    return [line for line in LINES if any(fnmatchcase(line.name, p) for p in patterns)]


def rounds(programs, model: Path, lines: list[Line], args) -> tuple[Samples, int]:
    """Samples of all rounds that nobody disturbed, the programs in turns; how many were void."""
    kept: Samples = defaultdict(lambda: defaultdict(list))
    data = np.memmap(model, np.uint8, "r")[: READ // 64 * 64]
    void = 0
    for number in range(args.rounds):
        reader = PlainRead([data], args.threads)
        made = []
        for program in programs if number % 2 == 0 else programs[::-1]:
            for _ in range(5):
                reader.read()
            with peer_may_fail(program):
                for name, values in measure(program, model, lines, args.threads, number):
                    made.append((name, program.name, values))
        for _ in range(5):
            reader.read()
        if disturbed(reader.rates, 5):
            void += 1
            if void < args.rounds:
                continue
            print("every round was disturbed: the last one is shown, and means little")
        for name, who, values in made:
            kept[name][who] += values
    return kept, void


def disturbed(rates: list[float], group: int) -> bool:
    """Whether the best reads of each few vary by more than SPREAD over the round."""
    best = [max(rates[at : at + group]) for at in range(0, len(rates), group)]
    return 1 - min(best) / max(best) > SPREAD


def table(lines: list[Line], samples: Samples, names: list[str]) -> str:
    """Medians in Markdown; the ratio is how many times better golem's is than the best peer's."""
    golem = Golem().name
    head = ["line", "unit", *names] + ["ratio"] * (golem in names and len(names) > 1)
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for line in lines:
        by_name = samples.get(line.name, {})
        medians = {name: median(by_name[name]) for name in names if by_name.get(name)}
        cells = [f"{medians[n]:.1f}" if n in medians else "-" for n in names]
        if "ratio" in head:
            cells.append(_ratio(line, medians.pop(golem, None), list(medians.values())))
        rows.append(f"| {line.name} | {line.unit} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _ratio(line: Line, golem: float | None, peers: list[float]) -> str:
    if golem is None or not peers or line.better == 0:
        return "-"
    ratio = golem / max(peers) if line.better > 0 else min(peers) / golem
    return f"{ratio:.2f}"


def peers_of(folders: list[Path], build: bool) -> list[Llama]:
    """The peers in these folders, built first where asked for and not there."""
    for folder in folders:
        if build and not (folder / MANIFEST).exists():
            subprocess.run([sys.executable, "-m", "ref.build_peer", folder], check=True)
    return [Llama(Peer.open(folder)) for folder in folders]


def file_of(model: str, folder: Path) -> Path:
    """The file of a model, written first where it is a shape with random weights."""
    if Path(model).exists():
        return Path(model)
    try:
        shape, mixture = parse(model)
    except ValueError as error:
        raise SystemExit(f"compare: {model} is no file, and {error}") from None
    path = folder / f"{shape}-{mixture.lower()}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_invented(path.with_suffix(".part"), SHAPES[shape], mixture).rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--peer", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--build-peer", action="store_true", help="build a peer that is missing")
    parser.add_argument("--models", dest="folder", type=Path, default=Path("models"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3, help="turns of every program (default 3)")
    parser.add_argument("--only", default="*", help="patterns of lines, by commas (default all)")
    parser.add_argument("--quick", action="store_true", help=f"one round of {', '.join(QUICK)}")
    parser.add_argument("--list", action="store_true", help="show the lines there are")
    parser.add_argument("--no-golem", action="store_true", help="only the peers")
    parser.add_argument("--json", type=Path, help="write all samples here")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{line.name:28} {line.unit:6} {line.what}" for line in LINES))
        return
    if args.quick:
        args.rounds = 1
    lines = chosen(list(QUICK) if args.quick else args.only.split(","))
    programs = [*([] if args.no_golem else [Golem()]), *peers_of(args.peer, args.build_peer)]
    names = [program.name for program in programs]
    if len(set(names)) < len(names) or not names:
        raise SystemExit(f"compare: needs programs with different names, not {names}")
    load = os.getloadavg()[0]
    print(f"{args.threads} threads, load average before: {load:.2f}")
    if load > BUSY:
        print("others use this machine: whoever waits at more barriers loses, ratios mean nothing")
    everything = {}
    for model in args.models:
        path = file_of(model, args.folder)
        samples, void = rounds(programs, path, lines, args)
        left_out = f", {void} of {args.rounds} rounds void" if void else ""
        print(f"\n## {path.name}{left_out}\n\n{table(lines, samples, names)}", flush=True)
        everything[path.name] = samples
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
