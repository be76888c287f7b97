"""An answer in Ollama's words: one JSON object a line while it is drawn, or one for all of it."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import falcon

from golem_core.schedule import Job
from golem_core.text.sorter import Kind
from golem_server.answer import Answer
from golem_server.errors import ClientGone, Refusal, as_refusal, encode
from golem_server.logprobs import Entry
from golem_server.reply import Called, Delta, Reply, random_letters
from golem_server.sse import EventStream

NDJSON = "application/x-ndjson"
WAIT_SECONDS = 60.0


def now() -> str:
    """The time as Ollama writes it."""
    return rfc3339(time.time_ns())


def rfc3339(nanoseconds: int) -> str:
    """A moment, nanoseconds since 1970, in UTC with all its digits."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def line(value: Any) -> bytes:
    """One line of a stream."""
    return encode(value) + b"\n"


class Told:
    """What the shapes of a chat and of a generation share.

    model: as the client named it. began: time.monotonic_ns when the request came. loaded: seconds
    its model took to load. top: competitors told of each token, None = no probabilities.
    """

    def __init__(self, model: str, began: int, loaded: float, top: int | None):
        self.model = model
        self.began = began
        self.loaded = loaded
        self.top = top

    def head(self) -> dict[str, Any]:
        """What every object begins with."""
        return {"model": self.model, "created_at": now()}

    def part(self, delta: Delta) -> dict[str, Any]:
        """A piece of an answer."""
        raise NotImplementedError

    def whole(self, reply: Reply) -> dict[str, Any]:
        """All of an answer."""
        raise NotImplementedError

    def nothing(self) -> dict[str, Any]:
        """No answer."""
        raise NotImplementedError

    def more(self, job: Job) -> dict[str, Any]:
        """What else the last object holds."""
        return {}

    def entries(self, entries: Sequence[Entry]) -> dict[str, Any]:
        """What tokens competed with."""
        if self.top is None or not entries:
            return {}
        return {"logprobs": [self._entry(entry) for entry in entries]}

    def _entry(self, entry: Entry) -> dict[str, Any]:
        told = {name: entry[name] for name in ("token", "logprob", "bytes")}
        best = [
            {name: one[name] for name in ("token", "logprob", "bytes")}
            for one in entry["top_logprobs"][: self.top]
        ]
        return told | ({"top_logprobs": best} if best else {})

    def ended(self, job: Job) -> dict[str, Any]:
        """The end: why, and what it took. Nanoseconds; what is 0 is left out."""
        result = job.result
        took = {
            "total_duration": time.monotonic_ns() - self.began,
            "load_duration": round(self.loaded * 1e9),
            "prompt_eval_count": result.prompt_tokens,
            "prompt_eval_duration": round(result.prompt_ms * 1e6),
            "eval_count": result.drawn_tokens,
            "eval_duration": round(result.draw_ms * 1e6),
        }
        own = {
            "ttft_ms": result.first_ms,
            "grammar_ms": result.grammar_ms,
            "resampled": result.resampled,
            "energy_j": result.energy_j,
        }
        return {
            "done": True,
            "done_reason": result.finish_reason,
            **self.more(job),
            **{name: value for name, value in took.items() if value},
            **{name: value for name, value in own.items() if value is not None},
        }


class ChatTold(Told):
    """``/api/chat``."""

    def part(self, delta: Delta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        piece = delta.piece
        if piece.kind is Kind.CONTENT:
            message["content"] = piece.text
        elif piece.kind is Kind.REASONING:
            message["thinking"] = piece.text
        else:
            message["tool_calls"] = [_call(delta.index, piece.name, piece.text)]
        return {"message": message}

    def whole(self, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        message |= {"thinking": reply.reasoning} if reply.reasoning else {}
        if reply.calls:
            message["tool_calls"] = [_of(place, call) for place, call in enumerate(reply.calls)]
        return {"message": message}

    def nothing(self) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": ""}}


def _of(place: int, call: Called) -> dict[str, Any]:
    return _call(place, call.name, call.arguments)


def _call(index: int, name: str, arguments: str) -> dict[str, Any]:
    function = {"index": index, "name": name, "arguments": json.loads(arguments)}
    return {"id": "call_" + random_letters(8).lower(), "function": function}


class GenerateTold(Told):
    """``/api/generate``. context: whether the ids of all of it are told at the end."""

    def __init__(self, model: str, began: int, loaded: float, top: int | None, context: bool):
        super().__init__(model, began, loaded, top)
        self._context = context

    def part(self, delta: Delta) -> dict[str, Any]:
        if delta.piece.kind is Kind.REASONING:
            return {"response": "", "thinking": delta.piece.text}
        return {"response": delta.piece.text}

    def whole(self, reply: Reply) -> dict[str, Any]:
        thought = {"thinking": reply.reasoning} if reply.reasoning else {}
        return {"response": reply.content} | thought

    def nothing(self) -> dict[str, Any]:
        return {"response": ""}

    def more(self, job: Job) -> dict[str, Any]:
        if not self._context:
            return {}
        return {"context": [*map(int, job.request.tokens), *job.result.tokens]}


def answer_whole(answer: Answer, told: Told, reply: Reply) -> dict[str, Any]:
    """The one object of an answer that is not streamed."""
    (result,) = answer.results()
    (job,) = answer.jobs
    deltas = reply.take(job.steps() or []) + reply.end(result)
    entries = [entry for delta in deltas for entry in delta.entries] + reply.rest()
    return told.head() | told.whole(reply) | told.entries(entries) | told.ended(job)


def respond(
    resp: falcon.Response,
    answer: Answer,
    told: Told,
    reply: Reply,
    on_error: Callable[[Refusal], None],
) -> None:
    """Makes a stream of lines the response, once a slot is held.

    on_error: told of an error that is sent as a line, for the log.
    """
    while not answer.started(WAIT_SECONDS):
        pass
    resp.content_type = NDJSON
    resp.set_header("Cache-Control", "no-cache")
    resp.set_header("X-Accel-Buffering", "no")
    resp.stream = EventStream(_lines(answer, told, reply, on_error), answer.cancel)


def _lines(
    answer: Answer, told: Told, reply: Reply, on_error: Callable[[Refusal], None]
) -> Iterator[bytes]:
    try:
        for _, steps in answer.steps():
            if steps is None:
                job = answer.jobs[0]
                yield _parts(told, reply.end(job.result)) + _last(told, job, reply.rest())
            elif lines := _parts(told, reply.take(steps)):
                yield lines
    except ClientGone:
        return
    except Exception as error:
        refusal = as_refusal(error)
        on_error(refusal)
        yield line({"error": refusal.message})
    finally:
        answer.cancel()


def _parts(told: Told, deltas: list[Delta]) -> bytes:
    return b"".join(
        line(told.head() | told.part(delta) | {"done": False} | told.entries(delta.entries))
        for delta in deltas
    )


def _last(told: Told, job: Job, rest: list[Entry]) -> bytes:
    return line(told.head() | told.nothing() | told.entries(rest) | told.ended(job))
