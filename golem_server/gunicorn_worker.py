"""gunicorn's threaded worker, with golem's words for broken requests and an end for half ones.

gunicorn answers a broken request in HTML, reads headers on a thread for as long as bytes trickle
in, and starts threads one by one while it serves. Written against gunicorn 27; only hooks that
every worker class has are used.
"""

import contextlib
import mmap
import os
import socket
import threading
import time
from concurrent.futures import Executor
from typing import Any, NoReturn

import gunicorn.http.message
from gunicorn.http import errors
from gunicorn.http.body import ChunkedReader
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import ThreadWorker

from golem_core.settings import SettingsError
from golem_server import edge
from golem_server.access_log import printable, request_line
from golem_server.body import GIVE_UP
from golem_server.config import PROGRAM
from golem_server.errors import Refusal
from golem_server.memory import bound_arenas
from golem_server.serve import one_line
from golem_server.stderr import say
from golem_server.threads import starting

hopeless = mmap.mmap(-1, 1)  # shared with the arbiter: not 0 once a worker has given up
_TOO_LARGE = (errors.LimitRequestHeaders, errors.LimitRequestLine)


class Request(gunicorn.http.message.Request):
    """The line and the headers of a request, bounded together as waitress bounds them."""

    def parse(self, unreader: Any) -> bytes:
        """Reads them; returns what was read beyond them."""
        self.limit_request_line = self.limit_request_field_size = edge.HEADER_BYTES
        self.max_buffer_headers = self.limit_request_fields = edge.HEADER_BYTES
        rest = super().parse(unreader)
        taken = len(f"{self.method} {self.uri} HTTP/1.1\r\n\r\n")
        taken += sum(len(f"{name}: {value}\r\n") for name, value in self.headers)
        if taken > edge.HEADER_BYTES:
            raise errors.LimitRequestHeaders("in all")
        # What gunicorn takes the bounds of a chunked body from.
        self.limit_request_field_size = edge.CONTROL_LINE_BYTES
        self.max_buffer_headers = edge.TRAILER_BYTES
        return rest


RequestParser.mesg_class = Request


class Chunks(ChunkedReader):
    """A chunked body whose chunks are refused when they are announced.

    limit: bytes of all of them.
    """

    def __init__(self, req: Any, unreader: Any, limit: int):
        super().__init__(req, unreader)
        self.limit = limit
        self.announced = 0

    def parse_chunk_size(self, unreader: Any, data: bytes | None = None) -> Any:
        """The size of the next chunk, and what was read of it."""
        size, rest = super().parse_chunk_size(unreader, data)
        self.announced += size
        if self.announced > self.limit:
            raise edge.too_large(self.limit)
        return size, rest


class Worker(ThreadWorker):
    """A worker of one process and many threads."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._reading: dict[Any, float] = {}  # connections whose headers are awaited, since when

    def get_thread_pool(self) -> Executor:
        """The pool with all of its threads, so that the process does not grow while it serves."""
        bound_arenas()
        pool = super().get_thread_pool()
        try:
            with starting(self.cfg.threads):
                start_threads(pool, self.cfg.threads)
        except SettingsError as error:
            give_up(error)
        return pool

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
            chunked = isinstance(req.body.reader, ChunkedReader)
            if chunked:
                req.body.reader = Chunks(req, conn.parser.unreader, limit)
            kept = super().handle_request(req, conn)
            if chunked and req.body.reader.announced > limit:
                _linger(conn.sock)
            return kept
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
            large = isinstance(exc, _TOO_LARGE)
            refusal = edge.headers_too_large() if large else edge.malformed(str(exc))
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


def give_up(error: BaseException) -> NoReturn:
    """Ends the worker, and with it the server, for a reason that another try would meet again."""
    say(f"{PROGRAM}: {one_line(error)}")
    hopeless[0] = 1
    os._exit(0)  # about any other status gunicorn has lines of its own


def start_threads(pool: Executor, count: int) -> None:
    """Makes a pool start its threads: it does while every one that it has is busy."""
    all_there = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(all_there.wait)
    except RuntimeError:  # the system gives no more of them
        all_there.abort()
        raise
    all_there.wait()


def _linger(client: socket.socket) -> None:
    """Reads what a refused client still sends: closing before would reset the connection, and the
    answer would be lost."""
    until = time.monotonic() + edge.LINGER_SECONDS
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        client.settimeout(edge.LINGER_IDLE_SECONDS)
        while time.monotonic() < until and client.recv(1 << 16):
            pass
