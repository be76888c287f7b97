"""The programs benchmarks/compare.py sets against each other: how each is started and asked."""

from __future__ import annotations

import json
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
        return [*start, *flags, "-np", parallel, "-c", parallel * context]


def bench_samples(program: Golem | Llama, model: Path, flags: list) -> dict[str, list[float]]:
    """One run of a bench program: tokens a second of every repetition, by test (``pp512``)."""
    command = [*program.bench(), "-m", model, "-o", "json", *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise ProgramError(f"{program.name}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    samples = {}
    for record in json.loads(done.stdout):
        kind = f"pp{record['n_prompt']}" if record["n_prompt"] else f"tg{record['n_gen']}"
        depth = f" @ {record['n_depth']}" if record.get("n_depth") else ""
        samples[kind + depth] = record["samples_ts"]
    return samples


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
    command = list(map(str, program.server(model, port, parallel, context, threads)))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_healthy(port, process, START_SECONDS)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_healthy(port: int, process: subprocess.Popen, seconds: float) -> None:
    """Waits for a server to answer /health. ProgramError if it ends or never does."""
    deadline = time.monotonic() + seconds
    while not _healthy(port):
        if process.poll() is not None:
            raise ProgramError(f"{' '.join(process.args)} ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise ProgramError(f"{' '.join(process.args)} is not ready after {seconds} s")
        time.sleep(0.1)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
