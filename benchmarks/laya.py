"""Laya's latency against its PyTorch reference, in one run: one request of three questions.

    python -m benchmarks.laya FOLDER --python PYTHON [--threads 2] [--rounds 7] [--positions 225]

FOLDER holds a checkpoint, or gets one of random weights in ModernBERT-large's shape. PYTHON is an
interpreter with ``laya`` and ``torch`` installed. The two answer in turns, each in a process of its
own that waits while the other computes; figures are the best and the median, and their ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.invented_laya import request, write
from golem_plugins.laya.checkpoint import CONFIG
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

# Each reads a line and answers with a line: seconds by the clock, seconds of the processor, and
# one probability, so that nobody can skip the work.
_LOOP = """
for line in sys.stdin:
    began, used = time.perf_counter(), time.process_time()
    reply = answer()
    print(json.dumps([time.perf_counter() - began, time.process_time() - used, first(reply)]))
    sys.stdout.flush()
"""
GOLEM = (
    """
import json, sys, time
from golem_plugins.laya.decider import open_decider
folder, threads, body = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
decider = open_decider(folder, threads=threads)
answer = lambda: decider.decide(body)
first = lambda reply: reply["answers"]["a"]["noul"]
"""
    + _LOOP
)
TORCH = (
    """
import json, os, sys, time
folder, threads, body = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
os.environ["LAYA_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
import torch
torch.set_num_threads(threads)
from laya import Agent
agent = Agent(folder, device="cpu")
answer = lambda: agent.predict(body["state"], body["questions"])
first = lambda reply: reply["answers"]["a"]["noul"]
"""
    + _LOOP
)


class Turn:
    """A process that answers the request whenever it is told to."""

    def __init__(self, python: str, script: str, folder: Path, threads: int, body: dict):
        environ = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        if python != sys.executable:
            environ.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            [python, "-c", script, str(folder), str(threads), json.dumps(body)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environ,
        )

    def __call__(self) -> list[float]:
        """Seconds by the clock and of the processor, and the probability."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            if line.startswith("["):
                return json.loads(line)
        raise SystemExit(f"laya: {self.process.args[0]} ended with {self.process.wait()}")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--python", type=kinds.program, required=True, help="an interpreter with laya and torch"
    )
    parser.add_argument("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=kinds.whole(), default=7)
    parser.add_argument("--positions", type=kinds.whole(), default=225)
    args = parser.parse_args()
    if not (args.folder / CONFIG).exists():
        write(args.folder)
    body = request(args.positions)
    turns = {
        "golem": Turn(sys.executable, GOLEM, args.folder, args.threads, body),
        "PyTorch": Turn(args.python, TORCH, args.folder, args.threads, body),
    }
    taken: dict[str, list[list[float]]] = {name: [turn()] for name, turn in turns.items()}
    answers = {name: values[0][2] for name, values in taken.items()}
    for name in taken:
        taken[name] = []  # the first one warmed up
    for number in range(args.rounds):
        for name in list(turns) if number % 2 == 0 else list(turns)[::-1]:
            taken[name].append(turns[name]())
    for turn in turns.values():
        turn.close()
    print(f"{args.threads} threads, {args.positions} positions, load {os.getloadavg()[0]:.1f}")
    print(f"answers: {answers}")
    print("\n| | best | median | processor, least |\n|---|---|---|---|")
    rows = {}
    for name, values in taken.items():
        clock, used = ([v[i] for v in values] for i in (0, 1))
        rows[name] = (min(clock), median(clock), min(used))
        print(f"| {name} | " + " | ".join(f"{x * 1000:.0f} ms" for x in rows[name]) + " |")
    ratios = [b / a for a, b in zip(rows["golem"], rows["PyTorch"], strict=True)]
    print("| ratio | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")


if __name__ == "__main__":
    main()
