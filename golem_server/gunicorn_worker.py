"""gunicorn's threaded worker, with golem's words for broken requests and an end for half ones.

gunicorn answers a broken request in HTML, and reads headers on a thread for as long as bytes
trickle in. Written against gunicorn 27; only hooks that every worker class has are used.
"""

import contextlib
import socket
import time
from typing import Any

from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

from golem_server import edge
from golem_server.access_log import printable, request_line
from golem_server.body import GIVE_UP
from golem_server.errors import Refusal
from golem_server.stderr import say

_WORDED = {
    errors.LimitRequestHeaders: edge.headers_too_large,
    errors.LimitRequestLine: lambda: edge.headers_too_large(414),
}


class Worker(ThreadWorker):
    """A worker of one process and many threads."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._reading: dict[Any, float] = {}  # connections whose headers are awaited, since when

    def handle(self, conn: Any) -> Any:
        """A request on a connection, on a thread of the pool."""
        self._reading[conn] = time.monotonic()
        try:
            return super().handle(conn)
        finally:
            self._reading.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> bool:
        """A request whose headers have come."""
        self._reading.pop(conn, None)
        limit = self.wsgi.service.server.max_body
        length = next((value for name, value in req.headers if name == "CONTENT-LENGTH"), "0")
        if int(length) <= limit:
            setattr(req.body, GIVE_UP, req.force_close)
            return super().handle_request(req, conn)
        # The application would refuse it too, after the client was told to go on sending.
        self._refuse(req, conn.sock, edge.too_large(limit))
        _linger(conn.sock)
        return False

    def notify(self) -> None:
        """The main loop's heartbeat, once a second."""
        super().notify()
        # Each holds a thread, so none may be slow where they hold half of them.
        crowded = len(self._reading) > self.cfg.threads // 2
        late = time.monotonic() - (edge.EVICT_SECONDS if crowded else edge.HEADER_SECONDS)
        for conn, since in list(self._reading.items()):
            if since < late:
                with contextlib.suppress(OSError):
                    conn.sock.shutdown(socket.SHUT_RD)  # whoever reads it finds its end

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """Answers a request that could not be read; anything else is the application's fault."""
        if isinstance(exc, errors.ParseException):
            worded = _WORDED.get(type(exc))
            refusal = worded() if worded else edge.malformed(str(exc))
            self._refuse(req or getattr(exc, "req", None), client, refusal)
        elif req is None and isinstance(exc, ValueError):  # a number of thousands of digits
            refusal = edge.malformed("its target or its Content-Length cannot be read")
            self._refuse(req, client, refusal)
        else:
            super().handle_error(req, client, addr, exc)

    def _refuse(self, req: Any, client: socket.socket, refusal: Refusal) -> None:
        path = getattr(req, "path", None) or "-"
        body = self.wsgi.errors.body(path, refusal)
        with contextlib.suppress(OSError):
            client.sendall(edge.raw_response(refusal, body))
        method = getattr(req, "method", None) or "-"
        line = request_line(method, path, str(refusal.status), len(body), 0)
        say(f"{line}: {printable(refusal.logged)}")


def _linger(client: socket.socket) -> None:
    """Reads what a refused client still sends: closing before would reset the connection, and the
    answer would be lost."""
    until = time.monotonic() + edge.LINGER_SECONDS
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(edge.LINGER_IDLE_SECONDS)
        while time.monotonic() < until and client.recv(1 << 16):
            pass
