"""Running servers: each test that takes ``served`` runs on waitress and on gunicorn."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.server.recorded import Recorded

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds before a wait is a failure; nothing takes as long
SETTINGS = {
    "GOLEM_MODEL": "fake.gguf",
    "GOLEM_ADDR": "127.0.0.1:0",
    "GOLEM_PARALLEL": "2",
    "GOLEM_CONTEXT": "512",
    "GOLEM_QUEUE": "2",
    "GOLEM_DRAFT": "off",  # a token a pass
    "GOLEM_N": "40",
    "GOLEM_MAX_BODY": "8KiB",
    "GOLEM_DRAIN": "20s",
}
COMMANDS = {
    "waitress": [sys.executable, "-m", "tests.server.fake"],
    "gunicorn": [
        *(sys.executable, "-m", "gunicorn", "-c", "python:golem_server.gunicorn_conf"),
        *("--log-level", "info"),  # which tells the port before the model is there
        "tests.server.fake:create_app()",
    ],
    "golem-server": [sys.executable, "-m", "golem_server.cli"],  # on a real model file
    "golem-gunicorn": [
        *(sys.executable, "-m", "gunicorn", "-c", "python:golem_server.gunicorn_conf"),
        *("--log-level", "info"),
        "golem_server.wsgi:create_app()",
    ],
}
LISTENING = {
    "waitress": r"listening on http://([\d.]+):(\d+)/v1",
    "gunicorn": r"Listening at: http://([\d.]+):(\d+)",
    "golem-server": r"listening on http://([\d.]+):(\d+)/v1",
    "golem-gunicorn": r"Listening at: http://([\d.]+):(\d+)",
}


class Running:
    """A server in its own process, its log, and ways to talk to it."""

    def __init__(self, kind: str, **settings: str):
        self.kind = kind
        self.log: list[str] = []
        self._changed = threading.Condition()
        environ = {k: v for k, v in os.environ.items() if not k.startswith("GOLEM_")}
        path = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
        environ |= SETTINGS | settings | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            COMMANDS[kind],
            cwd=ROOT,
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for_line(self, pattern, start=0):
        """The match of the first log line that has one, from line ``start`` on."""

        def found():
            return next((m for line in self.log[start:] if (m := re.search(pattern, line))), None)

        with self._changed:
            assert self._changed.wait_for(found, PATIENCE), (pattern, self.log)
            return found()

    def ready(self):
        """Wait until it serves; returns itself."""
        host, port = self.wait_for_line(LISTENING[self.kind]).groups()
        self.host, self.port = host, int(port)
        self.until(lambda: self.get("/health")[0] == 200)
        self.wait_for_line("listening on ")  # the last of the lines about its start
        return self

    def until(self, condition):
        """Look until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < deadline, (condition, self.log[-5:])
        return value

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None):
        """``(status, headers, bytes)``."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path, **headers):
        status, _, body = self.request("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, path, data, **headers):
        """The status and the JSON of the answer to JSON, or to bytes as they are."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        status, _, answer = self.request("POST", path, body, headers)
        return status, json.loads(answer)

    def chat(self, text, **fields):
        return self.post("/v1/chat/completions", chat_body(text, **fields))

    def events(self, path, data):
        """The ``data:`` texts of a stream."""
        status, headers, body = self.request("POST", path, json.dumps(data).encode())
        assert status == 200, body
        assert headers["Content-Type"] == "text/event-stream"
        return events_of(body)

    def open(self, path, data):
        """A raw socket on which a request was sent."""
        connection = socket.create_connection((self.host, self.port), PATIENCE)
        body = json.dumps(data).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection

    # ---- the scripted engine ----

    @property
    def state(self):
        status, body = self.get("/test/state")
        assert status == 200, body
        return body

    def allow(self, passes):
        """Let so many passes through; None = all."""
        self.request("POST", "/test/state", json.dumps(passes).encode())

    def fill_slots(self, data):
        """Two sockets whose requests hold the two slots, in a pass that is held back."""
        self.allow(0)
        first = self.open("/v1/chat/completions", data)
        self.until_state(lambda s: s["held_back"])
        second = self.open("/v1/chat/completions", data)
        self.until_state(lambda s: s["busy"] == 2)
        self.allow(1)  # slots are given between passes
        self.until_state(lambda s: s["held_back"] and all(s["slots"]))
        return [first, second]

    def until_state(self, condition):
        return self.until(lambda: (s := self.state) and condition(s) and s)

    def until_idle(self):
        return self.until_state(lambda s: not s["busy"] and not any(s["slots"]))

    # ---- the end ----

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # gunicorn's worker too
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stderr.close()


def chat_body(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def events_of(body: bytes):
    """The payloads of a stream's events, comments left out."""
    frames = [f for f in body.decode().split("\n\n") if f and not f.startswith(":")]
    assert all(frame.startswith("data: ") for frame in frames), frames
    return [frame.removeprefix("data: ") for frame in frames]


def receive(connection, enough):
    """What arrives on a socket until that is enough; its end before that is a failure."""
    received = b""
    while not enough(received):
        chunk = connection.recv(65536)
        assert chunk, received
        received += chunk
    return received


def reset(connection):
    """Close a connection with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.fixture(scope="session")
def _running():
    servers = {}

    def get(kind, **settings):
        key = (kind, *settings.items())
        if key not in servers:
            servers[key] = Running(kind, **settings).ready()
        return servers[key]

    yield get
    for server in servers.values():
        server.stop()


@pytest.fixture(params=["waitress", "gunicorn"])
def served(request, _running):
    """A server shared by the tests; it is left idle with its gate open."""
    server = _running(request.param)
    yield server
    server.allow(None)
    server.until_idle()


@pytest.fixture(params=["waitress", "gunicorn"])
def roomy(request, _running):
    """As ``served``, with room for long prompts."""
    server = _running(request.param, GOLEM_CONTEXT="8192")
    yield server
    server.until_idle()


@pytest.fixture(params=["waitress", "gunicorn"])
def start(request):
    """Starts servers of one kind with settings of their own, and stops them afterwards."""
    started = []

    def begin(**settings):
        started.append(Running(request.param, **settings))
        return started[-1]

    begin.kind = request.param
    yield begin
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def _tiny(tmp_path_factory):
    client = Recorded(tmp_path_factory.mktemp("tiny"))
    yield client
    client.service.close()


@pytest.fixture
def tiny(_tiny):
    """The recorded server's model in this process, its slots empty."""
    _tiny.erase()
    return _tiny
