"""Anthropic's ``/v1/messages`` and ``/v1/messages/count_tokens``.

A request is written as one of OpenAI's chat, and read by what reads those: the same prompt, the
same refusals, the same reader of the answer. Only the shapes on the wire are made here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import falcon
import msgspec

from golem_core.schedule import Engine, Result, Step
from golem_core.text.sorter import Kind
from golem_server import chat, sse
from golem_server.access_log import NOTE
from golem_server.answer import Answer
from golem_server.anthropic_request import chat_body
from golem_server.body import read_object
from golem_server.drawing import check, submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_settings import CHAT
from golem_server.media import Sight, has_media
from golem_server.reply import Delta, Reply, random_letters
from golem_server.schema import ChatRequest, read_request
from golem_server.service import Service

PATH = "/v1/messages"
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(refusal: Refusal) -> dict[str, Any]:
    """A refusal in the envelope of this dialect."""
    kind = ERRORS.get(refusal.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refusal.message}}


# ---- the answer ----


class _Header:
    """What the message of one answer is known by."""

    def __init__(self, service: Service, request: ChatRequest):
        self.id = "msg_" + random_letters(24)
        self.model = request.model or service.name

    def message(self, content: list[Any], ended: Mapping[str, Any], usage: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            **ended,
            "usage": usage,
        }


def usage(result: Result) -> dict[str, int]:
    """What was read anew, what the slot still knew, and what was drawn."""
    return {
        "cache_read_input_tokens": result.cached_tokens,
        "input_tokens": result.prompt_tokens - result.cached_tokens,
        "output_tokens": result.drawn_tokens,
    }


def ended(reply: Reply, result: Result) -> dict[str, Any]:
    """Why an answer ended."""
    word = result.stopping_word if result.stop_type == "word" else None
    reasons = {"length": "max_tokens", "tool_calls": "tool_use"}
    silent = "end_turn" if word is None else "stop_sequence"
    return {"stop_reason": reasons.get(reply.finish_reason, silent), "stop_sequence": word}


def content(deltas: list[Delta]) -> list[dict[str, Any]]:
    """The blocks that the pieces of an answer make up."""
    blocks: list[dict[str, Any]] = []
    for delta in deltas:
        kind, key = _kind(delta)
        if kind == "tool_use":
            blocks.append(_called(delta, msgspec.json.decode(delta.piece.text)))
        elif blocks and blocks[-1]["type"] == kind:
            blocks[-1][key] += delta.piece.text
        else:
            blocks.append(_empty(kind) | {key: delta.piece.text})
    return blocks


def _kind(delta: Delta) -> tuple[str, str]:
    """The type of a piece's block, and where in it the text is."""
    match delta.piece.kind:
        case Kind.REASONING:
            return "thinking", "thinking"
        case Kind.CONTENT:
            return "text", "text"
        case _:
            return "tool_use", "input"


def _empty(kind: str) -> dict[str, Any]:
    signed = {"signature": ""} if kind == "thinking" else {}
    return {"type": kind, kind: "", **signed}


def _called(delta: Delta, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": delta.id, "name": delta.piece.name, "input": arguments}


def _event(kind: str, **fields: Any) -> bytes:
    return sse.frame({"type": kind, **fields}, kind)


class _Writer:
    """The events of a streamed message."""

    def __init__(self, header: _Header, reply: Reply, started: Mapping[str, int]):
        self.header = header
        self.reply = reply
        self.started = started  # usage, before anything is drawn
        self.index = 0
        self.open = ""  # type of the block that texts are added to

    def opening(self) -> bytes:
        nothing = {"stop_reason": None, "stop_sequence": None}
        message = self.header.message([], nothing, self.started)
        return _event("message_start", message=message)

    def steps(self, index: int, steps: list[Step]) -> bytes:
        return b"".join(self._delta(delta) for delta in self.reply.take(steps))

    def ending(self, index: int, result: Result) -> bytes:
        last = b"".join(self._delta(delta) for delta in self.reply.end(result)) + self._stop()
        why = ended(self.reply, result)
        return last + _event("message_delta", delta=why, usage=usage(result))

    def closing(self, results: list[Result]) -> bytes:
        return _event("message_stop")

    def _delta(self, delta: Delta) -> bytes:
        kind, _ = _kind(delta)
        text = delta.piece.text
        if kind == "tool_use":
            piece = {"type": "input_json_delta", "partial_json": text}
            before = self._stop() + self._start(kind, _called(delta, {}))
            return before + self._add(piece) + self._stop()
        before = b""
        if self.open != kind:
            before = self._stop() + self._start(kind, _empty(kind))
        return before + self._add({"type": f"{kind}_delta", kind: text})

    def _start(self, kind: str, block: Mapping[str, Any]) -> bytes:
        self.open = kind
        return _event("content_block_start", index=self.index, content_block=block)

    def _add(self, piece: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=self.index, delta=piece)

    def _stop(self) -> bytes:
        if not self.open:
            return b""
        thought = self.open == "thinking"
        signed = self._add({"type": "signature_delta", "signature": ""}) if thought else b""
        stop = _event("content_block_stop", index=self.index)
        self.open = ""
        self.index += 1
        return signed + stop


def _failed(refusal: Refusal) -> bytes:
    return sse.frame(error_body(refusal), "error")


# ---- the routes ----


class _Resource:
    """What the two endpoints have in common."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def _read(self, req: falcon.Request) -> tuple[dict[str, Any], ChatRequest]:
        body = chat_body(read_object(req, self.max_body))
        return body, read_request(ChatRequest, body)

    def _turn(
        self,
        req: falcon.Request,
        engine: Engine,
        request: ChatRequest,
        context: int | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> chat.Turn:
        turn = chat.prepare(
            engine.model,
            request,
            self.service.server.reasoning,
            Sight.of(self.service, engine, req, check),
            context,
        )
        req.env[NOTE].prompts.append(turn.text)
        return turn


class Messages(_Resource):
    """``POST /v1/messages``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body, request = self._read(req)
        engine = self.service.acquire(req, request.model, request.stays)
        # What they ask for is in the turn's own grammar.
        rest = {name: body[name] for name in body if name not in ("grammar", "json_schema")}
        header = _Header(self.service, request)

        def begin() -> tuple[chat.Turn, Answer]:
            with engine.entering():
                checked = partial(check, engine, request, rest)
                turn = self._turn(req, engine, request, engine.context, checked)
                answer = submit(
                    req, engine, request, rest, [turn.tokens], chat_format=CHAT, **turn.options
                )
            return turn, answer

        def streamed() -> tuple[Answer, _Writer]:
            turn, answer = begin()
            started = {
                "cache_read_input_tokens": 0,
                "input_tokens": len(turn.tokens),
                "output_tokens": 0,
            }
            return answer, _Writer(header, turn.reply(), started)

        if request.stream:
            note = req.env[NOTE]

            def told(refusal: Refusal) -> None:
                note.refusal = refusal.logged

            if has_media(request.messages):
                sse.respond_later(resp, streamed, told, done=b"", failed=_failed)
            else:
                sse.respond(resp, *streamed(), told, done=b"", failed=_failed)
            return
        turn, answer = begin()
        reply = turn.reply()
        (result,) = answer.results()
        deltas = reply.take(answer.jobs[0].steps() or []) + reply.end(result)
        message = header.message(content(deltas), ended(reply, result), usage(result))
        resp.content_type = JSON
        resp.data = encode(message)


class CountTokens(_Resource):
    """``POST /v1/messages/count_tokens``: how long a request's prompt is."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        _, request = self._read(req)
        engine = self.service.acquire(req, request.model, request.stays)
        with engine.entering():
            turn = self._turn(req, engine, request, engine.context)
        resp.content_type = JSON
        resp.data = encode({"input_tokens": len(turn.tokens)})
