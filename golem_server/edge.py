"""What is wrong with a request before it is one: its line, its headers, its body as bytes.

Web servers have words, shapes and tracebacks of their own for these. golem answers them like any
other wrong request: the error's envelope in the dialect of the path, what to change, a line in the
log. Under waitress they pass through the application as a refusal in the environment; gunicorn's
are written here, since its application never sees them.
"""

from golem_core.setting_kinds import show_size
from golem_server.errors import JSON, RETRY_SECONDS, Refusal

REFUSAL = "golem.refusal"  # in the WSGI environment: the request is refused with this

HEADER_BYTES = 64 << 10  # of the request's line and headers
CONTROL_LINE_BYTES = 4 << 10  # of a chunk: its size and extensions
TRAILER_BYTES = 16 << 10
HEADER_SECONDS = 20.0  # from the first byte of a request, or from the connection, to their end
BODY_SECONDS = 60.0  # for a body, and a second more for every BODY_RATE bytes that have come
BODY_RATE = 1 << 10
IDLE_SECONDS = 120.0  # a connection may wait for its next request
EVICT_SECONDS = 1.0  # … or so long, where there are as many connections as may be
LINGER_SECONDS = 30.0  # what a refused client still sends is read and dropped for so long
LINGER_IDLE_SECONDS = 5.0  # … and not longer than this when nothing comes

STATUS_LINES = {
    400: "400 Bad Request",
    408: "408 Request Timeout",
    413: "413 Content Too Large",
    431: "431 Request Header Fields Too Large",
    503: "503 Service Unavailable",
}


def malformed(detail: str) -> Refusal:
    """Bytes that are not HTTP. detail: what about them, a clause."""
    return Refusal(
        f"this is no HTTP/1.1 request: {detail.rstrip('.')}; the connection is closed", status=400
    )


def too_large(limit: int) -> Refusal:
    """A body of more than ``limit`` bytes."""
    return Refusal(
        f"the request body is larger than {show_size(limit)}: "
        "send less, or start the server with a larger -max-body",
        status=413,
    )


def too_slow() -> Refusal:
    """A request that did not arrive in time."""
    return Refusal(
        f"the request did not arrive in time: its headers may take {HEADER_SECONDS:g} s, its body "
        f"{BODY_SECONDS:g} s and a second more for each {show_size(BODY_RATE)}; send it again",
        status=408,
    )


def headers_too_large() -> Refusal:
    """A request's line or headers past the limit."""
    return Refusal(
        f"the request's line and headers are larger than {show_size(HEADER_BYTES)}: send fewer or "
        "shorter ones; what a model is to read belongs into the body",
        status=431,
    )


def crowded(limit: int) -> Refusal:
    """A connection more than there may be."""
    return Refusal(
        f"{limit} connections are open, and no more are taken: close idle ones or try again later",
        "unavailable_error",
        retry=True,
    )


def raw_response(refusal: Refusal, body: bytes) -> bytes:
    """A whole response that closes the connection, for where no application runs."""
    lines = [
        f"HTTP/1.1 {STATUS_LINES[refusal.status]}",
        "Server: golem",
        f"Content-Type: {JSON}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if refusal.retry:
        lines.append(f"Retry-After: {RETRY_SECONDS}")
    return "\r\n".join([*lines, "", ""]).encode() + body
