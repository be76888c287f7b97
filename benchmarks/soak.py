"""Does a server stay whole under many clients that come, and leave, as they like?

    python ref/soak.py --minutes 10
    python -m benchmarks.soak --model MODEL.gguf --minutes 10 --clients 32

starts a server of its own on the loopback interface and plays clients that ask a random mixture of
every route (mixture.py), streamed or not, and hang up at random: while they wait, while the prompt
is read, in the middle of an answer, with FIN or with RST. Now and then one lets go of the model, or
asks for a second one, which takes its place. Then it says whether

- ten minutes are enough for 5,000 requests (a shorter run only tells their number);
- every answer that was waited for came whole, and the same prompt got the same greedy text,
  whichever dialect asked;
- afterwards no slot is held and nothing waits;
- threads and file descriptors are as many as before, and the server's own threads within bounds;
- after the second minute, when every thread has met every kind of request, the memory grows by
  less than 1 MB a minute: by Theil and Sen's median of the slopes between any two looks, of those
  that found a model in memory, since one that is being changed is half there. In a run of less than
  three minutes, which a minute of the same comes before, the last 30 s have less than 5 % more than
  the first 30 s.

The exit status is 1 when something does not hold.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median

from benchmarks.mixture import Ask, draw
from golem_core.pins import Manifest
from golem_server.bench import arguments as kinds
from golem_server.bench.invented import write_invented
from golem_server.bench.shapes import SHAPES
from golem_server.commands import Flags

ROOT = Path(__file__).parents[1]
MODELS = ("first", "second")  # copies of one file; only one of them is in memory at a time
INVENTED = replace(SHAPES["smollm2-135m"], blocks=4), "Q4_0"
REQUESTS = 5000  # in LONG_SECONDS
LONG_SECONDS = 600.0
SETTLE_SECONDS = 60.0
SLOPE = 1e6  # bytes a minute, once two have gone
WARM_SECONDS = 120.0
GROWTH = 1.05  # from the first to the last seconds of a short run
ENDS_SECONDS = 30
CACHE_RAM = "16MiB"  # is full before anything is measured
POOLS = ("waitress", "ThreadPoolExecutor")  # gunicorn's grows up to its bound as it is needed


# ---- the server's side ----


class State:
    """``GET /soak``: what the process holds."""

    def __init__(self, service):
        self.service = service

    def on_get(self, req, resp):
        engines = [
            engine
            for resident in self.service.residency.residents()
            if (engine := self.service.residency.engine(resident.entry.name)) is not None
        ]
        totals = self.service.records.totals
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        mapped = Path("/proc/self/maps").read_text()
        names = [thread.name for thread in threading.enumerate()]
        pool = sum(name.startswith(POOLS) for name in names)
        resp.media = {
            "busy": sum(engine.busy for engine in engines),
            "slots": sum(slot.is_processing for engine in engines for slot in engine.slots),
            "threads": len(names) - pool,
            "pool": pool,
            "pool_bound": self.service.server.server_threads,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
            "answers": totals.answers,
            "models": sum(str(r.entry.path) in mapped for r in self.service.residency.residents()),
        }


def create_app():
    """The application, with a look at the process."""
    from golem_server import wsgi

    app = wsgi.create_app()
    app.write = lambda line: None
    app.falcon.add_route("/soak", State(app.service))
    return app


def serve() -> int:
    """The server's process under waitress."""
    from golem_server.memory import bound_arenas
    from golem_server.serve import Server

    bound_arenas()
    return Server(create_app()).run()


# ---- the clients' side ----


@dataclass
class Tally:
    """What the clients saw."""

    outcomes: Counter = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)  # what was asked -> its first whole answer
    wrong: list[str] = field(default_factory=list)


class Client:
    """One client after another in the same place."""

    def __init__(self, port: int, seed: int, tally: Tally, models: tuple[str, ...]):
        self.port = port
        self.random = random.Random(seed)
        self.tally = tally
        self.models = models

    async def play(self, until: float) -> None:
        """Ask again and again until the time has come."""
        while time.monotonic() < until:
            try:
                self.tally.outcomes[await self.ask()] += 1
            except (OSError, asyncio.IncompleteReadError) as error:
                self.tally.wrong.append(f"the connection broke: {error!r}")

    async def ask(self) -> str:
        """One request; what became of it."""
        asked = draw(self.random, self.models)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(asked.raw)
            if asked.leaves and self.random.random() < 0.5:
                return await self.leave(reader, writer)
            received = await reader.read()
        finally:
            writer.close()
        self.check(asked, received)
        return asked.kind

    async def leave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Hang up after a while, or after some of the answer."""
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.expovariate(4))
            when = "early"
        else:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readexactly(self.random.randrange(1, 1500))
            when = "midway"
        if self.random.random() < 0.5:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return f"reset {when}"
        return f"closed {when}"

    def check(self, asked: Ask, received: bytes) -> None:
        """Whether the answer is whole, and the one given before."""
        head, _, body = received.partition(b"\r\n\r\n")
        status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0
        if status not in asked.status:
            self.tally.wrong.append(f"{asked.kind} {asked.path} {status} {body[:200]!r}")
            return
        if status != 200:
            return
        if b"transfer-encoding: chunked" in head.lower():
            body = unchunked(body)
        try:
            text = asked.text(body)
        except (ValueError, KeyError, IndexError, TypeError):
            text = None
        if text is None:
            self.tally.wrong.append(f"{asked.path}: an answer that is not whole: …{body[-120:]!r}")
        elif asked.same and text != self.tally.texts.setdefault(asked.same, text):
            self.tally.wrong.append(f"{asked.path}: two texts for one prompt: {text!r}")


def unchunked(body: bytes) -> bytes:
    """The contents of a chunked body; what is missing at its end stays missing."""
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size, 16)
        whole += rest[:count]
        body = rest[count + 2 :]
    return whole


class Watched:
    """The server's process, looked at from outside."""

    def __init__(self, arguments: argparse.Namespace, folder: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.refused = b""  # what the server last said instead of its state
        second = Path(shutil.copy(arguments.model, folder / "second.gguf"))
        Manifest.read(folder).pin([second], MODELS[1])
        environ = {k: v for k, v in os.environ.items() if not k.startswith("GOLEM_")} | {
            "PYTHONPATH": str(ROOT),
            "GOLEM_MODEL": str(arguments.model),
            "GOLEM_ALIAS": MODELS[0],
            "GOLEM_MODELS": str(folder),
            "GOLEM_SLOT_SAVE_PATH": str(folder),
            "GOLEM_CACHE_RAM": CACHE_RAM,
            "GOLEM_QUEUE": str(4 * arguments.clients),
            "GOLEM_ADDR": f"127.0.0.1:{self.port}",
            "GOLEM_PARALLEL": str(arguments.parallel),
            "GOLEM_CONTEXT": str(512 * arguments.parallel),
        }
        command = [
            sys.executable,
            "-c",
            "import sys; from benchmarks import soak; sys.exit(soak.serve())",
        ]
        if arguments.server == "gunicorn":
            command = [sys.executable, "-m", "gunicorn", "--log-level", "warning"]
            command += ["-c", "python:golem_server.gunicorn_conf", "benchmarks.soak:create_app()"]
        self.process = subprocess.Popen(command, env=environ, cwd=ROOT)

    async def state(self) -> dict | None:
        """What the process holds, None while it loads."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"GET /soak HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b" 200 " in head.split(b"\r\n")[0]:
            return json.loads(body)
        self.refused = head + body
        return None

    async def bring(self, model: str) -> None:
        """Have a model in memory, and the thread of its vectors beside it."""
        for path, fields in (("/api/generate", {}), ("/v1/embeddings", {"input": "x"})):
            asked = Ask("load", "POST", path, {"model": model, **fields})
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(asked.raw)
            await reader.read()
            writer.close()

    async def until(self, condition) -> dict:
        """The first state that fulfils a condition."""
        deadline = time.monotonic() + SETTLE_SECONDS
        state = None
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with status {self.process.returncode}")
            with contextlib.suppress(OSError):
                state = await self.state()
            if state is not None and condition(state):
                return state
            await asyncio.sleep(0.2)
        raise SystemExit(f"the server does not settle: {state}")


async def soak(watched: Watched, arguments: argparse.Namespace) -> int:
    """Play the clients, look at the server once a second, and judge."""
    await watched.until(lambda state: True)
    tally = Tally()
    # Buffers and caches exist before anything is measured. A short run has no first minutes that
    # could be left out of it: one of the same comes before it.
    short = arguments.seconds < WARM_SECONDS * 3 / 2
    until = time.monotonic() + (WARM_SECONDS / 2 if short else 0)
    warm = [Client(watched.port, -seed - 1, tally, MODELS) for seed in range(arguments.clients)]
    await asyncio.gather(*(client.ask() for client in warm))
    await asyncio.gather(*(client.play(until) for client in warm))
    await watched.bring(MODELS[0])
    before = await watched.until(lambda state: not state["busy"])

    until = time.monotonic() + arguments.seconds
    clients = [
        Client(watched.port, arguments.seed + i, tally, MODELS) for i in range(arguments.clients)
    ]
    playing = asyncio.gather(*(client.play(until) for client in clients))
    began = time.monotonic()
    sizes: list[tuple[float, int]] = []  # (seconds, bytes)
    while not playing.done():
        await asyncio.wait([playing], timeout=1.0)
        if (state := await watched.state()) is None:
            tally.wrong.append(f"GET /soak: {watched.refused[:300]!r}")
        elif state["models"]:
            sizes.append((time.monotonic() - began, state["bytes"]))
    await playing
    await watched.bring(MODELS[0])
    after = await watched.until(lambda state: not state["busy"])

    first, last = ends(sizes)
    slope = growth(sizes)
    claim, kept = memory_verdict(sizes)
    asked = tally.outcomes.total()
    checks = {
        f"{REQUESTS} requests in ten minutes": arguments.seconds < LONG_SECONDS
        or asked >= REQUESTS * arguments.seconds / LONG_SECONDS,
        "answers whole and equal": not tally.wrong,
        "slots idle": not after["slots"] and not after["busy"],
        "threads as before": after["threads"] == before["threads"]
        and after["pool"] <= after["pool_bound"],
        "descriptors as before": after["descriptors"] <= before["descriptors"],
        claim: kept,
    }
    print(f"clients {arguments.clients}, {arguments.seconds:.0f} s, {arguments.server}")
    for outcome, count in sorted(tally.outcomes.items()):
        print(f"  {outcome:<16} {count}")
    print(f"  {'in all':<16} {asked}, {after['answers']} reached the engine")
    print(f"  memory {first / 2**20:.1f} -> {last / 2**20:.1f} MiB ({last / first:.3f})")
    if slope is not None:
        print(f"  {slope / 1e6:+.2f} MB a minute after the first two")
    for name in ("threads", "pool"):
        print(f"  {name} {before[name]} -> {after[name]}")
    print(f"  descriptors {before['descriptors']} -> {after['descriptors']}")
    for line in tally.wrong[:5]:
        print(f"  {line}")
    for name, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(checks.values()) else 1


def ends(sizes: list[tuple[float, int]]) -> tuple[float, float]:
    """Mean of the sizes (seconds, bytes) at the beginning and at the end."""
    count = min(ENDS_SECONDS, max(1, len(sizes) // 4))
    return mean(size for _, size in sizes[:count]), mean(size for _, size in sizes[-count:])


def memory_verdict(sizes: list[tuple[float, int]]) -> tuple[str, bool]:
    """What must hold of the sizes (seconds, bytes), and whether it does."""
    slope = growth(sizes)
    if slope is not None:
        return "memory grows by less than 1 MB a minute", slope < SLOPE
    first, last = ends(sizes)
    return "memory grows by less than 5 %", last < GROWTH * first


def growth(sizes: list[tuple[float, int]]) -> float | None:
    """Bytes a minute by which sizes (seconds, bytes) grow, the first two minutes left out."""
    late = [(at, size) for at, size in sizes if at >= WARM_SECONDS]
    if not late or late[-1][0] - late[0][0] < WARM_SECONDS / 2 - 5:
        return None
    pairs = itertools.combinations(late, 2)
    return 60 * median((b - a) / (t - s) for (s, a), (t, b) in pairs if t > s)


def main() -> int:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=kinds.file, help="a GGUF chat model; default: a made one")
    parser.add_argument("--seconds", type=kinds.seconds, default=120)
    parser.add_argument("--minutes", type=kinds.minutes, help="instead of --seconds")
    parser.add_argument("--clients", type=kinds.whole(), default=32)
    parser.add_argument("--parallel", type=kinds.whole(), default=8)
    parser.add_argument("--server", choices=("waitress", "gunicorn"), default="waitress")
    parser.add_argument("--seed", type=kinds.whole(0), default=1)
    arguments = parser.parse_args()
    if arguments.minutes is not None:
        arguments.seconds = 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="golem-soak-") as folder:
        if arguments.model is None:
            arguments.model = write_invented(Path(folder) / "first.gguf", *INVENTED)
        watched = Watched(arguments, Path(folder))
        try:
            return asyncio.run(soak(watched, arguments))
        finally:
            watched.process.send_signal(signal.SIGTERM)
            watched.process.wait()


if __name__ == "__main__":
    sys.exit(main())
