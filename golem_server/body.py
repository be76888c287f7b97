"""Reading a request's body and the JSON in it, under either server.

waitress takes chunked bodies apart itself; gunicorn hands them over as an input that ends, without
a length. The content type is not looked at: curl calls everything a form.
"""

import time
from collections.abc import Mapping
from typing import Any

import falcon
import msgspec

from golem_server.access_log import NOTE, Note
from golem_server.disconnect import client_gone
from golem_server.edge import BODY_RATE, BODY_SECONDS, malformed, too_large, too_slow
from golem_server.errors import ClientGone, Refusal
from golem_server.memory import LARGE, ROOM, VALUE_BYTES

GIVE_UP = "golem_gives_up"  # of gunicorn's input: no further request comes on this connection
ROOM_TIMES = 8  # of the largest body: what all that are handled at once may come to
MOST_VALUES = 1 << 21
_PART = 1 << 16  # bytes read at once
JSON_ERROR = "the request body is not the JSON this endpoint reads"


def read_body(req: falcon.Request, limit: int) -> bytes:
    """The whole body, at most ``limit`` bytes; a large one may wait until there is room for it.

    Raises:
        Refusal: 413 when it is larger, before it is read where its length is known; 400 when it is
            not in the chunks that it was announced in, 408 when it comes too slowly, 503 when
            there is no room for it.
        ClientGone: when it ends before its announced length.
    """
    expected = req.content_length
    if expected is not None and expected > limit:
        raise too_large(limit)
    if expected is None and not req.env.get("wsgi.input_terminated"):
        return b""
    size = limit if expected is None else expected
    if size < LARGE:
        return _bring(req, limit)
    note: Note = req.env[NOTE]
    ROOM.enter(size, ROOM_TIMES * limit, client_gone(req.env))
    note.body_bytes += size
    body = _bring(req, limit)
    more = body.count(b",") * VALUE_BYTES + len(body) - size
    ROOM.add(more)
    note.body_bytes += more
    return body


def _bring(req: falcon.Request, limit: int) -> bytes:
    expected = req.content_length
    stream = req.stream if expected is None else req.bounded_stream
    bring = _read_from_gunicorn if "gunicorn.socket" in req.env else _read
    body = bring(stream, limit, req.env)
    if expected is not None and len(body) < expected:
        raise ClientGone
    return body


def _read(stream: Any, limit: int, environ: Mapping[str, Any]) -> bytes:
    """A stream that waitress has filled."""
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise too_large(limit)
    return body


def _read_from_gunicorn(stream: Any, limit: int, environ: Mapping[str, Any]) -> bytes:
    """A stream that comes in while it is read; bounded in time here, as waitress' is elsewhere.

    What is too long is read to its end and dropped: a client that still sends would not see the
    answer.
    """
    connection = environ["gunicorn.socket"]
    began = time.monotonic()
    parts: list[bytes] = []
    received = 0
    connection.settimeout(BODY_SECONDS)
    try:
        while part := stream.read(_PART):
            received += len(part)
            if received <= limit:
                parts.append(part)
            if time.monotonic() - began > BODY_SECONDS + received / BODY_RATE:
                raise TimeoutError
    except TimeoutError:
        getattr(environ["wsgi.input"], GIVE_UP)()
        raise too_slow() from None
    except OSError:
        raise ClientGone from None
    except Refusal:  # of a chunk that would be too much
        getattr(environ["wsgi.input"], GIVE_UP)()
        raise
    except Exception as error:
        getattr(environ["wsgi.input"], GIVE_UP)()
        raise malformed(str(error)) from None
    finally:
        connection.settimeout(None)
    if received > limit:
        raise too_large(limit)
    return b"".join(parts)


def read_object(req: falcon.Request, limit: int) -> dict[str, Any]:
    """The JSON object that the body is.

    Raises:
        Refusal: 413 for a body that is too large, 400 for anything that is not an object.
    """
    return object_of(read_body(req, limit))


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object that some bytes are.

    Raises:
        Refusal: 400 for anything else.
    """
    if not body.strip():
        raise Refusal(f"{JSON_ERROR}: it is empty; send an object")
    if len(body) > MOST_VALUES and body.count(b",") > MOST_VALUES:
        raise Refusal(
            f"the request holds more than {MOST_VALUES} values or commas, and no model reads as "
            "many: send less"
        )
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise Refusal(f"{JSON_ERROR}: it is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(f"{JSON_ERROR}: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(f"{JSON_ERROR}: it is {json_type(value)}, and an object is expected")
    return value


def json_type(value: Any) -> str:
    """What JSON calls a decoded value, for messages."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
