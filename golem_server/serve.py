"""Serving with waitress in this process: the socket, the threads, and how it all ends.

The socket opens before the model is loaded, so that a supervisor sees at once that the port is
free. The first SIGTERM or SIGINT stops new requests and lets those that are here finish, for
``-drain`` at most; a second one ends at once.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from golem_server.address import listen, parse_address
from golem_server.app import Application
from golem_server.commands import INTERRUPTED
from golem_server.config import PROGRAM
from golem_server.service import Phase, Service
from golem_server.stderr import say
from golem_server.threads import NO_THREAD, refused_a_thread, starting
from golem_server.waitress_server import Channel, create_server

IDLE_CHECK_SECONDS = 0.05
AGAIN_SECONDS = 2.0  # a signal that ended nothing is sent again
EXIT_SECONDS = 10.0


def announce(service: Service, url: str) -> None:
    """The start-up log of a service that is ready."""
    for line in service.lines:
        say(line)
    if service.chats:
        carries = f"{service.server.parallel} conversations at once, batched into one pass"
    else:
        carries = " and ".join(service.carries) + " only"
    # The path of a unix socket is no URL that a client could be given.
    say(f"listening on {url if url.startswith('unix:') else f'{url}/v1'} — {carries}")


class Server:
    """One service on one address, from the first socket to the exit status."""

    def __init__(self, app: Application):
        """Take the address.

        Raises:
            SettingsError: when it is not this machine's or is taken, or the system gives too few
                threads.
        """
        service = app.service
        self.app = app
        self.service = service
        self.status = 0
        self._stopping = False
        self._failed = False
        self._left = threading.Event()  # the loop is over: signals say nothing any more
        self._signalling = threading.Lock()
        self._main = threading.main_thread().ident
        sock, self.address = listen(parse_address(service.server.addr))
        threads = service.server.server_threads
        with starting(threads):
            self._server = create_server(
                app, sock, threads=threads, max_body=service.server.max_body
            )

    def run(self) -> int:
        """Load, serve until a signal says otherwise, and return the exit status.

        Raises:
            SettingsError: when the system gives no thread to load on.
        """
        sys.unraisablehook = but_exits(unraisable := sys.unraisablehook)
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            with starting():
                self.service.start(self._ready, self._load_failed)
            self._server.run()
        except SystemExit:
            pass  # a signal before or after waitress's own loop
        finally:
            self._left.set()
            with self._signalling:  # what was sent before has come
                time.sleep(0)
            for number, handler in previous.items():
                signal.signal(number, handler)
            sys.unraisablehook = unraisable
            self._close()
        return self.status

    def _close(self) -> None:
        # If a thread that computes does not come back, the process ends all the same.
        last_resort = threading.Timer(EXIT_SECONDS, os._exit, [self.status])
        last_resort.daemon = True
        with contextlib.suppress(RuntimeError):  # no more threads: perhaps why it ends
            last_resort.start()
        self.service.close()
        self._server.task_dispatcher.shutdown()
        self._server.close()
        if self.address.path:
            with contextlib.suppress(OSError):
                os.unlink(self.address.path)
        last_resort.cancel()

    # ---- on the loader's thread ----

    def _ready(self) -> None:
        announce(self.service, self.address.url)

    def _load_failed(self, error: BaseException) -> None:
        say(f"{PROGRAM}: {one_line(error)}")
        self.status = 1
        self._failed = True
        self._leave()

    # ---- on the main thread, inside the server's loop ----

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._left.is_set():
            return
        loading = self.service.phase is Phase.LOADING
        if loading and number == signal.SIGINT:
            self.status = INTERRUPTED
        if self._stopping or self._failed or loading:
            self.service.close()  # answers fail now, so that waitress's threads can end
            raise SystemExit
        self._stopping = True
        say(f"{PROGRAM}: shutting down once every answer is finished; a second signal ends now")
        self.service.drain()
        answered = self._server.drain()
        threading.Thread(
            target=self._finish, args=(answered,), name="golem-drain", daemon=True
        ).start()

    # ---- on the drain's thread ----

    def _finish(self, answered: list[Channel]) -> None:
        """Wait until every answer has left, then end the loop with a second signal.

        answered: the connections that wait for one. Those that came since are told that the
        server ends, and hold nothing up.
        """
        deadline = time.monotonic() + self.service.server.drain
        pause = threading.Event()
        while any(map(_busy, answered)) and time.monotonic() < deadline:
            pause.wait(IDLE_CHECK_SECONDS)
        # What still runs now fails, and says so to its client, before the threads are ended.
        self.service.close()
        while any(map(_busy, answered)) and time.monotonic() < deadline + 1:
            pause.wait(IDLE_CHECK_SECONDS)
        self._leave()

    # ---- on either ----

    def _leave(self) -> None:
        """End the loop with signals: Python loses what a handler raises while it frees objects."""
        while True:
            with self._signalling:
                if self._left.is_set():
                    return
                signal.pthread_kill(self._main, signal.SIGTERM)
            self._left.wait(AGAIN_SECONDS)


def but_exits(report: Callable[[Any], None]) -> Callable[[Any], None]:
    """A ``sys.unraisablehook`` that says nothing of an exit: a signal that comes while Python frees
    objects cannot end the loop, is no fault to tell of, and is sent again."""

    def hook(lost: Any) -> None:
        if not issubclass(lost.exc_type, SystemExit):
            report(lost)

    return hook


def _busy(channel: Channel) -> bool:
    """Whether a connection still owes its client something."""
    return channel.connected and bool(channel.requests or channel.total_outbufs_len)


def one_line(error: BaseException) -> str:
    """An error as a command prints it before it gives up."""
    text = str(error) or type(error).__name__
    if refused_a_thread(error):
        text = NO_THREAD
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif not isinstance(error, (ValueError, RuntimeError)):
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split())
