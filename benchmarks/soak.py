"""Does a server stay whole under many clients that come, and leave, as they like?

    python benchmarks/soak.py --model MODEL.gguf --seconds 120 --clients 200

starts a server of its own on the loopback interface and plays clients that ask, streamed or not,
and hang up at random: while they wait, while the prompt is read, in the middle of an answer, with
FIN or with RST. Then it says whether

- every answer that was waited for came whole, and the same prompt got the same greedy text;
- afterwards no slot is held and nothing waits;
- threads and file descriptors are as many as before, and the server's own threads within bounds;
- the memory of the last quarter is within 5 % of the first quarter's.

The exit status is 1 when something does not hold.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
TOPICS = ("rain", "bread", "ships", "winter", "clocks", "maps", "bees", "salt", "glass", "trains")
MOST_TOKENS = 24
SETTLE_SECONDS = 60.0
GROWTH = 1.05
POOLS = ("waitress", "ThreadPoolExecutor")  # gunicorn's grows up to its bound as it is needed


# ---- the server's side ----


class State:
    """``GET /soak``: what the process holds."""

    def __init__(self, service):
        self.service = service

    def on_get(self, req, resp):
        engine = self.service.engine
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        names = [thread.name for thread in threading.enumerate()]
        pool = sum(name.startswith(POOLS) for name in names)
        resp.media = {
            "busy": engine.busy,
            "slots": sum(slot.is_processing for slot in engine.slots),
            "threads": len(names) - pool,
            "pool": pool,
            "pool_bound": self.service.server.server_threads,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
            "cancelled": engine.stats.cancelled,
            "finished": engine.stats.finished,
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
    from golem_server.serve import Server

    return Server(create_app()).run()


# ---- the clients' side ----


@dataclass
class Tally:
    """What the clients saw."""

    outcomes: Counter = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)  # prompt -> its first whole answer
    wrong: list[str] = field(default_factory=list)


class Client:
    """One client after another in the same place."""

    def __init__(self, port: int, seed: int, tally: Tally):
        self.port = port
        self.random = random.Random(seed)
        self.tally = tally

    async def play(self, until: float) -> None:
        """Ask again and again until the time has come."""
        while time.monotonic() < until:
            try:
                self.tally.outcomes[await self.ask()] += 1
            except (OSError, asyncio.IncompleteReadError) as error:
                self.tally.wrong.append(f"the connection broke: {error!r}")

    async def ask(self) -> str:
        topic = self.random.choice(TOPICS)
        prompt = f"Tell me about {topic}. " + "Be kind. " * self.random.choice((0, 3, 40))
        streamed = self.random.random() < 0.6
        body = {
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MOST_TOKENS,
            "stream": streamed,
        }
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request(body))
            if self.random.random() < 0.5:
                return await self.leave(reader, writer)
            received = await reader.read()
        finally:
            writer.close()
        self.check(prompt, streamed, received)
        return "streamed" if streamed else "whole"

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

    def check(self, prompt: str, streamed: bool, received: bytes) -> None:
        head, _, rest = received.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            self.tally.wrong.append(f"{head[:60]!r} {rest[:200]!r}")
            return
        text = streamed_text(rest) if streamed else whole_text(rest)
        if text is None:
            self.tally.wrong.append(f"an answer that is not whole: …{rest[-120:]!r}")
        elif text != self.tally.texts.setdefault(prompt, text):
            self.tally.wrong.append(f"two texts for one prompt: {text!r}")


def request(body: dict) -> bytes:
    """A POST as bytes."""
    payload = json.dumps(body).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        + f"Content-Length: {len(payload)}\r\n\r\n".encode()
        + payload
    )


def whole_text(body: bytes) -> str | None:
    """The text of an unstreamed answer, None when something is missing."""
    try:
        (choice,) = json.loads(body)["choices"]
    except (ValueError, KeyError):
        return None
    return choice["message"]["content"] if choice["finish_reason"] in ("stop", "length") else None


def streamed_text(body: bytes) -> str | None:
    """The text of a chunked stream, None when its end is missing."""
    text, reason, done = "", None, False
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            (choice,) = json.loads(line[6:])["choices"]
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
        done = done or line.startswith(b"data: [DONE]")
    return text if done and reason in ("stop", "length") else None


class Watched:
    """The server's process, looked at from outside."""

    def __init__(self, arguments: argparse.Namespace):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("GOLEM_")} | {
            "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
            "GOLEM_MODEL": str(arguments.model),
            "GOLEM_ADDR": f"127.0.0.1:{self.port}",
            "GOLEM_PARALLEL": str(arguments.parallel),
            "GOLEM_CONTEXT": str(512 * arguments.parallel),
        }
        command = [sys.executable, "-c", "import sys, soak; sys.exit(soak.serve())"]
        if arguments.server == "gunicorn":
            command = [sys.executable, "-m", "gunicorn", "--log-level", "warning"]
            command += ["-c", "python:golem_server.gunicorn_conf", "soak:create_app()"]
        self.process = subprocess.Popen(command, env=environ, cwd=ROOT)

    async def state(self) -> dict | None:
        """What the process holds, None while it loads."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"GET /soak HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        return json.loads(body) if b" 200 " in head.split(b"\r\n")[0] else None

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
    # One round of everything, so that buffers and caches exist before anything is measured.
    warm = [Client(watched.port, -seed - 1, tally) for seed in range(arguments.clients)]
    await asyncio.gather(*(client.ask() for client in warm))
    before = await watched.until(lambda state: not state["busy"])

    until = time.monotonic() + arguments.seconds
    clients = [Client(watched.port, arguments.seed + i, tally) for i in range(arguments.clients)]
    playing = asyncio.gather(*(client.play(until) for client in clients))
    sizes = []
    while not playing.done():
        await asyncio.wait([playing], timeout=1.0)
        sizes.append((await watched.state())["bytes"])
    await playing
    after = await watched.until(lambda state: not state["busy"])

    quarter = max(1, len(sizes) // 4)
    first, last = mean(sizes[:quarter]), mean(sizes[-quarter:])
    checks = {
        "answers whole and equal": not tally.wrong,
        "slots idle": not after["slots"] and not after["busy"],
        "threads as before": after["threads"] == before["threads"]
        and after["pool"] <= after["pool_bound"],
        "descriptors as before": after["descriptors"] <= before["descriptors"],
        "memory within 5 %": last <= first * GROWTH,
    }
    print(f"clients {arguments.clients}, {arguments.seconds:.0f} s, {arguments.server}")
    for outcome, count in sorted(tally.outcomes.items()):
        print(f"  {outcome:<16} {count}")
    print(f"  cancelled in the engine {after['cancelled']}, finished {after['finished']}")
    print(f"  memory {first / 2**20:.1f} -> {last / 2**20:.1f} MiB ({last / first:.3f})")
    for name in ("threads", "pool"):
        print(f"  {name} {before[name]} -> {after[name]}")
    print(f"  descriptors {before['descriptors']} -> {after['descriptors']}")
    for line in tally.wrong[:5]:
        print(f"  {line}")
    for name, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(checks.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--server", choices=("waitress", "gunicorn"), default="waitress")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    watched = Watched(arguments)
    try:
        return asyncio.run(soak(watched, arguments))
    finally:
        watched.process.send_signal(signal.SIGTERM)
        watched.process.wait()


if __name__ == "__main__":
    sys.exit(main())
