"""``POST /v1/systemone`` and its batch form, as laya-serve answers them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import falcon

from golem_core.schedule import EngineClosed, PassFailed, QueueFull
from golem_plugins.laya.answers import written
from golem_plugins.laya.decider import Decider, Left
from golem_plugins.laya.questions import Refused

TOO_LARGE = "request body too large"
WORDS = {  # of the reference, for what the server refuses before a request comes here
    401: "invalid or missing bearer token",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "request body was not received in time",
    413: TOO_LARGE,
}


class Decide:
    """One request: a state and its questions."""

    def __init__(self, decider: Decider):
        self.decider = decider

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._serve(req, resp, self.decider.decide)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.set_header("Allow", "POST")
        _refuse(resp, 405, "Method Not Allowed")

    on_put = on_patch = on_delete = on_head = on_get

    def error_body(self, refusal: Any) -> dict[str, Any]:
        """What the server itself refuses, in these words."""
        return {"detail": WORDS.get(refusal.status, refusal.message)}

    def _serve(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        answer: Callable[[Any, Callable[[], bool]], dict[str, Any]],
    ) -> None:
        try:
            body = self._read(req)
            began = time.perf_counter()
            made = written(answer(body, req.context.gone), (",", ":"))
        except Refused as error:
            _refuse(resp, error.status, error.detail)
        except RecursionError:  # nested more deeply than texts of it can be written
            _refuse(resp, 400, "'state' must be JSON-serializable")
        except (QueueFull, EngineClosed):
            resp.set_header("Retry-After", "1")
            _refuse(resp, 503, "server busy, try again later")
        except PassFailed:
            _refuse(resp, 500, "inference failed")
        except Left:
            resp.status = "499 Client Closed Request"
        else:
            ms = f"{(time.perf_counter() - began) * 1000:.2f}"
            resp.set_header("Server-Timing", f"inference;dur={ms}")
            resp.set_header("X-Inference-Time-Ms", ms)
            _send(resp, made)

    def _read(self, req: falcon.Request) -> Any:
        """The JSON of the body. Raises Refused."""
        limit = self.decider.limits.body
        if req.content_length is not None and req.content_length > limit:
            raise Refused(413, TOO_LARGE)
        if req.content_length is None and not req.env.get("wsgi.input_terminated"):
            text = b""
        else:
            stream = req.bounded_stream if req.content_length is not None else req.stream
            text = stream.read(limit + 1)
        if len(text) > limit:
            raise Refused(413, TOO_LARGE)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Refused(400, "request body must be valid JSON") from None


class Batch(Decide):
    """Several states, one set of questions."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._serve(req, resp, self.decider.decide_batch)


def _send(resp: falcon.Response, text: str) -> None:
    resp.content_type = "application/json"
    resp.data = text.encode()


def _refuse(resp: falcon.Response, status: int, detail: str) -> None:
    resp.status = status
    _send(resp, written({"detail": detail}, (",", ":")))
