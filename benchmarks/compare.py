"""golem against its peers on this machine: alternated turns, medians, and their ratio.

Every figure is a ratio of programs that ran in turns within one invocation: same file, same number
of threads, same minutes. Peers are folders that ref.build_peer filled; with several, the ratio is
to the better one of each line.

    python -m benchmarks.compare MODEL... --peer FOLDER [--peer FOLDER] [--build-peer]
        [--only 'pp*,tg64,4 clients*'] [--quick] [--threads 2] [--rounds 3]
        [--models FOLDER] [--json FILE [--resume]]
    python -m benchmarks.compare --json FILE
    python -m benchmarks.compare --list

MODEL is a GGUF file or random weights of a shape, such as qwen3-4b:q4_0, which are written once to
the folder of ``--models``. ``--only`` takes patterns of the lines that ``--list`` shows;
``--quick`` is one round of those, or of a few where nothing is said. ``--build-peer`` builds a peer
whose folder is empty: llama.cpp, or what is named before the folder, as in
``--peer ik_llama.cpp=FOLDER``; every peer has a folder of its own. The tables of README.md:

    python -m benchmarks.compare SmolLM2-135M-Instruct.Q4_1.gguf gemma-3-270m-q4_k_m.gguf
        qwen3-{0.6b,1.7b,4b}:{q4_0,q4_k,q8_0} --build-peer --peer llama.cpp=PEER
        --peer ik_llama.cpp=PEER_IK --json FILE

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

import argparse
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
            raise argparse.ArgumentTypeError(f"{pattern!r} fits none of: {names}")
    return [line for line in LINES if any(fnmatchcase(line.name, p) for p in patterns)]


def only(text: str) -> list[Line]:
    """The lines that fit patterns separated by commas."""
    return chosen(text.split(","))


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

    folders: FOLDER, or PROGRAM=FOLDER to say which program is to be built. Raises PeerError, a
    line, where one is not there or is another program.
    """
    peers: list[Llama] = []
    for text in folders:
        program, _, folder = text.rpartition("=")
        if program and program not in SOURCES:
            raise PeerError(f"--peer {text}: there are {' and '.join(SOURCES)}")
        if build and not (Path(folder) / MANIFEST).exists():
            own = ["--program", program] if program else []
            command = [sys.executable, "-m", "ref.build_peer", folder, *own]
            if subprocess.run(command).returncode:
                raise PeerError(f"--peer {text}: it could not be built, for the reason above")
        peer = Llama(Peer.open(Path(folder).absolute()))
        if peer.name not in SOURCES:
            raise PeerError(f"--peer {text}: {peer.name!r} there is none of {', '.join(SOURCES)}")
        if program and program != peer.name:
            raise PeerError(
                f"--peer {text}: that folder holds {peer.name}; {program} needs one of its own"
            )
        if any(peer.name == other.name for other in peers):
            raise PeerError(f"--peer {text}: {peer.name} is already compared with")
        peers.append(peer)
    return peers


def file_of(model: str, folder: Path) -> Path:
    """The file of a model, written first where it is a shape with random weights."""
    if Path(model).exists():
        return Path(model).absolute()
    shape, mixture = parse(model)
    path = folder.absolute() / f"{shape}-{mixture.lower()}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_invented(path.with_suffix(".part"), SHAPES[shape], mixture).rename(path)
    return path


def build_of(program: Golem | Llama) -> str:
    """What a program is: the package of a peer, golem's sources."""
    return program.build if isinstance(program, Golem) else program.peer.describe["package"]


def parser() -> Flags:
    made = Flags(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, cores = made.add_argument, len(os.sched_getaffinity(0))
    add(
        "models",
        nargs="*",
        type=kinds.model,
        metavar="MODEL",
        help="a GGUF file, or random weights of a shape, such as qwen3-4b:q4_0",
    )
    add(
        "--peer",
        action="append",
        default=[],
        metavar="[PROGRAM=]FOLDER",
        help=f"a peer that ref.build_peer built, one of {', '.join(SOURCES)}; once for each",
    )
    add("--build-peer", action="store_true", help="build a peer that is missing")
    add(
        "--models",
        dest="folder",
        type=kinds.folder,
        default=Path("models"),
        metavar="FOLDER",
        help="where random weights are kept (models)",
    )
    add("--threads", type=kinds.threads(), default=cores, help=f"of every program ({cores})")
    add("--rounds", type=kinds.whole(), help="turns of every program (3; with --quick 1)")
    add("--only", type=only, metavar="PATTERNS", help="of lines, separated by commas (all)")
    add("--quick", action="store_true", help=f"one round, without --only of {', '.join(QUICK)}")
    add("--list", action="store_true", help="show the lines there are")
    add("--no-golem", action="store_true", help="only the peers")
    add("--json", type=Path, metavar="FILE", help="keep samples here, and go on")
    add("--resume", action="store_true", help="only what FILE lacks of the rounds")
    return made


def refuse_contradictions(flags: Flags, args: argparse.Namespace) -> None:
    """Leaves where the arguments do not go together."""
    if args.resume and args.json is None:
        flags.error("--resume goes on with the samples of a file: name it with --json FILE")
    if args.json is not None and not args.json.absolute().parent.is_dir():
        flags.error(f"--json {args.json}: its folder is not there")
    if args.models and args.no_golem and not args.peer:
        flags.error("--no-golem leaves nothing to measure without a --peer FOLDER")
    if args.models:
        return
    if args.json is None:
        flags.error("give a MODEL to measure, --json FILE to print its tables, or --list")
    if not args.json.exists():
        flags.error(f"--json {args.json}: there is no such file to print, and no MODEL to measure")


def main() -> None:
    flags = parser()
    args = flags.parse_args()
    if args.list:
        print("\n".join(f"{line.name:28} {line.unit:6} {line.what}" for line in LINES))
        return
    refuse_contradictions(flags, args)
    args.rounds = args.rounds or (1 if args.quick else 3)
    lines = args.only or chosen(list(QUICK) if args.quick else ["*"])
    try:
        peers = peers_of(args.peer, args.build_peer)
        programs = [*([] if args.no_golem else [Golem()]), *peers]
        builds = {program.name: build_of(program) for program in programs} if args.models else {}
        samples = Samples.open(args.json, builds)
    except (PeerError, ValueError, OSError) as error:
        flags.error(str(error))
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
