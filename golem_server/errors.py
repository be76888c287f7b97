"""Every refusal in one envelope: what was wrong, its type, its code.

The body is llama-server's ``{"error": {"code", "message", "type"}}`` with OpenAI's ``param``
beside them, which golem always leaves null.
"""

from typing import Any

import falcon
import msgspec

from golem_core.sample.params import ParamError
from golem_core.schedule.errors import (
    ContextExceeded,
    DeadEnd,
    EngineClosed,
    PassFailed,
    QueueFull,
    QueueTimeout,
    RequestTimeout,
)
from golem_core.text.template import TemplateError

JSON = "application/json; charset=utf-8"

STATUS = {
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "server_error": 500,
    "not_supported_error": 501,
    "unavailable_error": 503,
}
RETRY_SECONDS = 1  # what a full queue or a loading model suggests

encode = msgspec.json.Encoder().encode


class Refusal(Exception):
    """A request that is answered with an error; the type decides the status."""

    def __init__(
        self,
        message: str,
        kind: str = "invalid_request_error",
        *,
        status: int | None = None,
        retry: bool = False,
        logged: str = "",
        **details: Any,
    ):
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.status = status or STATUS[kind]
        self.retry = retry  # later the same request may be served
        self.logged = logged or message  # what the log says of it, nothing of the answer
        self.details = details  # further members of the error object

    def body(self) -> dict[str, Any]:
        """The envelope as JSON data."""
        error = {"code": self.status, "message": self.message, "type": self.kind, "param": None}
        return {"error": error | self.details}


class ClientGone(Exception):
    """Whoever asked has hung up: nobody reads an answer."""


def as_refusal(error: BaseException) -> Refusal:
    """What the error of a lower floor is called on the wire."""
    match error:
        case Refusal():
            return error
        case ContextExceeded():
            return Refusal(
                str(error),
                "exceed_context_size_error",
                n_prompt_tokens=error.n_prompt,
                n_ctx=error.n_ctx,
            )
        case QueueFull() | QueueTimeout():
            return Refusal(str(error), "unavailable_error", retry=True)
        case RequestTimeout():
            return Refusal(str(error), "server_error", status=504)
        case EngineClosed():
            return Refusal("this server is shutting down", "unavailable_error", retry=True)
        case ParamError() | TemplateError() | DeadEnd():
            return Refusal(str(error))
        case PassFailed():
            return Refusal(str(error), "server_error")
        case _:
            return Refusal(f"{type(error).__name__}: {error}", "server_error")


def answer(resp: falcon.Response, refusal: Refusal) -> None:
    """Make a refusal the response."""
    resp.status = refusal.status
    resp.content_type = JSON
    resp.data = encode(refusal.body())
    if refusal.retry:
        resp.set_header("Retry-After", str(RETRY_SECONDS))


def not_found(needs: str = "") -> Refusal:
    """What an unknown path, or a known one with the wrong method, is answered.

    needs: what the server would have to be given for that path.
    """
    why = f": this path needs {needs}" if needs else ""
    return Refusal(f"File Not Found{why}", "not_found_error")


_KINDS = {status: kind for kind, status in STATUS.items() if status != 400}


def of_falcon(error: falcon.HTTPError) -> Refusal:
    """A refusal of the framework's own in golem's envelope."""
    if error.status_code in (404, 405):
        return not_found()
    other = "invalid_request_error" if error.status_code < 500 else "server_error"
    text = ": ".join(part for part in (error.title, error.description) if part)
    return Refusal(text, _KINDS.get(error.status_code, other), status=error.status_code)
