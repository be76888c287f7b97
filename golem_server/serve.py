"""Serving with waitress in this process: the socket, the threads, and how it all ends.

The socket opens before the model is loaded, so that a supervisor sees at once that the port is
free. The first SIGTERM or SIGINT stops new requests and lets those that are here finish, for
``-drain`` at most; a second one ends at once.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from typing import Any

import waitress.server

from golem_core.settings import SettingsError
from golem_server.address import Address, listen, parse_address
from golem_server.app import Application
from golem_server.commands import INTERRUPTED
from golem_server.config import PROGRAM
from golem_server.service import Phase, Service
from golem_server.stderr import say

BODY_MARGIN = 1 << 20  # waitress refuses only what golem's own, better worded limit let through
IDLE_CHECK_SECONDS = 0.05
EXIT_SECONDS = 10.0


def announce(service: Service, url: str) -> None:
    """The start-up log of a service that is ready."""
    for line in service.lines:
        say(line)
    if service.chats:
        carries = f"{service.server.parallel} conversations at once, batched into one pass"
    else:
        carries = " and ".join(service.carries) + " only"
    say(f"listening on {url}/v1 — {carries}")


def create_server(app: Application, sock: socket.socket | None, address: Address) -> Any:
    """A waitress server for the application, on a listening socket or a unix socket's path."""
    settings = app.service.server
    threads = settings.server_threads
    where: dict[str, Any] = {"sockets": [sock]} if sock else {"unix_socket": address.path}
    return waitress.server.create_server(
        app,
        **where,
        threads=threads,
        connection_limit=max(1000, 4 * threads),
        # Without a look at the next request a client that leaves is not noticed.
        channel_request_lookahead=1,
        channel_timeout=120,
        max_request_body_size=settings.max_body + BODY_MARGIN,
        asyncore_use_poll=True,
        ident="golem",
        clear_untrusted_proxy_headers=True,
    )


class Server:
    """One service on one address, from the first socket to the exit status."""

    def __init__(self, app: Application):
        """Take the address.

        Raises:
            SettingsError: when it is not this machine's or is taken.
        """
        service = app.service
        self.app = app
        self.service = service
        self.status = 0
        self._stopping = False
        self._failed = False
        self._main = threading.main_thread().ident
        address = parse_address(service.server.addr)
        self._sock = None if address.path else listen(address)
        if self._sock is not None:
            address = Address(address.host, self._sock.getsockname()[1])
        self.address = address
        try:
            self._server = create_server(app, self._sock, address)
        except OSError as error:
            raise SettingsError(f"-addr {address}: {error.strerror or error}") from None

    def run(self) -> int:
        """Load, serve until a signal says otherwise, and return the exit status."""
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            self.service.start(self._ready, self._load_failed)
            self._server.run()
        except SystemExit:
            pass  # a signal before or after waitress's own loop
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._close()
        return self.status

    def _close(self) -> None:
        # If a thread that computes does not come back, the process ends all the same.
        last_resort = threading.Timer(EXIT_SECONDS, os._exit, [self.status])
        last_resort.daemon = True
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
        signal.pthread_kill(self._main, signal.SIGTERM)

    # ---- on the main thread, inside the server's loop ----

    def _on_signal(self, number: int, frame: Any) -> None:
        loading = self.service.phase is Phase.LOADING
        if loading and number == signal.SIGINT:
            self.status = INTERRUPTED
        if self._stopping or self._failed or loading:
            self.service.close()  # answers fail now, so that waitress's threads can end
            raise SystemExit
        self._stopping = True
        say(f"{PROGRAM}: shutting down once every answer is finished; a second signal ends now")
        self._server.accepting = False
        self.service.drain()
        threading.Thread(target=self._finish, name="golem-drain", daemon=True).start()

    # ---- on the drain's thread ----

    def _finish(self) -> None:
        """Wait until every answer has left, then end the loop with a second signal."""
        deadline = time.monotonic() + self.service.server.drain
        pause = threading.Event()
        while self._busy() and time.monotonic() < deadline:
            pause.wait(IDLE_CHECK_SECONDS)
        # What still runs now fails, and says so to its client, before the threads are ended.
        self.service.close()
        while self._busy() and time.monotonic() < deadline + 1:
            pause.wait(IDLE_CHECK_SECONDS)
        signal.pthread_kill(self._main, signal.SIGTERM)

    def _busy(self) -> bool:
        channels = list(self._server.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)


def one_line(error: BaseException) -> str:
    """An error as a command prints it before it gives up."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif not isinstance(error, (ValueError, RuntimeError)):
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split())
