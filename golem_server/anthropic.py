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
from golem_server.body import json_type, read_object
from golem_server.drawing import check, submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_settings import CHAT
from golem_server.media import Sight, Where, has_media
from golem_server.messages import NO_MESSAGE
from golem_server.reply import Delta, Reply, random_letters
from golem_server.schema import INT_MAX, ChatRequest, read_request, typed, whole
from golem_server.service import Service

PATH = "/v1/messages"
THOUGHT_TOKENS = 10000  # of a thought that is asked for without a budget
ROLES = ("user", "assistant")
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


# ---- the request ----


class MessagesRequest(msgspec.Struct, kw_only=True):
    """The fields that this dialect has of its own."""

    messages: Any = None
    system: Any = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    max_tokens: int | float | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


# Fields of the chat request that are written from others here, or have no place in the answer.
OWN = frozenset(
    {
        *MessagesRequest.__struct_fields__,
        *("metadata", "n", "n_predict", "max_completion_tokens", "stop", "stream_options"),
        *("logprobs", "top_logprobs", "response_format", "reasoning_effort"),
        "parallel_tool_calls",
    }
)


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request as one of OpenAI's chat; further fields stay as they are.

    Raises:
        Refusal: for what is wrong in it, or not served.
    """
    request = typed(MessagesRequest, body)
    made = {name: value for name, value in body.items() if name not in OWN}
    made["messages"] = _messages(request)
    if request.tools:
        made["tools"] = [_tool(place, one) for place, one in enumerate(request.tools)]
    made |= _choice(request.tool_choice)
    if request.stop_sequences:
        made["stop"] = request.stop_sequences
    if request.max_tokens is not None:
        made["max_tokens"] = whole("max_tokens", request.max_tokens, -1, INT_MAX)
    made |= _thinking(request.thinking, request.chat_template_kwargs or {})
    return made | _output(request.output_config or {})


def _messages(request: MessagesRequest) -> list[dict[str, Any]]:
    given = request.messages
    if given is None:
        raise Refusal("'messages' is required")
    if not isinstance(given, list):
        raise Refusal("Expected 'messages' to be an array")
    if not given:
        raise Refusal(NO_MESSAGE)
    made: list[dict[str, Any]] = []
    if request.system:
        made.append({"role": "system", "content": _texts("system", request.system)})
    called: set[str] = set()
    for place, one in enumerate(given):
        role = one.get("role") if isinstance(one, dict) else None
        if role not in ROLES:
            raise Refusal(f"message {place}: 'role' must be user or assistant")
        where = f"message {place}"
        if role == "assistant":
            message = _assistant(where, one.get("content"))
            called = {call["id"] for call in message.get("tool_calls", ())}
            made.append(message)
        else:
            made += _user(where, one.get("content"), called)
            called = set()
    return made


def _blocks(where: str, given: Any) -> list[dict[str, Any]]:
    """The blocks of a content, a plain text being one."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    if not isinstance(given, list):
        raise Refusal(f"{where}: 'content' must be a string or an array of blocks")
    for block in given:
        if not isinstance(block, dict):
            raise Refusal(f"{where}: a block is {json_type(block)}, and an object is expected")
    return given


def _texts(where: str, given: Any) -> list[dict[str, Any]]:
    """Text blocks alone."""
    return [_text(where, block) for block in _blocks(where, given)]


def _text(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "document":
        raise Refusal(f"{where}: document input is not supported by this server")
    if kind != "text":
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"{where}: a block of type {shown} cannot be used here")
    return {"type": "text", "text": _string(where, block, "text")}


def _seen(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """A text block, or a picture as a part of a chat."""
    if block.get("type") != "image":
        return _text(where, block)
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    match kind:
        case "base64":
            data = source.get("data")
            if not isinstance(data, str):
                raise Refusal(f"{where}: an image's source needs a 'data' that is a string")
            url = f"data:image/png;base64,{data}"  # which kind it is, its own bytes say
        case "url":
            url = source.get("url")
        case _:
            raise Refusal(f"{where}: an image's source must be of the type base64 or url")
    return {"type": "image_url", "image_url": {"url": url}, "where": Where(where)}


def _string(where: str, block: Mapping[str, Any], key: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise Refusal(f"{where}: a {block.get('type')} block needs a '{key}' that is a string")
    return value


def _user(where: str, given: Any, called: set[str]) -> list[dict[str, Any]]:
    """What tools gave, in messages of their own, then what the user says."""
    results, texts = [], []
    blocks = _blocks(where, given)
    for block in blocks:
        if block.get("type") != "tool_result":
            texts.append(_seen(where, block))
            continue
        call = _string(where, block, "tool_use_id")
        if call not in called:
            raise Refusal(
                f'{where} has the result of "{call}", and the message before it has no tool_use '
                "block of that id"
            )
        of = f"{where}, result of {call}"
        content = [_seen(of, one) for one in _blocks(of, block.get("content") or "")]
        results.append({"role": "tool", "tool_call_id": call, "content": content})
    return results + ([{"role": "user", "content": texts}] if texts or not results else [])


def _assistant(where: str, given: Any) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for block in _blocks(where, given):
        match block.get("type"):
            case "thinking":
                thoughts.append(_string(where, block, "thinking"))
            case "redacted_thinking":
                pass  # of another model: nothing that can be read
            case "tool_use":
                name, call = _string(where, block, "name"), _string(where, block, "id")
                arguments = block.get("input")
                if not isinstance(arguments, dict):
                    raise Refusal(f"{where}: a tool_use block needs an 'input' that is an object")
                function = {"name": name, "arguments": arguments}
                calls.append({"id": call, "type": "function", "function": function})
            case _:
                texts.append(_text(where, block))
    message: dict[str, Any] = {"role": "assistant", "content": texts}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    return message | ({"tool_calls": calls} if calls else {})


def _tool(place: int, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Refusal(f"tool {place} is {json_type(given)}, and an object is expected")
    kind = given.get("type")
    if kind not in (None, "custom"):
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"tool {place}: tool type {shown} is not implemented; only custom ones are")
    schema = given.get("input_schema")
    if not isinstance(schema, dict):
        raise Refusal(f"tool {place}: 'input_schema' must be an object")
    function = {"name": given.get("name"), "parameters": schema}
    if isinstance(given.get("description"), str):
        function["description"] = given["description"]
    return {"type": "function", "function": function}


def _choice(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return {}
    choices: dict[Any, Any] = {
        "auto": "auto",
        "any": "required",
        "none": "none",
        "tool": {"type": "function", "function": {"name": given.get("name")}},
    }
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in choices:
        raise Refusal("tool_choice: 'type' must be auto, any, tool or none")
    if kind == "tool" and not isinstance(given.get("name"), str):
        raise Refusal("tool_choice of type tool needs a 'name' that is a string")
    single = {"parallel_tool_calls": False} if given.get("disable_parallel_tool_use") else {}
    return {"tool_choice": choices[kind]} | single


def _thinking(given: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if given is None:
        return {"chat_template_kwargs": arguments}
    kind = given.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        raise Refusal("thinking: 'type' must be enabled, disabled or adaptive")
    made: dict[str, Any] = {
        "chat_template_kwargs": {**arguments, "enable_thinking": kind != "disabled"}
    }
    if kind == "enabled":
        budget = given.get("budget_tokens", THOUGHT_TOKENS)
        if isinstance(budget, bool) or not isinstance(budget, int | float):
            raise Refusal("thinking: 'budget_tokens' must be a number")
        made["thinking_budget_tokens"] = whole("thinking.budget_tokens", budget, -1, INT_MAX)
    return made


def _output(given: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that the answer is held to."""
    wanted = given.get("format")
    if wanted is None:
        return {}
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        raise Refusal("output_config.format: 'type' must be json_schema")
    schema = {"schema": wanted.get("schema")}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


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
