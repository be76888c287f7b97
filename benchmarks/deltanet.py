"""Layers of Qwen3.5-27B with random weights: golem against its peers, types among themselves.

    python -m benchmarks.deltanet --peer FOLDER [--peer FOLDER] [--shape qwen35-27b] [--blocks 8]
        [--types q4_k_m,tq2_0,q2_0] [--own pq2_0,ptq1_0,q1_0] [--rounds 3] [--threads 2]
        [--processor] [--models FOLDER]

Of the shape's blocks only some are made, and the same part of its vocabulary, so the head weighs
what it weighs in the whole model. Programs and types take turns within a round. ``--own`` names
types that no peer reads; their rates stand beside golem's own TQ2_0. On a machine that others use
too, ``--processor`` compares the processor's seconds of one thread instead of tokens by the clock.
PrismML's types come with the rotations their files have.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.compare import peer_may_fail, peers_of
from benchmarks.programs import Golem, Llama
from golem_server.bench import arguments as kinds
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.report import STEADY
from golem_server.bench.shapes import SHAPES, Shape
from golem_server.commands import Flags
from ref.peer import PeerError

SLOW = {"q2_0": (16, 4)}  # a peer's prompt and draws: llama.cpp has no kernel of it for x86
OWN = "tq2_0"  # what golem's other few-bit types are compared with
WANTED = {"prompt": 2.0, "drawing": 1.05, "own": 0.9}
Samples = dict[tuple[str, str, str], list[float]]  # (type, work, program) -> tokens a second


@dataclass(frozen=True)
class Work:
    """What one run of a bench does: a prompt, or draws."""

    name: str
    count: int

    @property
    def flags(self) -> list:
        prompt = self.count if self.name == "prompt" else 0
        return ["-p", prompt, "-n", self.count - prompt]


def part_of(shape: Shape, blocks: int) -> Shape:
    """So many of its blocks, and of its vocabulary in proportion."""
    return replace(shape.cut(blocks), vocabulary=shape.vocabulary * blocks // shape.blocks)


def file_of(name: str, blocks: int, kind: str, folder: Path) -> Path:
    """The file of a part of a shape, written where it is not there yet."""
    shape, mixture = parse(f"{name}:{kind}")
    path = folder.absolute() / f"{shape}-{blocks}-blocks-{mixture.lower()}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        write_invented(part, part_of(SHAPES[shape], blocks), mixture).rename(path)
    return path


def works(program: Golem | Llama, kind: str, args) -> Iterator[Work]:
    """A prompt and draws, fewer for a peer that would take minutes for them."""
    few = SLOW.get(kind) if isinstance(program, Llama) else None
    prompt, drawn = few or (args.prompt, args.drawn)
    yield Work("prompt", prompt)
    yield Work("drawing", drawn)


def by_the_clock(program, path: Path, work: Work, threads: int) -> tuple[list[float], list]:
    """Tokens a second of every repetition, and what share of a plain read golem's were."""
    repetitions = 1 if work.count <= 16 else 3 if work.name == "drawing" else 2
    flags = [*work.flags, "-t", threads, "-r", repetitions]
    (record,) = program.records(path, flags)
    share, spread = record.get("read_share"), record.get("read_spread")
    return record["samples_ts"], [] if share is None else [(share, spread)]


def by_processor(program, path: Path, work: Work) -> list[float]:
    """Tokens a second of one thread's user time: what more repetitions cost than one."""
    spent, more = [], 1 if isinstance(program, Llama) and work.name == "prompt" else 4
    for repetitions in (1, 1 + more):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        program.records(path, [*work.flags, "-t", 1, "-r", repetitions])
        spent.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return [more * work.count / max(spent[1] - spent[0], 1e-9)]


def one_round(programs, kind: str, path: Path, args, samples: Samples, shares: dict) -> None:
    """Both works of every program on one file."""
    for program in programs:
        for work in works(program, kind, args):
            with peer_may_fail(program):
                if args.processor:
                    rates = by_processor(program, path, work)
                else:
                    rates, share = by_the_clock(program, path, work, args.threads)
                    shares[kind] += share
                samples[kind, work.name, program.name] += rates


def against_peers(samples: Samples, types: list[str], names: list[str], shares: dict) -> str:
    """Medians in Markdown, golem's ratio to the best peer, and what it should be."""
    golem, *peers = names
    rows = [f"| type | work | {' | '.join(names)} | ratio | wanted | of a plain read |"]
    rows.append("|---" * (len(names) + 5) + "|")
    for kind in types:
        for work in ("prompt", "drawing"):
            found = {n: median(samples[kind, work, n]) for n in names if samples[kind, work, n]}
            cells = [f"{found[n]:.2f}" if n in found else "-" for n in names]
            best = max((found[n] for n in peers if n in found), default=0.0)
            cells.append(f"{found[golem] / best:.2f}" if best else "-")
            share = share_of(shares[kind]) if work == "drawing" else ""
            rows.append(f"| {kind} | {work} | {' | '.join(cells)} | {WANTED[work]} | {share} |")
    return "\n".join(rows)


def among_themselves(samples: Samples, types: list[str], golem: str, shares: dict) -> str:
    """Rates of golem's types beside those of its TQ2_0."""
    rows = [
        f"| type | work | {OWN} | this type | ratio | wanted | of a plain read |",
        "|---" * 7 + "|",
    ]
    for kind in types:
        for work in ("prompt", "drawing"):
            one, other = (median(samples[k, work, golem]) for k in (OWN, kind))
            share = share_of(shares[kind]) if work == "drawing" else ""
            rows.append(
                f"| {kind} | {work} | {one:.2f} | {other:.2f} | {other / one:.2f} "
                f"| {WANTED['own']} | {share} |"
            )
    return "\n".join(rows)


def share_of(found: list[tuple[float, float]]) -> str:
    """The best pass's share of a plain read among the rounds; "?" where no round was quiet, or it
    is more than the reads gave."""
    quiet = [share for share, spread in found if spread <= STEADY]
    if not found:
        return ""
    best = max(quiet or [share for share, _ in found])
    return f"{100 * best:.0f} %" + "?" * (not quiet or best > 1)


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    add, mixtures = parser.add_argument, kinds.several(kinds.mixture, none=True)
    add("--peer", action="append", default=[], metavar="FOLDER")
    add("--build-peer", action="store_true", help="build a peer that is missing")
    add("--shape", type=kinds.among(SHAPES), default="qwen35-27b")
    add("--blocks", type=kinds.whole(), default=8, help="of the shape's blocks (8)")
    add("--types", type=mixtures, default="q4_k_m,tq2_0,q2_0", help="compared with the peers")
    add("--own", type=mixtures, default="pq2_0,ptq1_0,q1_0", help=f"compared with golem's {OWN}")
    add("--prompt", type=kinds.whole(), default=512, help="tokens of a prompt (512)")
    add("--drawn", type=kinds.whole(), default=32, help="tokens drawn (32)")
    add("--rounds", type=kinds.whole(), default=3)
    add("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    add("--processor", action="store_true", help="by the processor's time of one thread")
    add("--models", dest="folder", type=Path, default=Path("models"))
    args = parser.parse_args()
    try:
        SHAPES[args.shape].cut(args.blocks)
    except ValueError as error:
        parser.error(str(error))
    types, own = args.types, args.own
    try:
        golem, peers = Golem(), peers_of(args.peer, args.build_peer)
    except PeerError as error:
        parser.error(str(error))
    samples: Samples = defaultdict(list)
    shares: dict[str, list] = defaultdict(list)
    alone = [*own, *([OWN] if own and OWN not in types else [])]
    for number in range(args.rounds):
        for kind in [*types, *alone][:: 1 if number % 2 == 0 else -1]:
            path = file_of(args.shape, args.blocks, kind, args.folder)
            programs = [golem] if kind in alone else [golem, *peers]
            order = programs[:: 1 if number % 2 == 0 else -1]
            one_round(order, kind, path, args, samples, shares)
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    how = "the processor's time of 1 thread" if args.processor else f"{args.threads} threads"
    print(
        f"{args.shape}, {args.blocks} blocks, {args.prompt} read, {args.drawn} drawn, t/s by {how}"
    )
    for kind in set(types) & set(SLOW) if peers else ():
        prompt, drawn = SLOW[kind]
        print(f"{kind}: peers read {prompt} and draw {drawn}, at whatever rate they do it")
    if types:
        names = [golem.name, *(peer.name for peer in peers)]
        print(f"\n{against_peers(samples, types, names, shares)}")
    if own:
        print(f"\n{among_themselves(samples, own, golem.name, shares)}")


if __name__ == "__main__":
    main()
