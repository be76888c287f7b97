"""Loading a model: how long until it answers, and the memory that took, golem against its peers.

The programs' servers take turns on one cached file; each is timed from its start to the first good
answer of ``/health``. In the first round its largest resident set so far (VmHWM) is read then, and
what is resident (VmRSS) when a prompt has filled its context: memory that nobody has touched is no
part of either. Of golem's the larger is also shown as a multiple of the file, where the keys and
values that the prompt has filled are taken off what is resident with them, and nothing is taken off
what loading held. Everything else counts: activations, Python, a map of the file.

    python -m benchmarks.load MODEL... --peer FOLDER [--peer FOLDER] [--rounds 5] [--threads 2]
        [--models FOLDER]

MODEL is a file or a shape, as for benchmarks.compare.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.clients import ask, prompt, words_of
from benchmarks.compare import file_of, peer_may_fail, peers_of
from benchmarks.programs import Golem, Llama, started
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags
from ref.peer import PeerError

CONTEXT = 4096
DRAWN = 8  # tokens behind the prompt that fills it
MIB = 1 << 20
STATES = """
import json, sys
from golem_core.model import open_decoder
model = open_decoder(sys.argv[1], context=int(sys.argv[2]), parallel=1, threads=int(sys.argv[3]))
print(json.dumps({"rings": model.estimate.rings, "load": model.seconds}))
"""


def resident(pid: int, which: str) -> int:
    """Bytes of a process's resident set: VmRSS, what it is; VmHWM, the largest so far."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{which}:\s+(\d+) kB$", text, re.MULTILINE)[1]) << 10


def fill(port: int, words: list[int]) -> None:
    """Has a server read and draw as much as its context holds."""
    asyncio.run(ask(port, prompt(words, CONTEXT - 2 * DRAWN, 0), DRAWN))


@dataclass
class Loaded:
    """What a program's starts took. loaded: bytes resident at most until the first answer. full:
    resident with a full context."""

    seconds: list[float] = field(default_factory=list)
    loaded: int = 0
    full: int = 0

    def start(self, program: Golem | Llama, model: Path, threads: int) -> None:
        """One start; the first of them fills the context too."""
        with started(program, model, parallel=1, context=CONTEXT, threads=threads) as server:
            process, port, taken = server
            self.seconds.append(taken)
            if not self.full:
                self.loaded = resident(process.pid, "VmHWM")
                fill(port, words_of(model))
                self.full = resident(process.pid, "VmRSS")


def memory_line(golem: Loaded, rings: int, size: int) -> str:
    """golem's memory over its file's; bytes. Only what the prompt filled is taken off."""
    most = max(golem.loaded, golem.full - rings)
    return (
        f"golem's process: {most / size:.2f} times the file: the larger of what loading took at "
        f"most, {golem.loaded / MIB:.0f} MiB, and {(golem.full - rings) / MIB:.0f} MiB, which is "
        f"what a full context has resident, {golem.full / MIB:.0f} MiB, less its keys and values, "
        f"{rings / MIB:.0f} MiB. Nothing else is taken off."
    )


def golem_states(model: Path, threads: int) -> dict:
    """rings: bytes of golem's keys and values. load: seconds it says loading took."""
    command = [sys.executable, "-c", STATES, str(model), str(CONTEXT), str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def touch(path: Path) -> None:
    """Reads the file once, so that every program finds it in the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument(
        "models", nargs="+", type=kinds.model, metavar="MODEL", help="a GGUF file or a shape"
    )
    parser.add_argument(
        "--peer", action="append", default=[], metavar="FOLDER", help="of ref.build_peer"
    )
    parser.add_argument("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--rounds", type=kinds.whole(), default=5, help="starts of every program (5)"
    )
    parser.add_argument("--models", dest="folder", type=kinds.folder, default=Path("models"))
    args = parser.parse_args()
    try:
        programs = [Golem(), *peers_of(args.peer, False)]
    except PeerError as error:
        parser.error(str(error))
    for model in args.models:
        path = file_of(model, args.folder)
        found: dict[str, Loaded] = defaultdict(Loaded)
        touch(path)
        for number in range(args.rounds):
            for program in programs if number % 2 == 0 else programs[::-1]:
                with peer_may_fail(program):
                    found[program.name].start(program, path, args.threads)
        size, own = path.stat().st_size, golem_states(path, args.threads)
        print(f"\n## {path.name}, {size / MIB:.0f} MiB\n")
        print("| program | s to the first answer | MiB at most until then | MiB, context full |")
        print("|---|---|---|---|")
        took = {name: median(one.seconds) for name, one in found.items() if one.seconds}
        for name, seconds in took.items():
            one = found[name]
            print(f"| {name} | {seconds:.2f} | {one.loaded / MIB:.0f} | {one.full / MIB:.0f} |")
        least = min((seconds for name, seconds in took.items() if name != "golem"), default=None)
        if least is not None:
            print(f"\ngolem over the quickest: {took['golem'] / least:.2f}")
        print(f"\ngolem's model alone: {own['load']:.2f} s")
        print(memory_line(found["golem"], own["rings"], size))


if __name__ == "__main__":
    main()
