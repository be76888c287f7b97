"""golem against its peers on this machine: alternated runs, medians, and their ratio.

Every figure is a ratio of two programs that ran in turns within one invocation: same file, same
number of threads, same minutes. Peers are folders that ref.build_peer filled; with several, the
ratio is to the better one of each line.

    python -m benchmarks.compare MODEL... --peer FOLDER [--peer FOLDER] [--build-peer]
        [--threads 2] [--rounds 3] [--tests pp512,tg64] [--clients 1,2,4,8] [--no-golem]

``--tests`` names bench runs: ``ppN`` reads a prompt of N, ``tgN`` draws N, and ``@D`` after it
does so at depth D (``tg64@4096``). ``--clients ""`` or ``--tests ""`` leave a part out.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.bandwidth import PlainRead
from benchmarks.clients import ClientError, Round, round_of
from benchmarks.programs import Golem, Llama, ProgramError, bench_samples, serving
from ref.peer import MANIFEST, Peer

PROMPT_WORDS, DRAWN = 256, 64
BUSY = 0.7  # a load average above which somebody else must be computing
Samples = dict[str, dict[str, list[float]]]  # test -> program -> values of all rounds


def bench_flags(tests: list[str]) -> Iterator[list]:
    """The fewest bench runs that cover the tests, as flags of llama-bench and golem-bench."""
    by_depth = defaultdict(lambda: ([], []))
    for test in tests:
        match = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?", test)
        if match is None:
            raise SystemExit(f"compare: {test!r} is no test; write pp512, tg64 or tg64@4096")
        kind, count, depth = match.groups()
        by_depth[depth or "0"][kind == "tg"].append(count)
    for depth, (prompts, draws) in by_depth.items():
        flags = ["-p", ",".join(prompts) or "0", "-n", ",".join(draws) or "0"]
        yield flags if depth == "0" else [*flags, "-d", depth]


@contextmanager
def peer_may_fail(program) -> Iterator[None]:
    """A peer that cannot run something leaves a gap in the table; golem has to run everything."""
    try:
        yield
    except (ProgramError, ClientError, OSError) as error:
        if isinstance(program, Golem):
            raise
        print(f"{program.name} failed: {str(error).strip()[-300:]}", file=sys.stderr)


def bench_rounds(programs, model: Path, tests: list[str], args) -> Samples:
    """All bench tests of one model, the programs in turns."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    common = ["-t", args.threads, "-r", args.repetitions]
    for number in range(args.rounds):
        for program in programs if number % 2 == 0 else programs[::-1]:
            for flags in bench_flags(tests):
                with peer_may_fail(program):
                    for test, values in bench_samples(program, model, [*flags, *common]).items():
                        samples[test][program.name] += values
    return samples


def http_turn(program, model: Path, clients: int, number: int, args) -> list[Round]:
    """One server's turn: a short round to warm up, then the repetitions, with new prompts."""
    settings = {"parallel": clients, "context": 1024, "threads": args.threads}
    with serving(program, model, **settings) as port:
        round_of(port, clients, 16, 8, seed=number)
        seeds = range(1 + number * 100, 1 + number * 100 + args.repetitions)
        return [round_of(port, clients, PROMPT_WORDS, DRAWN, seed) for seed in seeds]


def http_rounds(programs, model: Path, counts: list[int], args) -> Samples:
    """All client counts of one model, a server of each program in turns."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for clients in counts:
        rounds: dict[str, list[Round]] = defaultdict(list)
        for number in range(args.rounds):
            for program in programs if number % 2 == 0 else programs[::-1]:
                with peer_may_fail(program):
                    rounds[program.name] += http_turn(program, model, clients, number, args)
        label = f"{clients} client{'s' * (clients > 1)}"
        for name, values in rounds.items():
            samples[f"{label}, drawn + read"][name] = [r.total for r in values]
            samples[f"{label}, drawing"][name] = [r.drawing for r in values]
            samples[f"{label}, reading"][name] = [r.reading for r in values]
    return samples


def table(title: str, samples: Samples, names: list[str]) -> str:
    """Medians (tokens a second) in Markdown; the ratio is golem's to the best peer's."""
    golem = Golem().name
    head = ["test", *names] + ["ratio"] * (golem in names and len(names) > 1)
    lines = [f"\n{title}\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for test, by_name in samples.items():
        medians = {name: median(by_name[name]) for name in names if by_name[name]}
        cells = [f"{medians[n]:.1f}" if n in medians else "-" for n in names]
        peers = [value for name, value in medians.items() if name != golem]
        if "ratio" in head:
            both = golem in medians and peers
            cells.append(f"{medians[golem] / max(peers):.2f}" if both else "-")
        lines.append(f"| {test} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bandwidth_line(path: Path, threads: int) -> str:
    """Plain reads of the model file's own pages: what drawing could reach if it only read."""
    import numpy as np

    reader = PlainRead([np.memmap(path, np.uint8, "r")], threads)
    for _ in range(20):
        reader.read()
    limit = reader.best * 1e9 / path.stat().st_size
    note = "" if reader.steady else " (unsteady: this run is void)"
    return f"plain read {reader.best:.1f} GB/s{note}: the whole file {limit:.1f} times a second"


def peers_of(folders: list[Path], build: bool) -> list[Llama]:
    """The peers in these folders, built first where asked for and not there."""
    for folder in folders:
        if build and not (folder / MANIFEST).exists():
            subprocess.run([sys.executable, "-m", "ref.build_peer", folder], check=True)
    return [Llama(Peer.open(folder)) for folder in folders]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--peer", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--build-peer", action="store_true", help="build a peer that is missing")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3, help="turns of every program (default 3)")
    parser.add_argument("--repetitions", type=int, default=3, help="samples a turn (default 3)")
    parser.add_argument("--tests", default="pp512,tg64", help="default pp512,tg64")
    parser.add_argument("--clients", default="1,2,4,8", help="default 1,2,4,8")
    parser.add_argument("--no-golem", action="store_true", help="only the peers")
    args = parser.parse_args()
    tests = [t for t in args.tests.split(",") if t]
    clients = [int(c) for c in args.clients.split(",") if c]

    programs = [*([] if args.no_golem else [Golem()]), *peers_of(args.peer, args.build_peer)]
    names = [program.name for program in programs]
    if len(set(names)) < len(names) or not names:
        raise SystemExit(f"compare: needs programs with different names, not {names}")
    load = os.getloadavg()[0]
    print(f"{args.threads} threads, load average before: {load:.2f}")
    if load > BUSY:
        print("others use this machine: whoever waits at more barriers loses, ratios mean nothing")
    for model in args.models:
        print(f"\n## {model.name}\n\n{bandwidth_line(model, args.threads)}", flush=True)
        if tests:
            samples = bench_rounds(programs, model, tests, args)
            print(table("Without HTTP (tokens a second):", samples, names), flush=True)
        if clients:
            samples = http_rounds(programs, model, clients, args)
            print(table("Through HTTP (tokens a second):", samples, names), flush=True)


if __name__ == "__main__":
    main()
