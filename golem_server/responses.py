"""OpenAI's ``/v1/responses``: the items of its newer API, on what reads and answers a chat.

Nothing is kept from one request to the next: a conversation is sent whole each time.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import falcon
import msgspec

from golem_core.schedule import Result, Step
from golem_core.text.sorter import Kind
from golem_server import chat, sse
from golem_server.access_log import NOTE
from golem_server.body import json_type, read_object
from golem_server.drawing import check, submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_settings import CHAT
from golem_server.media import Sight, Where
from golem_server.reply import Delta, Reply, random_letters
from golem_server.schema import INT_MAX, ChatRequest, read_request, typed, whole
from golem_server.service import Service

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
MEDIA = ("input_image", "input_file", "input_audio")
KEPT = {
    "previous_response_id": "this server keeps no responses: send the whole conversation as input",
    "conversation": "this server keeps no conversations: send all of it as input",
    "prompt": "this server keeps no prompts: send instructions and input",
}


# ---- the request ----


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The fields that this dialect has of its own."""

    input: Any = None
    instructions: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    max_output_tokens: int | float | None = None
    background: bool | None = None
    include: list[Any] | None = None


# Fields of the chat request that are written from others here, or have no place in the answer.
OWN = frozenset(
    {
        *ResponsesRequest.__struct_fields__,
        *KEPT,
        *("messages", "max_tokens", "max_completion_tokens", "n_predict", "n", "stream_options"),
        *("logprobs", "top_logprobs", "response_format", "reasoning_effort", "metadata"),
    }
)


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request as one of OpenAI's chat; further fields stay as they are.

    Raises:
        Refusal: for what is wrong in it, or not served.
    """
    request = typed(ResponsesRequest, body)
    for name, why in KEPT.items():
        if body.get(name) is not None:
            raise Refusal(f'"{name}" cannot be served: {why}')
    if request.background:
        raise Refusal('"background" cannot be served: an answer is sent to the request it is of')
    if body.get("top_logprobs") or "message.output_text.logprobs" in (request.include or ()):
        raise Refusal(
            "probabilities are not told by /v1/responses: leave top_logprobs and "
            "message.output_text.logprobs out, or use /v1/chat/completions"
        )
    made = {name: value for name, value in body.items() if name not in OWN}
    made["messages"] = _messages(request)
    if request.tools:
        made["tools"] = [_tool(one) for one in request.tools]
    if request.tool_choice is not None:
        made["tool_choice"] = _choice(request.tool_choice)
    if request.max_output_tokens is not None:
        length = whole("max_output_tokens", request.max_output_tokens, -1, INT_MAX)
        made["max_tokens"] = length
    if (effort := (request.reasoning or {}).get("effort")) is not None:
        if not isinstance(effort, str):
            raise Refusal(f"reasoning.effort must be a string, it is {json_type(effort)}")
        made["reasoning_effort"] = effort
    return made | _format(request.text or {})


def _messages(request: ResponsesRequest) -> list[Item]:
    given = request.input
    if given is None:
        raise Refusal("'input' is required")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise Refusal("'input' must be a string or an array of items")
    if not given:
        raise Refusal("'input' must not be empty")
    messages: list[Item] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    called: set[str] = set()
    for place, item in enumerate(given):
        _add(messages, f"input item {place}", item, called)
    return messages


def _add(messages: list[Item], where: str, item: Any, called: set[str]) -> None:
    """Adds an item; what the assistant did in one turn is one message."""
    if not isinstance(item, dict):
        raise Refusal(f"{where} is {json_type(item)}, and an object is expected")
    match item.get("type", "message"):
        case "message":
            content = _content(where, item.get("content"))
            role = item.get("role")
            if role not in ROLES:
                raise Refusal(f"{where}: 'role' must be one of {', '.join(ROLES)}")
            if role == "assistant":
                _turn(messages)["content"] += content
            else:
                messages.append({"role": role, "content": content})
        case "reasoning":
            parts = _content(where, item.get("content") or item.get("summary") or [])
            thought = "\n".join(part.get("text", "") for part in parts)
            turn = _turn(messages)
            before = turn.get("reasoning_content")
            turn["reasoning_content"] = f"{before}\n{thought}" if before else thought
        case "function_call":
            call = _string(where, item, "call_id")
            called.add(call)
            function = {
                "name": _string(where, item, "name"),
                "arguments": _string(where, item, "arguments"),
            }
            made = {"id": call, "type": "function", "function": function}
            _turn(messages).setdefault("tool_calls", []).append(made)
        case "function_call_output":
            call = _string(where, item, "call_id")
            if call not in called:
                raise Refusal(
                    f'{where} is the output of "{call}", and no function_call before it has '
                    "that call_id"
                )
            output = _content(where, item.get("output"), "output")
            messages.append({"role": "tool", "tool_call_id": call, "content": output})
        case kind:
            shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
            raise Refusal(
                f"{where} has the type {shown}; the types are message, reasoning, function_call "
                "and function_call_output"
            )


def _turn(messages: list[Item]) -> Item:
    """The message of the assistant that is at the end, a new one where none is."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _content(where: str, given: Any, name: str = "content") -> list[Item]:
    """Parts as the chat has them, a plain text being one."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    if not isinstance(given, list):
        raise Refusal(f"{where}: '{name}' must be a string or an array")
    return [_part(where, part) for part in given]


def _part(where: str, part: Any) -> Item:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in MEDIA:
        return _medium(where, part, kind)
    if kind == "refusal":
        return {"type": "text", "text": _string(where, part, "refusal")}
    if kind not in TEXTS:
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"{where}: a part of type {shown} cannot be used here")
    return {"type": "text", "text": _string(where, part, "text")}


def _medium(where: str, part: Item, kind: str) -> Item:
    """A picture or a recording as a part of a chat."""
    if part.get("file_id") is not None or part.get("file_url") is not None:
        raise Refusal(f"{where}: this server keeps and fetches no files; send the bytes themselves")
    if kind == "input_image":
        url = part.get("image_url")
        return {"type": "image_url", "image_url": {"url": url}, "where": Where(where)}
    if kind == "input_audio":
        return {"type": kind, "input_audio": part.get("input_audio"), "where": Where(where)}
    data = part.get("file_data")
    if not isinstance(data, str):
        raise Refusal(f"{where}: a part of type input_file needs a 'file_data' that is a string")
    if data.startswith("data:audio/"):
        return {"type": "input_audio", "input_audio": {"data": data}, "where": Where(where)}
    if data.startswith("data:image/"):
        return {"type": "image_url", "image_url": {"url": data}, "where": Where(where)}
    raise Refusal(
        f"{where}: of files this server takes pictures and recordings, as data:image/… or "
        "data:audio/… URIs"
    )


def _string(where: str, item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise Refusal(f"{where}: '{key}' must be a string")
    return value


def _tool(given: Any) -> Any:
    """A tool as the chat has it, whose own checks tell what is wrong."""
    if not isinstance(given, dict) or given.get("type") != "function":
        return given
    function = {name: given[name] for name in given if name != "type"}
    return {"type": "function", "function": function}


def _choice(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    if given.get("type") != "function":
        raise Refusal("tool_choice as an object must be of type function, with a 'name'")
    return {"type": "function", "function": {"name": given.get("name")}}


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the text is held to."""
    wanted = given.get("format")
    if wanted is None:
        return {}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise Refusal("text.format: 'type' must be text, json_object or json_schema")
    if kind == "json_schema":
        schema = {"schema": wanted.get("schema")}
        return {"response_format": {"type": kind, "json_schema": schema}}
    return {"response_format": {"type": kind}}


# ---- the answer ----


class _Output:
    """The items of one answer, and the events that tell of them."""

    def __init__(self, reply: Reply):
        self.items: list[Item] = []
        self.thought_tokens = 0
        self._reply = reply
        self._text = ""  # of the open item
        self._events: list[Item] = []

    def take(self, steps: list[Step]) -> list[Item]:
        """The events of drawn steps, without their numbers."""
        for step in steps:
            self._add(self._reply.take([step]))
            if self.items and self.items[-1]["type"] == "reasoning" and len(self.items) == 1:
                self.thought_tokens = step.count
        return self._told()

    def end(self, result: Result) -> list[Item]:
        """The last events of items; ``status`` is known now."""
        self._add(self._reply.end(result))
        self._close("incomplete" if self.cut else "completed")
        return self._told()

    @property
    def cut(self) -> bool:
        """The answer ended by its length."""
        return self._reply.finish_reason == "length"

    def usage(self, result: Result) -> Item:
        """OpenAI's ``usage`` in the words of this dialect."""
        # The client's type wants to know of writes to a cache that is paid for; here is none.
        details = {"cached_tokens": result.cached_tokens, "cache_write_tokens": 0}
        return {
            "input_tokens": result.prompt_tokens,
            "output_tokens": result.drawn_tokens,
            "total_tokens": result.prompt_tokens + result.drawn_tokens,
            "input_tokens_details": details,
            "output_tokens_details": {"reasoning_tokens": self.thought_tokens},
        }

    def _told(self) -> list[Item]:
        events, self._events = self._events, []
        return events

    def _tell(self, event: str, **fields: Any) -> None:
        self._events.append({"type": f"response.{event}", **fields})

    def _place(self) -> Item:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}

    def _add(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if delta.piece.kind is Kind.CALL:
                self._call(delta)
                continue
            kind = "message" if delta.piece.kind is Kind.CONTENT else "reasoning"
            if not self._is_open(kind):
                self._open(kind)
            self._text += delta.piece.text
            more = {"logprobs": []} if kind == "message" else {}
            name = f"{PART[kind]}.delta"
            self._tell(name, **self._place(), content_index=0, delta=delta.piece.text, **more)

    def _is_open(self, kind: str) -> bool:
        last = self.items[-1] if self.items else {}
        return last.get("type") == kind and last["status"] == "in_progress"

    def _open(self, kind: str) -> None:
        self._close()
        self._text = ""
        head: Item = {"type": kind, "status": "in_progress", "content": []}
        if kind == "message":
            self._start({"id": "msg_" + random_letters(24), "role": "assistant", **head})
        else:
            self._start({"id": "rs_" + random_letters(24), "summary": [], **head})
        self._tell("content_part.added", **self._place(), content_index=0, part=_text(kind, ""))

    def _close(self, status: str = "completed") -> None:
        """Ends the item that texts are added to, if there is one."""
        if not self.items or self.items[-1]["status"] != "in_progress":
            return
        item = self.items[-1]
        kind = item["type"]
        part = _text(kind, self._text)
        more = {"logprobs": []} if kind == "message" else {}
        place = self._place() | {"content_index": 0}
        self._tell(f"{PART[kind]}.done", **place, text=self._text, **more)
        self._tell("content_part.done", **place, part=part)
        self._finish({"content": [part], "status": status})

    def _call(self, delta: Delta) -> None:
        """A call, which comes whole."""
        self._close()
        name, arguments = delta.piece.name, delta.piece.text
        self._start(
            {
                "id": "fc_" + random_letters(24),
                "type": "function_call",
                "status": "in_progress",
                "call_id": delta.id,
                "name": name,
                "arguments": "",
            }
        )
        self._tell("function_call_arguments.delta", **self._place(), delta=arguments)
        done = {"name": name, "arguments": arguments}
        self._tell("function_call_arguments.done", **self._place(), **done)
        self._finish({"arguments": arguments, "status": "completed"})

    def _start(self, item: Item) -> None:
        self.items.append(item)
        self._tell("output_item.added", output_index=len(self.items) - 1, item=item)

    def _finish(self, known: Item) -> None:
        # A new object: events that tell of the item as it was are not written yet.
        self.items[-1] = self.items[-1] | known
        index = len(self.items) - 1
        self._tell("output_item.done", output_index=index, item=self.items[-1])


PART = {"message": "output_text", "reasoning": "reasoning_text"}


def _text(kind: str, text: str) -> Item:
    """The one part that an item of texts has."""
    more = {"annotations": [], "logprobs": []} if kind == "message" else {}
    return {"type": PART[kind], **more, "text": text}


class _Header:
    """What every snapshot of one response shares."""

    def __init__(self, service: Service, request: ChatRequest, body: Mapping[str, Any]):
        self.id = "resp_" + random_letters(32)
        self.created = int(time.time())
        self.model = request.model or service.name
        self.echoed = {
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
        }

    def response(self, status: str, **known: Any) -> Item:
        """The response as it is now."""
        return {
            "completed_at": None,
            "created_at": self.created,
            "error": None,
            "id": self.id,
            "incomplete_details": None,
            **self.echoed,
            "model": self.model,
            "object": "response",
            "output": [],
            "previous_response_id": None,
            "status": status,
            "usage": None,
            **known,
        }

    def ended(self, output: _Output, result: Result) -> Item:
        """The response at its end."""
        why = {"incomplete_details": {"reason": "max_output_tokens"}} if output.cut else {}
        return self.response(
            "incomplete" if output.cut else "completed",
            completed_at=int(time.time()),
            output=output.items,
            usage=output.usage(result),
            **why,
        )


class _Writer:
    """The events of a streamed response."""

    def __init__(self, header: _Header, output: _Output):
        self.header = header
        self.output = output
        self.number = 0

    def _frame(self, event: Item) -> bytes:
        numbered = event | {"sequence_number": self.number}
        self.number += 1
        return sse.frame(numbered, event["type"])

    def _frames(self, events: list[Item]) -> bytes:
        return b"".join(map(self._frame, events))

    def opening(self) -> bytes:
        response = self.header.response("in_progress")
        names = ("response.created", "response.in_progress")
        return self._frames([{"type": name, "response": response} for name in names])

    def steps(self, index: int, steps: list[Step]) -> bytes:
        return self._frames(self.output.take(steps))

    def ending(self, index: int, result: Result) -> bytes:
        last = self._frames(self.output.end(result))
        response = self.header.ended(self.output, result)
        return last + self._frame({"type": f"response.{response['status']}", "response": response})

    def closing(self, results: list[Result]) -> bytes:
        return b""

    def failed(self, refusal: Refusal) -> bytes:
        """An error as this dialect has it, with the object that OpenAI's client raises of."""
        told = {"code": refusal.kind, "message": refusal.message, "param": None}
        return self._frame({"type": "error", **told, **refusal.body()})


class Responses:
    """``POST /v1/responses``."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        given = read_object(req, self.max_body)
        body = chat_body(given)
        request = read_request(ChatRequest, body)
        engine = self.service.acquire(req, request.model, request.stays)
        note = req.env[NOTE]
        # What they ask for is in the turn's own grammar.
        rest = {name: body[name] for name in body if name not in ("grammar", "json_schema")}
        with engine.entering():
            turn = chat.prepare(
                engine.model,
                request,
                self.service.server.reasoning,
                Sight.of(self.service, engine, req, partial(check, engine, request, rest)),
                engine.context,
            )
            note.prompts.append(turn.text)
            answer = submit(
                req, engine, request, rest, [turn.tokens], chat_format=CHAT, **turn.options
            )
        header, output = _Header(self.service, request, given), _Output(turn.reply())
        if request.stream:

            def told(refusal: Refusal) -> None:
                note.refusal = refusal.logged

            writer = _Writer(header, output)
            sse.respond(resp, answer, writer, told, done=b"", failed=writer.failed)
            return
        (result,) = answer.results()
        output.take(answer.jobs[0].steps() or [])
        output.end(result)
        resp.content_type = JSON
        resp.data = encode(header.ended(output, result))


class InputTokens:
    """``POST /v1/responses/input_tokens``: how long the prompt of a request is."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        request = read_request(ChatRequest, chat_body(read_object(req, self.max_body)))
        engine = self.service.acquire(req, request.model, request.stays)
        turn = chat.prepare(
            engine.model,
            request,
            self.service.server.reasoning,
            Sight.of(self.service, engine, req),
        )
        resp.content_type = JSON
        told = {"input_tokens": len(turn.tokens), "object": "response.input_tokens"}
        resp.data = encode(told)
