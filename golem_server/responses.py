"""OpenAI's ``/v1/responses``: the items of its newer API, on what reads and answers a chat.

Nothing is kept from one request to the next: a conversation is sent whole each time.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import falcon

from golem_core.schedule import Result, Step
from golem_core.text.sorter import Kind
from golem_server import chat, sse
from golem_server.access_log import NOTE
from golem_server.answer import Answer
from golem_server.body import read_object
from golem_server.drawing import check, submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_settings import CHAT
from golem_server.media import Sight, has_media
from golem_server.reply import Delta, Reply, random_letters
from golem_server.responses_request import Item, chat_body
from golem_server.schema import ChatRequest, read_request
from golem_server.service import Service


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

    output: _Output  # set before an answer begins

    def __init__(self, header: _Header):
        self.header = header
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
        writer = _Writer(_Header(self.service, request, given))

        def begin() -> tuple[Answer, _Writer]:
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
            writer.output = _Output(turn.reply())
            return answer, writer

        if request.stream:

            def told(refusal: Refusal) -> None:
                note.refusal = refusal.logged

            if has_media(request.messages):
                sse.respond_later(resp, begin, told, done=b"", failed=writer.failed)
            else:
                sse.respond(resp, *begin(), told, done=b"", failed=writer.failed)
            return
        answer, _ = begin()
        header, output = writer.header, writer.output
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
