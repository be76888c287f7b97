"""An answer as server-sent events: the frames, and the body object that a server iterates.

Both servers call ``close()`` on the body when it is exhausted and when the client has left; that
is where the jobs of an abandoned stream are cancelled.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import falcon

from golem_core.schedule import Result, Step
from golem_server.answer import Answer
from golem_server.errors import ClientGone, Refusal, as_refusal, encode
from golem_server.preparing import Preparing

KEEP_ALIVE_SECONDS = 15.0
COMMENT = b": \n\n"
DONE = b"data: [DONE]\n\n"


def frame(data: Any, event: str = "") -> bytes:
    """One event, named where the dialect names its events."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + encode(data) + b"\n\n"


def failure(refusal: Refusal) -> bytes:
    """The last event of a stream that failed, as OpenAI's chat has it."""
    return frame(refusal.body())


class Writer(Protocol):
    """How a dialect writes an answer; each method returns the bytes of some frames, or none."""

    def opening(self) -> bytes:
        """What is sent once a slot is held."""

    def steps(self, index: int, steps: list[Step]) -> bytes:
        """What was drawn of the answer ``index``."""

    def ending(self, index: int, result: Result) -> bytes:
        """The end of the answer ``index``."""

    def closing(self, results: list[Result]) -> bytes:
        """The end of the stream."""


class EventStream:
    """A WSGI response body."""

    def __init__(self, frames: Iterator[bytes], on_close: Callable[[], None]):
        self._frames = frames
        self._on_close = on_close

    def __iter__(self) -> Iterator[bytes]:
        return self._frames

    def close(self) -> None:
        """Cancel what still runs; harmless when everything has ended."""
        self._on_close()


def respond(
    resp: falcon.Response,
    answer: Answer,
    writer: Writer,
    on_error: Callable[[Refusal], None],
    *,
    done: bytes = DONE,
    failed: Callable[[Refusal], bytes] = failure,
    ping: float | None = None,
) -> None:
    """Make a stream the response, once a slot is held or the wait has taken long.

    Until then a failure is an ordinary error response.

    Args:
        on_error: told of an error that is sent as a frame, for the log.
        done: what follows the writer's last frames.
        failed: the frame of an error.
        ping: seconds of silence before a comment, KEEP_ALIVE_SECONDS when None.
    """
    patience = KEEP_ALIVE_SECONDS if ping is None else ping
    started = answer.started(patience)
    frames = _frames(answer, writer, started, done, patience)
    _stream(resp, _to_the_end(frames, on_error, failed), answer.cancel)


def respond_later(
    resp: falcon.Response,
    begin: Callable[[], tuple[Answer, Writer]],
    on_error: Callable[[Refusal], None],
    *,
    done: bytes = DONE,
    failed: Callable[[Refusal], bytes] = failure,
    ping: float | None = None,
) -> None:
    """The same for an answer before which something is to be done that may take long.

    The client hears of it like of a slot that is waited for. Until then a failure is an ordinary
    error response.

    Args:
        begin: makes the answer and its writer, on a thread of its own; it looks out for a client
            that leaves.
    """
    patience = KEEP_ALIVE_SECONDS if ping is None else ping
    preparing = Preparing(begin)
    if preparing.wait(None if math.isinf(patience) else patience):
        respond(resp, *preparing.result(), on_error, done=done, failed=failed, ping=ping)
        return

    def close() -> None:
        preparing.wait()  # the model is given back after this
        with contextlib.suppress(Exception):
            preparing.result()[0].cancel()

    frames = _later(preparing, done, patience)
    _stream(resp, _to_the_end(frames, on_error, failed), close)


def _stream(resp: falcon.Response, frames: Iterator[bytes], on_close: Callable[[], None]) -> None:
    resp.content_type = "text/event-stream"
    resp.set_header("Cache-Control", "no-cache")
    resp.set_header("X-Accel-Buffering", "no")
    resp.stream = EventStream(frames, on_close)


def _to_the_end(
    frames: Iterator[bytes],
    on_error: Callable[[Refusal], None],
    failed: Callable[[Refusal], bytes],
) -> Iterator[bytes]:
    """The frames, and one more for the error that ends them."""
    try:
        yield from frames
    except ClientGone:
        return
    except Exception as error:
        refusal = as_refusal(error)
        on_error(refusal)
        yield failed(refusal)


def _later(
    preparing: Preparing[tuple[Answer, Writer]], done: bytes, patience: float
) -> Iterator[bytes]:
    yield COMMENT
    while not preparing.wait(patience):
        yield COMMENT
    answer, writer = preparing.result()
    yield from _frames(answer, writer, False, done, patience)


def _frames(
    answer: Answer, writer: Writer, started: bool, done: bytes, patience: float
) -> Iterator[bytes]:
    try:
        while not started:
            yield COMMENT
            started = answer.started(patience)
        if opening := writer.opening():
            yield opening
        quiet_since = time.monotonic()
        for index, steps in answer.steps():
            if steps is None:
                pieces = writer.ending(index, answer.jobs[index].result)
            else:
                pieces = writer.steps(index, steps)
            now = time.monotonic()
            if pieces:
                yield pieces
            elif now - quiet_since >= patience:
                yield COMMENT
            else:
                continue
            quiet_since = now
        yield writer.closing([job.result for job in answer.jobs]) + done
    finally:
        answer.cancel()
