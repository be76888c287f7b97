"""The programs benchmarks/compare.py sets against each other: how each is started and asked."""

from __future__ import annotations

import hashlib
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

from ref.build_peer import SOURCES, Source
from ref.peer import Peer

LIMIT_SECONDS = 3600  # for one run of a bench program: 32,000 positions of a 4B take half of it
ROOT = Path(__file__).parents[1]
PACKAGES = ("golem_core", "golem_plugins", "golem_server")
SOURCE_SUFFIXES = {".py", ".pyx", ".pxd", ".h", ".c"}
TOGETHER = 2  # repeats of conversations that draw together
SPARE = 64  # positions a batched bench has beyond what it fills
START_SECONDS = 300  # for a server to load its model and answer /health
REST_SECONDS, LOOK, IDLE = 60, 0.25, 0.05  # to come to rest; between looks; share of a core then


class ProgramError(RuntimeError):
    """A program failed; the text holds the end of what it printed."""


@dataclass(frozen=True)
class Deep:
    """Rates at a depth, tokens a second of each repeat: prompts of that length, and draws there."""

    reading: list[float]
    drawing: list[float]


Rates = dict[str, list[float]]  # by test, such as pp512: tokens a second of each repeat
Together = dict[int, dict[int, list[float]]]  # by depth and number of conversations


@dataclass(frozen=True)
class Golem:
    """golem out of this Python environment."""

    name: str = "golem"
    folder: Path | None = None  # to be run in; None: this one

    @property
    def build(self) -> str:
        """A name for what its sources are at this moment."""
        found = hashlib.sha256()
        for path in sorted(path for folder in PACKAGES for path in ROOT.glob(f"{folder}/**/*")):
            if path.suffix in SOURCE_SUFFIXES:
                found.update(path.read_bytes())
        return f"sources {found.hexdigest()[:12]}"

    def server(self, model: Path, port: int, parallel: int, context: int, threads: int) -> list:
        start = [sys.executable, "-c", "from golem_server.cli import main; main()"]
        flags = ["-model", model, "-addr", f"127.0.0.1:{port}", "-threads", threads]
        flags += ["-draft", "off"]  # peers draft nothing either
        return [*start, *flags, "-parallel", parallel, "-context", parallel * context]

    def bench(
        self, model: Path, prompts: list[int], draws: list[int], threads: int, repeats: int
    ) -> Rates:
        flags = ["-p", _list(prompts), "-n", _list(draws), "-r", repeats, "-t", threads]
        return {r["test"]: r["samples_ts"] for r in self.records(model, flags)}

    def deep(self, model: Path, depth: int, drawn: int, threads: int, repeats: int) -> Deep:
        common = ["-t", threads, "-r", repeats]
        read = self.records(model, ["-p", depth, "-n", 0, *common, "--no-warmup"])
        drew = self.records(model, ["-p", 0, "-n", drawn, "-d", depth, *common])
        return Deep(read[0]["samples_ts"], drew[0]["samples_ts"])

    def widths(
        self, model: Path, prompt: int, widths: list[int], threads: int, repeats: int
    ) -> dict[int, list[float]]:
        """Rates of a prompt by how many columns a pass holds at most."""
        flags = ["-p", prompt, "-n", 0, "-r", repeats, "-t", threads, "-w", _list(widths)]
        return {r["n_ubatch"]: r["samples_ts"] for r in self.records(model, flags)}

    def conversations(
        self, model: Path, depths: list[int], counts: list[int], drawn: int, threads: int
    ) -> Together:
        """Rates of conversations that draw together, without HTTP."""
        flags = ["-p", 0, "-n", drawn, "-d", _list(depths), "-b", _list(counts)]
        rates: Together = {depth: {} for depth in depths}
        for r in self.records(model, [*flags, "-r", TOGETHER, "-t", threads]):
            rates[r["n_depth"]][r["n_conversations"]] = r["samples_ts"]
        return rates

    def records(self, model: Path, flags: list) -> list[dict]:
        """One run of its bench program: tests as llama-bench's JSON has them."""
        start = [sys.executable, "-c", "from golem_server.bench import main; main()"]
        rates_only = ["-o", "json", "--no-served"]
        return json.loads(_output(self, [*start, "-m", model, *rates_only, *flags]))


@dataclass(frozen=True)
class Llama:
    """A llama.cpp that ref.build_peer built, with the flags that serve it best."""

    peer: Peer

    @property
    def name(self) -> str:
        return self.peer.describe["name"]

    @property
    def folder(self) -> Path:
        """To be run in, as ik_llama.cpp leaves a log behind."""
        return self.peer.folder

    @property
    def _flags(self) -> Source:
        return SOURCES[self.name]

    def server(self, model: Path, port: int, parallel: int, context: int, threads: int) -> list:
        own = self._flags.server if parallel > 1 else self._flags.alone
        flags = ["-m", model, "--host", "127.0.0.1", "--port", port, "-t", threads, "-tb", threads]
        start = [self.peer.program("llama-server"), *own, *flags, "--metrics", "-cram", 0]
        return [*start, "-np", parallel, "-c", parallel * context]

    def bench(
        self, model: Path, prompts: list[int], draws: list[int], threads: int, repeats: int
    ) -> Rates:
        flags = ["-p", _list(prompts), "-n", _list(draws), "-r", repeats, "-t", threads]
        return {
            f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}": r["samples_ts"]
            for r in self.records(model, flags)
        }

    def deep(self, model: Path, depth: int, drawn: int, threads: int, repeats: int) -> Deep:
        flags = ["-npp", depth, "-ntg", _list([drawn] * repeats), "-npl", 1]
        made = list(self._batched(model, depth + drawn, threads, flags, self._flags.alone))
        return Deep([r["S_PP t/s"] for r in made], [r["S_TG t/s"] for r in made])

    def widths(
        self, model: Path, prompt: int, widths: list[int], threads: int, repeats: int
    ) -> dict[int, list[float]]:
        """Rates of a prompt by how many columns a pass holds at most."""
        flags = ["-p", prompt, "-n", 0, "-r", repeats, "-t", threads, "-ub", _list(widths)]
        return {r["n_ubatch"]: r["samples_ts"] for r in self.records(model, flags)}

    def conversations(
        self, model: Path, depths: list[int], counts: list[int], drawn: int, threads: int
    ) -> Together:
        """Rates of conversations that draw together, without HTTP."""
        rates: Together = {depth: {count: [] for count in counts} for depth in depths}
        lengths = {max(depth, 1): depth for depth in depths}  # one position at least is read
        context = max(counts) * (max(lengths) + drawn)
        flags = ["-npp", _list(list(lengths)), "-ntg", drawn, "-npl", _list(counts * TOGETHER)]
        for r in self._batched(model, context, threads, flags, self._flags.server):
            rates[lengths[int(r["PP"])]][int(r["B"])].append(r["S_TG t/s"])
        return rates

    def records(self, model: Path, flags: list) -> list[dict]:
        """One run of its bench program: tests as llama-bench's JSON has them."""
        start = [self.peer.program("llama-bench"), *self._flags.bench]
        return json.loads(_output(self, [*start, "-m", model, "-o", "json", *flags]))

    def _batched(
        self, model: Path, context: int, threads: int, flags: list, own: tuple
    ) -> Iterator[dict[str, float]]:
        start = [self.peer.program("llama-batched-bench"), *own, "-m", model]
        common = ["-c", context + SPARE, "-t", threads, "-tb", threads]
        done = _whole(self, [*start, *common, *flags])
        yield from batched_rows(done.stdout + done.stderr)  # ik_llama.cpp logs its table


def _list(numbers: list[int]) -> str:
    """1,2,4; 0 for none."""
    return ",".join(map(str, numbers)) or "0"


def batched_rows(text: str) -> Iterator[dict[str, float]]:
    """The rows of the table that llama-batched-bench prints, by the names of its columns."""
    head: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "S_TG t/s" in cells:
            head = cells
        elif head and len(cells) == len(head) and cells[0].isdigit():
            yield dict(zip(head, map(float, cells), strict=True))


def _output(program: Golem | Llama, command: list) -> str:
    """What a program prints. ProgramError when it fails or takes longer than LIMIT_SECONDS."""
    return _whole(program, command).stdout


def _whole(program: Golem | Llama, command: list) -> subprocess.CompletedProcess:
    """The same, with what it logs."""
    command = list(map(str, command))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            cwd=program.folder,
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{' '.join(command)} took over {LIMIT_SECONDS} s") from None
    if done.returncode != 0:
        raise ProgramError(f"{program.name}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done


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
    command = program.server(model, port, parallel, context, threads)
    with running(command, port, folder=program.folder) as process:
        rest(process.pid)
        yield port


@contextmanager
def started(
    program: Golem | Llama, model: Path, *, parallel: int, context: int, threads: int
) -> Iterator[tuple[subprocess.Popen, int, float]]:
    """The same; -> its process, its port, and the seconds from its start until it answered."""
    port, begun = free_port(), time.perf_counter()
    command = program.server(model, port, parallel, context, threads)
    with running(command, port, every=0.01, folder=program.folder) as process:
        yield process, port, time.perf_counter() - begun


@contextmanager
def running(
    command: list, port: int, every: float = 0.1, folder: Path | None = None
) -> Iterator[subprocess.Popen]:
    """The process of a server that has answered /health, asked so many seconds apart.

    Python may keep what it compiles, as it does where a program is installed.
    ProgramError if it ends, or does not answer within START_SECONDS.
    """
    command = list(map(str, command))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
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
