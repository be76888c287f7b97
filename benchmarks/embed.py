"""Embeddings against llama-server in one run: positions a second over HTTP, and their ratio.

    python -m benchmarks.embed --peer FOLDER [--model FILE] [--threads 2] [--rounds 5]

Without --model a nomic-embed-text-v2-moe of random F16 weights in the real shape is written to a
temporary folder. Texts are sent as ids, so that tokenizers do not count. Two tests: 8 texts of 512
positions, and 256 short texts of 8 to 24, each in one request. The peer runs twice, with its own
batch of 512 and with one of 2048; the ratio is to the better one of each test. Servers answer in
turns; besides the clock the processor's seconds are told, which a busy machine disturbs less.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import invented_encoder
from benchmarks.programs import free_port, running
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags
from ref.peer import Peer, PeerError

Samples = dict[str, list[tuple[float, float]]]  # test -> positions a second by clock, processor


@dataclass
class Server:
    """A running server and what it did so far."""

    name: str
    process: subprocess.Popen
    port: int
    samples: Samples = field(default_factory=dict)

    def used(self) -> float:
        """Seconds of the processor so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def embed(self, texts: list[list[int]]) -> tuple[float, float]:
        """One request; positions a second of the clock, and of the processor."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/embeddings",
            json.dumps({"input": texts, "encoding_format": "base64"}).encode(),
            {"Content-Type": "application/json"},
        )
        used, began = self.used(), time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            count = len(json.loads(answer.read())["data"])
        seconds, processor = time.perf_counter() - began, self.used() - used
        if count != len(texts):
            raise SystemExit(f"embed: {self.name} gave {count} vectors for {len(texts)} texts")
        positions = sum(map(len, texts))
        return positions / seconds, positions / max(processor, 0.01)


@contextmanager
def serving(name: str, command: list, port: int) -> Iterator[Server]:
    """A server, until the end of the block."""
    with running(command, port) as process:
        yield Server(name, process, port)


def servers(stack: ExitStack, model: Path, peer: Peer, threads: int) -> list[Server]:
    """golem, and the peer with both of its batches."""
    port = free_port()
    golem = [sys.executable, "-m", "golem_server.cli", "-embed", model, "-threads", threads]
    made = [stack.enter_context(serving("golem", [*golem, "-addr", f"127.0.0.1:{port}"], port))]
    for batch, slots in ((512, 4), (2048, 16)):
        port = free_port()
        command = [peer.program("llama-server"), "-m", model, "--embeddings", "--port", port]
        command += ["-t", threads, "-tb", threads, "-b", batch, "-ub", batch, "-np", slots]
        name = f"{peer.describe['name']} -ub {batch}"
        made.append(stack.enter_context(serving(name, command, port)))
    return made


def tests() -> dict[str, list[list[int]]]:
    """Texts of each test as ids."""
    draw = random.Random(7)

    def text(length: int) -> list[int]:
        return [0, *(draw.randrange(4, 250000) for _ in range(length - 2)), 2]

    return {
        "8 texts of 512 positions": [text(512) for _ in range(8)],
        "256 short texts": [text(draw.randrange(8, 25)) for _ in range(256)],
    }


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--model", type=kinds.file)
    parser.add_argument("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=kinds.whole(), default=5)
    args = parser.parse_args()
    try:
        peer = Peer.open(args.peer)
    except PeerError as error:
        parser.error(str(error))
    with ExitStack() as stack:
        model = args.model
        if model is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            model = invented_encoder.write(Path(folder) / "nomic.gguf")
        all_servers = servers(stack, model, peer, args.threads)
        given = tests()
        for number in range(args.rounds + 1):
            for server in all_servers if number % 2 == 0 else all_servers[::-1]:
                for test, texts in given.items():
                    sample = server.embed(texts)
                    if number:  # the first round warms up
                        server.samples.setdefault(test, []).append(sample)
    print(f"{args.threads} threads, load {os.getloadavg()[0]:.1f}; positions a second, the best of")
    print(f"{args.rounds}: by the clock / by the processor's seconds\n")
    print("| test | " + " | ".join(s.name for s in all_servers) + " | ratio |")
    print("|---" * (len(all_servers) + 2) + "|")
    for test in given:
        best = [[max(v[i] for v in s.samples[test]) for i in (0, 1)] for s in all_servers]
        ratios = [best[0][i] / max(other[i] for other in best[1:]) for i in (0, 1)]
        cells = [f"{clock:.0f} / {used:.0f}" for clock, used in best]
        print(f"| {test} | {' | '.join(cells)} | {ratios[0]:.2f} / {ratios[1]:.2f} |")


if __name__ == "__main__":
    main()
