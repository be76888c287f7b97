"""The programs benchmarks/compare.py sets against each other: how each is started and asked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ref.peer import Peer

START_SECONDS = 300  # for a server to load its model and answer /health
REST_SECONDS, LOOK, IDLE = 60, 0.25, 0.05  # to come to rest; between looks; share of a core then


class ProgramError(RuntimeError):
    """A program failed; the text holds the end of what it printed."""


@dataclass(frozen=True)
class Golem:
    """golem out of this Python environment."""

    name: str = "golem"

    def bench(self) -> list[str]:
        return [sys.executable, "-c", "from golem_server.bench import main; main()"]

    def server(self, model: Path, port: int, parallel: int, context: int, threads: int) -> list:
        start = [sys.executable, "-c", "from golem_server.cli import main; main()"]
        flags = ["-model", model, "-addr", f"127.0.0.1:{port}", "-threads", threads]
        return [*start, *flags, "-parallel", parallel, "-context", parallel * context]

    def width(self, columns: int) -> list:
        """Flags of a bench whose passes hold at most so many columns."""
        return ["-w", columns]

    def conversations(self, model: Path, counts: list[int], depth: int, drawn: int, threads: int):
        """Tokens a second of conversations that draw together, by their number, without HTTP."""
        flags = ["-p", 0, "-n", drawn, "-d", depth, "-b", ",".join(map(str, counts))]
        command = [*self.bench(), "-m", model, "-o", "json", "-r", 3, "-t", threads, *flags]
        made = json.loads(_output(self.name, command))
        return {record["n_conversations"]: record["samples_ts"] for record in made}


@dataclass(frozen=True)
class Llama:
    """A llama.cpp that ref.build_peer built."""

    peer: Peer

    @property
    def name(self) -> str:
        return self.peer.describe["name"]

    def bench(self) -> list[str]:
        return [str(self.peer.program("llama-bench")), *self.peer.describe["bench"]]

    def server(self, model: Path, port: int, parallel: int, context: int, threads: int) -> list:
        start = [self.peer.program("llama-server"), *self.peer.describe["server"]]
        flags = ["-m", model, "--host", "127.0.0.1", "--port", port, "-t", threads, "-tb", threads]
        return [*start, *flags, "-np", parallel, "-c", parallel * context, "--metrics"]

    def width(self, columns: int) -> list:
        """Flags of a bench whose passes hold at most so many columns."""
        return ["-ub", columns]

    def conversations(self, model: Path, counts: list[int], depth: int, drawn: int, threads: int):
        """Tokens a second of conversations that draw together, by their number, without HTTP."""
        context = max(counts) * (max(depth, 1) + drawn) + 64
        flags = ["-npp", max(depth, 1), "-ntg", drawn, "-npl", ",".join(map(str, counts))]
        start = [self.peer.program("llama-batched-bench"), *self.peer.describe["server"]]
        command = [*start, "-m", model, "-c", context, "-t", threads, "-tb", threads, *flags]
        samples: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(3):
            for count, rate in batched_rates(_output(self.name, command)):
                samples[count].append(rate)
        return samples


def batched_rates(text: str) -> Iterator[tuple[int, float]]:
    """Conversations and tokens a second they drew, of the table llama-batched-bench prints."""
    head: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "S_TG t/s" in cells:
            head = cells
        elif head and len(cells) == len(head) and cells[0].isdigit():
            row = dict(zip(head, cells, strict=True))
            yield int(row["B"]), float(row["S_TG t/s"])


def _output(name: str, command: list) -> str:
    """What a program prints. ProgramError when it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise ProgramError(f"{name}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def bench_samples(program: Golem | Llama, model: Path, flags: list) -> dict[str, list[float]]:
    """One run of a bench program: tokens a second of every repetition, by test (``pp512``)."""
    samples = {}
    for record in bench_records(program, model, flags):
        kind = f"pp{record['n_prompt']}" if record["n_prompt"] else f"tg{record['n_gen']}"
        depth = f"@{record['n_depth']}" if record.get("n_depth") else ""
        samples[kind + depth] = record["samples_ts"]
    return samples


def bench_records(program: Golem | Llama, model: Path, flags: list) -> list[dict]:
    """One run of a bench program: its tests as llama-bench's JSON has them."""
    text = _output(program.name, [*program.bench(), "-m", model, "-o", "json", *flags])
    return json.loads(text)


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def serving(
    program: Golem | Llama, model: Path, *, parallel: int, context: int, threads: int
) -> Iterator[int]:
    """A server of that program, ready to answer; -> its port. ProgramError if it never is."""
    port = free_port()
    with running(program.server(model, port, parallel, context, threads), port) as process:
        rest(process.pid)
        yield port


@contextmanager
def started(
    program: Golem | Llama, model: Path, *, parallel: int, context: int, threads: int
) -> Iterator[tuple[subprocess.Popen, float]]:
    """The same; -> its process, and the seconds from its start until it answered."""
    port, begun = free_port(), time.perf_counter()
    command = program.server(model, port, parallel, context, threads)
    with running(command, port, every=0.01) as process:
        yield process, time.perf_counter() - begun


@contextmanager
def running(command: list, port: int, every: float = 0.1) -> Iterator[subprocess.Popen]:
    """The process of a server that has answered /health, asked so many seconds apart.

    Python may keep what it compiles, as it does where a program is installed.
    ProgramError if it ends, or does not answer within START_SECONDS.
    """
    command = list(map(str, command))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _healthy(port):
            if process.poll() is not None:
                raise ProgramError(f"{' '.join(command)} ended with {process.returncode}")
            if time.monotonic() > deadline:
                raise ProgramError(f"{' '.join(command)} is not ready after {START_SECONDS} s")
            time.sleep(every)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def rest(pid: int) -> None:
    """Waits until a process that nobody asks anything has done what it does after its start."""

    def spent() -> int:
        """Hundredths of a second of processors."""
        return sum(
            map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
        )

    before, deadline = spent(), time.monotonic() + REST_SECONDS
    while time.monotonic() < deadline:
        time.sleep(LOOK)
        now = spent()
        if now - before <= 100 * LOOK * IDLE:
            return
        before = now


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
