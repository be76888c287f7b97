"""waitress as golem runs it: what it refuses is golem's to word, and nobody may hold it up.

waitress answers a broken request in plain text and without the application, closes connections
whose client is still sending (which loses the answer), keeps half a request for as long as bytes
trickle in, and can only refuse new work by not accepting it. The classes here change that and
nothing else. Written against waitress 3.0.
"""

import contextlib
import errno
import logging
import resource
import socket
import time
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer, UnixWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask

from golem_server import edge
from golem_server.errors import Refusal, encode
from golem_server.latest import LatestFirst
from golem_server.stderr import say

HEADER_SHOWN = 1 << 10  # bytes in which method and path are looked for, of headers too large
SPARE_DESCRIPTORS = 64  # of the process, beside its connections
PAUSE_SECONDS = 1.0  # after a connection could not be accepted, and between lines about it


class Parser(HTTPRequestParser):
    """One request as it arrives. ``error`` is a Refusal.

    max_body: bytes.
    """

    # What is told of a request that cannot be taken apart.
    command = path = request_uri = "-"
    query = ""
    version = "1.1"
    url_scheme = "http"

    def __init__(self, adj: Adjustments, max_body: int):
        super().__init__(adj)
        self.max_body = max_body
        self.began = time.monotonic()

    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError:  # a number of thousands of digits, a host that is no address
            raise ParsingError("its target or its Content-Length cannot be read") from None
        if self.version != "1.1" and "TRANSFER_ENCODING" in self.headers:
            raise ParsingError("a chunked body needs HTTP/1.1")

    def received(self, data: bytes) -> int:
        before = self.header_plus
        consumed = super().received(data)
        if self.content_length > self.max_body:
            self.refuse(edge.too_large(self.max_body))
        elif self.error is not None:
            if not isinstance(self.error, Refusal) and self.error.code == 431:
                self._name_itself(before + data)
            self.refuse(_refusal(self.error))
        elif self.chunked:
            self._bound_chunks()
        return consumed

    def _name_itself(self, start: bytes) -> None:
        """Reads method and path of a request whose headers are never looked at."""
        words = start[:HEADER_SHOWN].split(b"\r\n")[0].split(b" ")
        self.command, self.path = "-", "-"
        if len(words) == 3:
            self.command, self.path = (word.decode("latin-1") for word in words[:2])

    def refuse(self, refusal: Refusal) -> None:
        """The request is over, and answered with this."""
        self.error = refusal
        self.completed = True
        self.expect_continue = False  # nobody waits for its body

    def _bound_chunks(self) -> None:
        receiver = self.body_rcv
        if len(receiver) + receiver.chunk_remainder > self.max_body:  # it may only be announced
            self.refuse(edge.too_large(self.max_body))
        elif len(receiver.control_line) > edge.CONTROL_LINE_BYTES:
            self.refuse(edge.malformed("the size of a chunk is not told in a line"))
        elif len(receiver.trailer) > edge.TRAILER_BYTES:
            self.refuse(edge.headers_too_large())

    @property
    def allowed(self) -> float:
        """Seconds that may pass until there is more of it."""
        if not self.headers_finished:
            return edge.HEADER_SECONDS
        return edge.BODY_SECONDS + self.body_bytes_received / edge.BODY_RATE


def _refusal(error: Any) -> Refusal:
    """waitress's error as golem words it."""
    if isinstance(error, Refusal):
        return error
    match error.code:
        case 413:
            return edge.malformed("its chunks are mostly sizes and little body")
        case 431:
            return edge.headers_too_large()
        case 501:
            return edge.malformed("of Transfer-Encoding only chunked is read")
        case _:
            return edge.malformed(error.body)


class Task(WSGITask):
    """A request on its thread; a refused one passes through the application like any other."""

    def get_environment(self) -> dict[str, Any]:
        environ = super().get_environment()
        if self.request.error is not None:
            environ[edge.REFUSAL] = self.request.error
        return environ

    def build_response_header(self) -> bytes:
        if self.request.error is not None or self.channel.server.draining:
            self.set_close_on_finish()
        return super().build_response_header()


def _error_task(channel: "Channel", request: Any) -> Any:
    """The task of a request with an error: waitress makes one itself when the application fails,
    which would fail again."""
    kind = Task if isinstance(request.error, Refusal) else ErrorTask
    return kind(channel, request)


class Channel(HTTPChannel):
    """A connection."""

    task_class = Task
    error_task_class = staticmethod(_error_task)
    lingers_since: float | None = None  # the answer has left, and its client may still be sending

    def __init__(self, server: Any, *arguments: Any, **named: Any):
        super().__init__(server, *arguments, **named)
        self.fresh = True  # no request has been answered
        self.idle_since = time.monotonic()

    def parser_class(self, adj: Adjustments) -> Parser:
        return Parser(adj, self.server.max_body)

    def service(self) -> None:
        if self.requests[0].error is not None:
            self.lingers_since = time.monotonic()
        super().service()
        self.fresh = False
        self.idle_since = time.monotonic()

    def received(self, data: bytes) -> bool:
        return False if self.lingers_since is not None else super().received(data)

    def handle_write(self) -> None:
        if self.lingers_since is None or not self.close_when_flushed:
            super().handle_write()
            return
        # Closing now would reset a connection whose client still sends, and lose the answer.
        self._flush_exception(self._flush_some)
        if self.will_close:
            self.handle_close()
        elif not self.total_outbufs_len:
            self.close_when_flushed = False
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)

    @property
    def waits_since(self) -> float | None:
        """Since when nothing whole was asked, None while an answer is owed."""
        if self.requests or self.total_outbufs_len:
            return None
        return self.idle_since if self.request is None else max(self.request.began, self.idle_since)

    def look(self, now: float) -> None:
        """Ends whatever took too long; called on the loop's thread every second."""
        if self.requests:
            return
        request = self.request
        quiet = time.time() - self.last_activity
        if self.total_outbufs_len:
            self.will_close |= quiet > edge.IDLE_SECONDS  # nobody reads the answer
        elif self.lingers_since is not None:
            late = now - self.lingers_since > edge.LINGER_SECONDS
            self.will_close |= late or quiet > edge.LINGER_IDLE_SECONDS
        elif request is None:
            most = edge.HEADER_SECONDS if self.fresh else edge.IDLE_SECONDS
            self.will_close |= now - self.idle_since > most
        elif now - max(request.began, self.idle_since) > request.allowed:
            with self.requests_lock:
                request.refuse(edge.too_slow())
                self.requests.append(request)
                self.request = None
                self.server.add_task(self)


class Serving:
    """What the servers on either kind of socket have in common."""

    channel_class = Channel
    draining = False
    max_body = 0
    _paused_until = 0.0
    _told = 0.0

    def readable(self) -> bool:
        now = time.time()
        if now >= self.next_channel_cleanup:
            self.next_channel_cleanup = now + self.adj.cleanup_interval
            self.maintenance(now)
        return self.accepting and now >= self._paused_until

    def maintenance(self, now: float) -> None:
        """Looks at every connection."""
        for channel in list(self.active_channels.values()):
            channel.look(time.monotonic())

    def handle_accept(self) -> None:
        """Takes a connection, or answers that there are too many."""
        try:
            accepted = self.accept()
        except OSError as error:
            # Without a descriptor left the socket stays readable: asking again at once would spin.
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._paused_until = time.time() + PAUSE_SECONDS
                self._tell(f"no connection can be taken: {error.strerror}")
            return
        if accepted is None:
            return
        connection, address = accepted
        if len(self.active_channels) >= self.adj.connection_limit and not self._evict():
            refusal = edge.crowded(self.adj.connection_limit)
            self._tell(refusal.message)
            with contextlib.suppress(OSError), connection:
                connection.setblocking(False)
                connection.send(edge.raw_response(refusal, encode(refusal.body())))
            return
        with contextlib.suppress(OSError):  # it is gone already
            self.set_socket_options(connection)
        self.channel_class(self, connection, self.fix_addr(address), self.adj, map=self._map)

    def _evict(self) -> bool:
        """Closes the connection that asks for nothing and has done so for longest, if there is
        one."""
        now = time.monotonic()
        waits = [(channel.waits_since, channel) for channel in self.active_channels.values()]
        idle = [one for one in waits if one[0] is not None]
        if not idle:
            return False
        since, channel = min(idle, key=lambda one: one[0])
        if now - since < edge.EVICT_SECONDS:
            return False
        channel.handle_close()
        return True

    def _tell(self, text: str) -> None:
        """A line of the log, not more often than every second."""
        if (now := time.monotonic()) - self._told >= PAUSE_SECONDS:
            self._told = now
            say(f"golem-server: {text}")

    def drain(self) -> list[Channel]:
        """Answer what is here and close each connection after its answer, idle ones at once.

        Returns the connections whose answers are not finished. New ones are still taken, so that
        the application can tell them that the server ends.
        """
        self.draining = True
        channels = list(self.active_channels.values())
        for channel in channels:
            if not channel.requests and channel.request is None:
                channel.will_close = True
        self.pull_trigger()
        return [channel for channel in channels if channel.requests]


class TcpServer(Serving, TcpWSGIServer):
    """Listens on a port."""


class UnixServer(Serving, UnixWSGIServer):
    """Listens on a socket in the file system."""


def create_server(
    application: Any, sock: socket.socket, *, threads: int, max_body: int
) -> TcpServer | UnixServer:
    """A server for an application on a bound socket.

    Args:
        threads: requests handled at once.
        max_body: bytes of the largest body.
    """
    adjustments = Adjustments(
        sockets=[sock],
        threads=threads,
        connection_limit=_connections(max(1000, 4 * threads)),
        # Without a look at the next request a client that leaves is not noticed.
        channel_request_lookahead=1,
        cleanup_interval=1,
        max_request_header_size=edge.HEADER_BYTES + 1,  # the first length that is too much
        # Of a chunked body as it is sent, sizes included; its own length is bounded by Parser.
        max_request_body_size=16 * max_body,
        asyncore_use_poll=True,
        ident="golem",
        clear_untrusted_proxy_headers=True,
    )
    # It warns whenever a request waits for a thread, which a burst of short ones may.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    dispatcher = ThreadedTaskDispatcher()
    dispatcher.queue_cv = LatestFirst(dispatcher.lock)
    dispatcher.set_thread_count(threads)
    kind = UnixServer if sock.family == socket.AF_UNIX else TcpServer
    server = kind(
        application,
        {},
        True,
        sock,
        dispatcher=dispatcher,
        adj=adjustments,
        bind_socket=False,
        sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()),
    )
    server.max_body = max_body
    return server


def _connections(wanted: int) -> int:
    """How many connections the process has descriptors for: two for each, since a large body is
    kept in a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(16, min(wanted, (soft - SPARE_DESCRIPTORS) // 2))
