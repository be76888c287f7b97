"""The loop of the server in this process, and the signals that end it."""

import os
import signal
import sys
import threading
import time

import pytest

from golem_core.plugins import load_plugins
from golem_server import config, serve
from golem_server.app import create_app
from golem_server.service import Service
from tests.plugins import tiny

PATIENCE = 20.0


@pytest.fixture
def server(tmp_path):
    file = tiny.write(tmp_path / "llama-f32.gguf", "llama")
    given = ["-model", str(file), "-addr", "127.0.0.1:0", "-context", "64", "-threads", "1"]
    plugins = load_plugins()
    service = Service(config.load(given, plugins, {}).settings, plugins)
    return serve.Server(create_app(service))


def test_an_end_that_python_loses_comes_again(server, monkeypatch):
    monkeypatch.setattr(serve, "AGAIN_SECONDS", 0.05)
    ready, lost = threading.Event(), []
    monkeypatch.setattr(server, "_ready", ready.set)

    def loop():
        """As waitress's, but that what the first end raises is lost, as in a weak reference."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                ready.wait(0.01)
                if ready.is_set() and not server._stopping:
                    os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.01)
            except SystemExit:
                lost.append(1)
                if len(lost) > 1:
                    raise

    monkeypatch.setattr(server._server, "run", loop)
    before = signal.getsignal(signal.SIGTERM)
    assert server.run() == 0
    assert len(lost) == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_exit_that_python_loses_is_not_told_of():
    """A signal's SystemExit that comes while an object is freed is no fault; others are."""
    told = []
    before, sys.unraisablehook = sys.unraisablehook, serve.but_exits(told.append)

    class Freed:
        def __init__(self, error):
            self.error = error

        def __del__(self):
            raise self.error

    try:
        Freed(SystemExit())
        Freed(ValueError("a fault"))
    finally:
        sys.unraisablehook = before
    assert [lost.exc_type for lost in told] == [ValueError]
