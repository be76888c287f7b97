"""Reading a request's body and the JSON in it, under either server.

waitress takes chunked bodies apart itself; gunicorn hands them over as an input that ends, without
a length. The content type is not looked at: curl calls everything a form.
"""

from typing import Any

import falcon
import msgspec

from golem_core.settings import show_size
from golem_server.errors import Refusal

JSON_ERROR = "the request body is not the JSON this endpoint reads"


def read_body(req: falcon.Request, limit: int) -> bytes:
    """The whole body, at most ``limit`` bytes.

    Raises:
        Refusal: 413 when it is larger, before it is read where its length is known.
    """
    too_large = Refusal(
        f"the request body is larger than {show_size(limit)}: "
        "send less, or start the server with a larger -max-body",
        status=413,
    )
    if req.content_length is not None:
        if req.content_length > limit:
            raise too_large
        return req.bounded_stream.read()
    if not req.env.get("wsgi.input_terminated"):
        return b""
    body = req.stream.read(limit + 1)
    if len(body) > limit:
        raise too_large
    return body


def read_object(req: falcon.Request, limit: int) -> dict[str, Any]:
    """The JSON object that the body is.

    Raises:
        Refusal: 413 for a body that is too large, 400 for anything that is not an object.
    """
    body = read_body(req, limit)
    if not body.strip():
        raise Refusal(f"{JSON_ERROR}: it is empty; send an object")
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
