"""Whether a client is still there, asked between passes.

Neither server tells a WSGI application when a connection ends, but both leave something in the
environment to ask. A client that shuts down its sending half after the request counts as gone.
"""

import select
import socket
from collections.abc import Callable, Mapping
from typing import Any

# Not defined on every platform; there a hang-up shows as an end of file below.
RDHUP = getattr(select, "POLLRDHUP", 0)


def client_gone(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """A function that says whether the client of this request has hung up.

    It costs microseconds. Under a server that is neither waitress (which needs
    ``channel_request_lookahead``) nor gunicorn it always says no.
    """
    if "waitress.client_disconnected" in environ:
        return environ["waitress.client_disconnected"]
    if "gunicorn.socket" in environ:
        connection = environ["gunicorn.socket"]
        return lambda: _hung_up(connection)
    return lambda: False


def _hung_up(connection: socket.socket) -> bool:
    try:
        poll = select.poll()
        poll.register(connection, select.POLLIN | RDHUP)
        events = poll.poll(0)
        if not events:
            return False
        if events[0][1] & (select.POLLHUP | select.POLLERR | select.POLLNVAL | RDHUP):
            return True
        # Bytes waiting are a pipelined request: its sender is there.
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True
