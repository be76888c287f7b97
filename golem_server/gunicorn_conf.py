"""gunicorn's settings for golem: one worker, many threads, the engine started after the fork.

``gunicorn -c python:golem_server.gunicorn_conf "golem_server.wsgi:create_app()"``; address and
threads follow golem's own settings (``GOLEM_ADDR``, ``GOLEM_PARALLEL``, ``GOLEM_QUEUE``, …).
"""

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import gunicorn.http.wsgi
from gunicorn.errors import HaltServer

from golem_core.plugins import load_plugins
from golem_core.settings import SettingsError
from golem_server.address import parse_address
from golem_server.app import Application
from golem_server.config import PROGRAM, ServerSettings, load, validate
from golem_server.gunicorn_worker import give_up, hopeless
from golem_server.serve import IDLE_CHECK_SECONDS, announce, one_line
from golem_server.threads import starting

# gunicorn takes every name here that is one of its settings' ("config" is), hence the imports by
# name and the underscore.
try:
    _settings = load([], load_plugins()).settings
    validate(_settings)
except SettingsError as error:
    raise SystemExit(f"{PROGRAM}: {one_line(error)}") from None
_server: ServerSettings = _settings["server"]

gunicorn.http.wsgi.SERVER = "golem"  # the Server header

bind = str(parse_address(_server.addr))
loglevel = "warning"  # golem's own lines say what is served, and where
workers = 1
worker_class = "golem_server.gunicorn_worker.Worker"
threads = _server.server_threads
worker_connections = max(1000, 4 * threads)
timeout = 120  # of the main loop's heartbeat; a long answer does not hold that up
# The drain, and what gunicorn itself takes to close connections that are kept alive.
graceful_timeout = max(1, round(_server.drain)) + 3
keepalive = 75
max_requests = 0
preload_app = False
control_socket_disable = True


def child_exit(server: Any, worker: Any) -> None:
    """End with the worker that cannot serve; it has said why."""
    if hopeless[0]:
        server.log.error_log.setLevel(logging.CRITICAL)
        raise HaltServer("the worker gave up", 1)


def on_starting(server: Any) -> None:
    """Refuse more than one worker before anything is loaded."""
    if server.cfg.workers != 1:
        raise SystemExit(
            f"golem: gunicorn must run with workers=1 ({server.cfg.workers} set): the engine "
            "batches requests inside one process; add threads, or run one instance a port and "
            "balance above it"
        )


def post_worker_init(worker: Any) -> None:
    """Load the model in the process that will serve it."""
    application = worker.wsgi
    service = application.service
    finish = signal.getsignal(signal.SIGTERM)

    def drain(number: int, frame: Any) -> None:
        service.drain()
        worker.cfg.set("keepalive", 0)  # every connection ends with its answer
        threading.Thread(
            target=_finish,
            args=(application, lambda: finish(number, None)),
            name="golem-drain",
            daemon=True,
        ).start()

    def ready() -> None:
        announce(service, str(worker.sockets[0]))

    signal.signal(signal.SIGTERM, drain)
    try:
        with starting():
            service.start(ready, give_up)
    except SettingsError as error:
        give_up(error)


def _finish(application: Application, end: Callable[[], None]) -> None:
    """Wait until what was being answered is; meanwhile new requests are told that the server ends.

    gunicorn alone would take no new connection, and leave its client waiting for an answer.
    """
    answered = list(application.running)
    deadline = time.monotonic() + application.service.server.drain
    pause = threading.Event()
    while any(one in application.running for one in answered) and time.monotonic() < deadline:
        pause.wait(IDLE_CHECK_SECONDS)
    application.service.close()  # what still runs fails, and says so to its client
    end()


def worker_exit(server: Any, worker: Any) -> None:
    """End the engine before the process."""
    service = getattr(getattr(worker, "wsgi", None), "service", None)  # none if it never came up
    if service is not None:
        service.close()
