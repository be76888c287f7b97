"""One line on stderr for every request, and what it did in the engine.

``POST /v1/chat/completions 200 271 bytes in 8ms — slot 0 — 27 prompt in 7ms (3857.1/s), 8 drawn in
1ms (8000.00/s), length``. Prompt counts are what was fed; what a slot still held is not in them.
``positions: 117 of pictures, 436 of sound`` tells how much of a prompt was no text.
Texts of prompts and answers are written only when the operator asked for it.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from golem_core.schedule import Job, Result
from golem_core.schedule.durations import go_duration
from golem_server.memory import ROOM
from golem_server.stderr import say

NOTE = "golem.note"  # the request's Note in the WSGI environment
LONGEST = 300  # characters of a text of the client's
MEDIA = {"image": "of pictures", "audio": "of sound"}
SETTLE_SECONDS = 5.0  # how long the line waits for the figures of a cancelled answer


@dataclass
class Note:
    """What the handler of a request leaves for its log line."""

    jobs: list[Job] = field(default_factory=list)
    refusal: str = ""
    done: str = ""  # what was done for it, where no job of the engine tells
    prompts: list[str] = field(default_factory=list)  # kept only to be logged
    release: Callable[[], None] = lambda: None  # gives the model back once the answer has left
    load_seconds: float = 0.0  # what loading its model took
    body_bytes: int = 0  # room that its body takes


def _duration(seconds: float) -> str:
    return go_duration(seconds, round_to=0.001)


def describe(results: list[Result]) -> str:
    """The part of a line that tells what the engine did for a request."""
    slots = ",".join(str(r.slot) for r in results if r.slot >= 0)
    queued = _duration(max(r.queue_ms for r in results) / 1000)
    parts = []
    if slots:
        parts.append(f"slot {slots}" + (f", queued {queued}" if queued != "0s" else ""))
    fed, drawn = sum(r.fed_tokens for r in results), sum(r.drawn_tokens for r in results)
    fed_s = max(r.prompt_ms for r in results) / 1000
    drawn_s = max(r.draw_ms for r in results) / 1000
    media = [
        f"{count} {name}"
        for kind, name in MEDIA.items()
        if (count := results[0].media_tokens.get(kind))  # the same prompt for all
    ]
    if media:
        parts.append(f"positions: {', '.join(media)}")
    reasons = "/".join(dict.fromkeys(r.finish_reason for r in results))
    parts.append(
        f"{fed} prompt in {_duration(fed_s)} ({fed / fed_s if fed_s else 0:.1f}/s), "
        f"{drawn} drawn in {_duration(drawn_s)} ({drawn / drawn_s if drawn_s else 0:.2f}/s), "
        f"{reasons}"
    )
    return " — ".join(parts)


class AccessLog:
    """A WSGI application around another: counts the bytes, times the request, writes the line."""

    def __init__(
        self,
        application: Callable[..., Iterable[bytes]],
        *,
        prompts: bool = False,
        write: Callable[[str], None] = say,
    ):
        self.application = application
        self.prompts = prompts
        self.write = write
        self.running: dict[int, Note] = {}  # requests that are being answered, by their notes' ids

    def __call__(self, environ: dict[str, Any], start_response: Callable) -> Iterator[bytes]:
        began = time.monotonic()
        note = environ[NOTE] = Note()
        self.running[id(note)] = note
        status = ["000"]

        def start(line: str, *arguments: Any) -> Any:
            status[0] = line.split(" ", 1)[0]
            return start_response(line, *arguments)

        def finish(sent: int) -> None:
            self.running.pop(id(note), None)
            try:
                self._line(environ, status[0], sent, time.monotonic() - began, note)
            finally:
                note.jobs.clear()  # they know the engine, which may be dropped now
                note.release()
                if note.body_bytes:
                    ROOM.leave(note.body_bytes)

        try:
            return _Counted(self.application(environ, start), finish)
        except BaseException:
            self.running.pop(id(note), None)
            raise

    def _line(
        self, environ: dict[str, Any], status: str, sent: int, seconds: float, note: Note
    ) -> None:
        # WSGI hands the path's bytes over as latin-1.
        path = environ.get("PATH_INFO", "").encode("latin-1", "replace").decode("utf-8", "replace")
        line = request_line(environ["REQUEST_METHOD"], path, status, sent, seconds)
        for job in note.jobs:
            with contextlib.suppress(Exception):  # a failed job raises its error
                job.wait(SETTLE_SECONDS)
        results = [job.result for job in note.jobs if job.result is not None]
        if results:
            line += f" — {describe(results)}"
        if note.done:
            line += f" — {note.done}"
        if note.refusal:
            line += f": {printable(note.refusal)}"
        if self.prompts:
            line += "".join(f"\n  prompt {_quoted(text)}" for text in note.prompts)
            line += "".join(f"\n  answer {_quoted(result.text)}" for result in results)
        self.write(line)


def request_line(method: str, path: str, status: str, sent: int, seconds: float) -> str:
    """What every line begins with."""
    return f"{printable(method)} {printable(path)} {status} {sent} bytes in {_duration(seconds)}"


def printable(text: str) -> str:
    """A text of the client's that cannot break the line or the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:LONGEST])


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


class _Counted:
    """A response body that counts what passes through and tells once when it is over."""

    def __init__(self, body: Iterable[bytes], finish: Callable[[int], None]):
        self._body = body
        self._items = iter(body)
        self._finish: Callable[[int], None] | None = finish
        self._sent = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._items)
        self._sent += len(chunk)
        return chunk

    def close(self) -> None:
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish(self._sent)
