"""Loading a model: how long until it answers, and the memory that took, golem against its peers.

The programs' servers take turns on one cached file; each is timed from its start to the first good
answer of ``/health``, and its largest resident set (VmHWM) is read then. Of golem's that is also
shown without what a conversation takes, its rings and arena, as a multiple of the file.

    python -m benchmarks.load MODEL... --peer FOLDER [--peer FOLDER] [--rounds 5] [--threads 2]
        [--models FOLDER]

MODEL is a file or a shape, as for benchmarks.compare.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from benchmarks.compare import file_of, peer_may_fail, peers_of
from benchmarks.programs import Golem, started
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

CONTEXT = 4096
STATES = """
import json, sys
from golem_core.model import open_decoder
model = open_decoder(sys.argv[1], context=int(sys.argv[2]), parallel=1, threads=int(sys.argv[3]))
print(json.dumps({"states": model.estimate.rings + model.estimate.arena, "load": model.seconds}))
"""


def high_water(pid: int) -> int:
    """Bytes of a process's largest resident set so far."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)[1]) << 10


def golem_states(model: Path, threads: int) -> dict:
    """states: bytes of golem's rings and arena. load: seconds it says loading took."""
    command = [sys.executable, "-c", STATES, str(model), str(CONTEXT), str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def touch(path: Path) -> None:
    """Reads the file once, so that every program finds it in the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--peer", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=kinds.whole(), default=5)
    parser.add_argument("--models", dest="folder", type=Path, default=Path("models"))
    args = parser.parse_args()
    programs = [Golem(), *peers_of(args.peer, False)]
    for model in args.models:
        path = file_of(model, args.folder)
        seconds, memory = defaultdict(list), defaultdict(list)
        touch(path)
        for number in range(args.rounds):
            for program in programs if number % 2 == 0 else programs[::-1]:
                with (
                    peer_may_fail(program),
                    started(program, path, parallel=1, context=CONTEXT, threads=args.threads) as (
                        process,
                        taken,
                    ),
                ):
                    seconds[program.name].append(taken)
                    memory[program.name].append(high_water(process.pid))
        size, own = path.stat().st_size, golem_states(path, args.threads)
        print(
            f"\n## {path.name}, {size / 2**20:.0f} MiB\n\n| program | seconds to the first answer |"
        )
        print("|---|---|")
        for name, values in seconds.items():
            print(f"| {name} | {median(values):.2f} |")
        least = min((median(v) for n, v in seconds.items() if n != "golem"), default=None)
        if least is not None:
            print(f"\ngolem over the quickest: {median(seconds['golem']) / least:.2f}")
        high = median(memory["golem"])
        print(f"golem's model alone: {own['load']:.2f} s; its process: {high / 2**20:.0f} MiB,")
        print(f"without rings and arena {(high - own['states']) / size:.2f} times the file.")


if __name__ == "__main__":
    main()
