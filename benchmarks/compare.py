"""golem against its peers on this machine: alternated turns, medians, and their ratio.

Every figure is a ratio of programs that ran in turns within one invocation: same file, same number
of threads, same minutes. Peers are folders that ref.build_peer filled; with several, the ratio is
to the better one of each line.

    python -m benchmarks.compare MODEL... --peer FOLDER [--peer FOLDER] [--build-peer]
        [--only 'pp*,tg64,4 clients*'] [--quick] [--list] [--threads 2] [--rounds 3]
        [--models FOLDER] [--json FILE [--resume]]
    python -m benchmarks.compare --json FILE

MODEL is a file or random weights of a shape, such as qwen3-4b:q4_0, which are written once to the
folder of ``--models``. ``--only`` takes patterns of the lines that ``--list`` shows; ``--quick`` is
one round of a few of them. ``--build-peer`` builds a peer whose folder is empty: llama.cpp, or what
is named before the folder, as in ``--peer ik_llama.cpp=FOLDER``. The tables of README.md:

    python -m benchmarks.compare SmolLM2-135M-Instruct.Q4_1.gguf gemma-3-270m-q4_k_m.gguf
        qwen3-{0.6b,1.7b,4b}:{q4_0,q4_k,q8_0} --peer PEER --peer ik_llama.cpp=PEER_IK --json FILE

**Short runs make one table.** With ``--json`` samples are written after every part and those that
the file holds already count too; ``--resume`` leaves out what has had its rounds. Without a model,
the tables of the file are printed.

**What is fair.** Programs take turns for every part, a few lines that one start of a program
gives, and who begins changes with the round. A part around whose turns plain reads of memory vary
by more than 15 % was disturbed by others: it counts only where there is nothing better, and its
ratio has a ``?``. All caches of keys and values are f16. Prompts over HTTP are random ids of
ordinary tokens, new for every request; answers are sampled, and nobody drafts: golem's server runs
with ``-draft off``, the peers' have no model to draft with.

Peers run with what was found best for them (``ref/build_peer.py``): llama.cpp repacks, and its
flash attention, ``auto``, is on; ``-ub 512`` is no slower for it than 1024. ik_llama.cpp repacks
all weights (``-rtr``) and uses flash attention but where several conversations share a pass, which
it does not survive; ``-thp`` and ``-mqkv`` did not help it. Servers of both keep no conversation
outside of slots (``-cram 0``), which would cost them time when a new one comes. ik_llama.cpp does
not tell how many conversations share a pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from benchmarks.bandwidth import SPREAD, PlainRead
from benchmarks.clients import ClientError
from benchmarks.lines import LINES, PARTS, Line, Part, Turn, measure, trained_on
from benchmarks.programs import Golem, Llama, ProgramError
from benchmarks.tables import Samples, summary, table
from golem_server.bench import arguments as kinds
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.shapes import SHAPES
from golem_server.commands import Flags
from ref.build_peer import SOURCES
from ref.peer import MANIFEST, Peer, PeerError

BUSY = 0.7  # a load average above which somebody else must be computing
READ = 256 << 20  # bytes a plain read takes, or the file where that is smaller
READS = 5  # plain reads at a time, of which the best counts
QUICK = ("pp512", "tg64", "4x tg32@0", "4 clients*")


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


def rounds(programs, model: Path, lines: list[Line], samples: Samples, args) -> None:
    """All rounds of a model; what takes long comes last, once."""
    positions = trained_on(model)
    parts = []
    for part in PARTS:
        wanted = [line.name for line in part.lines if line in lines]
        if wanted and part.positions > positions > 0:
            say(f"{model.name} was trained on {positions} positions: without {', '.join(wanted)}")
        elif wanted:
            parts.append((part, wanted))
    for number in range(args.rounds):
        for part, wanted in parts:
            if not part.once:
                take_turns(programs, model, part, wanted, number, samples, args)
    for part, wanted in parts:
        if part.once:
            take_turns(programs, model, part, wanted, 0, samples, args)


def take_turns(
    programs, model: Path, part: Part, wanted: list[str], number: int, samples: Samples, args
) -> None:
    """A turn of every program, plain reads around each; what they measured is kept."""
    names = [program.name for program in programs]
    rounds_wanted = 1 if part.once else args.rounds
    if args.resume:
        taken = {name: samples.taken(model.name, name, names) for name in wanted}
        wanted = [name for name in wanted if taken[name] < rounds_wanted]
    if not wanted:
        return
    data = np.memmap(model, np.uint8, "r")[: READ // 64 * 64]
    reader = PlainRead([data], args.threads)
    made: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for program in programs if number % 2 == 0 else programs[::-1]:
        read(reader)
        started = time.perf_counter()
        with peer_may_fail(program):
            turn = Turn(program, model, frozenset(wanted), args.threads, number)
            made[program.name] = measure(part, turn)
        taken_s = time.perf_counter() - started
        say(f"{model.name} {wanted[0]} to {wanted[-1]}: {program.name} {taken_s:.0f} s")
    read(reader)
    steady = not disturbed(reader.rates, READS)
    for name in names:
        for line in wanted:
            samples.add(model.name, line, name, steady, made[name].get(line, []))
    samples.save()


def read(reader: PlainRead) -> None:
    for _ in range(READS):
        reader.read()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def disturbed(rates: list[float], group: int) -> bool:
    """Whether the best reads of each few vary by more than SPREAD over the round."""
    best = [max(rates[at : at + group]) for at in range(0, len(rates), group)]
    return 1 - min(best) / max(best) > SPREAD


def peers_of(folders: list[str], build: bool) -> list[Llama]:
    """The peers in these folders, built first where asked for and not there.

    folders: FOLDER, or PROGRAM=FOLDER to say which program is to be built.
    """
    peers = []
    for text in folders:
        program, _, folder = text.rpartition("=")
        if program and program not in SOURCES:
            raise SystemExit(f"compare: --peer {text}: there are {' and '.join(SOURCES)}")
        if build and not (Path(folder) / MANIFEST).exists():
            own = ["--program", program] if program else []
            subprocess.run([sys.executable, "-m", "ref.build_peer", folder, *own], check=True)
        try:
            peers.append(Llama(Peer.open(Path(folder).absolute())))
        except PeerError as error:
            raise SystemExit(f"compare: {error}") from None
    return peers


def file_of(model: str, folder: Path) -> Path:
    """The file of a model, written first where it is a shape with random weights."""
    if Path(model).exists():
        return Path(model).absolute()
    try:
        shape, mixture = parse(model)
    except ValueError as error:
        raise SystemExit(f"compare: {model} is no file, and {error}") from None
    path = folder.absolute() / f"{shape}-{mixture.lower()}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_invented(path.with_suffix(".part"), SHAPES[shape], mixture).rename(path)
    return path


def build_of(program: Golem | Llama) -> str:
    """What a program is: the package of a peer, golem's sources."""
    return program.build if isinstance(program, Golem) else program.peer.describe["package"]


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--peer", action="append", default=[], metavar="[PROGRAM=]FOLDER")
    parser.add_argument("--build-peer", action="store_true", help="build a peer that is missing")
    parser.add_argument("--models", dest="folder", type=Path, default=Path("models"))
    parser.add_argument("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--rounds", type=kinds.whole(), default=3, help="turns of every program (default 3)"
    )
    parser.add_argument("--only", default="*", help="patterns of lines, by commas (default all)")
    parser.add_argument("--quick", action="store_true", help=f"one round of {', '.join(QUICK)}")
    parser.add_argument("--list", action="store_true", help="show the lines there are")
    parser.add_argument("--no-golem", action="store_true", help="only the peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep samples here, and go on")
    parser.add_argument("--resume", action="store_true", help="only what FILE lacks of the rounds")
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
    try:
        builds = {program.name: build_of(program) for program in programs} if args.models else {}
        samples = Samples.open(args.json, builds)
    except (ValueError, KeyError) as error:
        raise SystemExit(f"compare: {error}") from None
    load = os.getloadavg()[0]
    if args.models and load > BUSY:
        say(f"load average {load:.2f}: others use this machine, and ratios mean little")
    for model in args.models:
        rounds(programs, file_of(model, args.folder), lines, samples, args)
    for name in samples.models:
        print(f"\n## {name}\n\n{table(samples, name)}", flush=True)
    if len(samples.models) > 1:
        print(f"\n## Ratios\n\n{summary(samples)}")


if __name__ == "__main__":
    main()
