"""OpenAI's ``/v1/chat/completions`` and ``/v1/completions``, with llama-server's bodies."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import falcon

from golem_core.schedule import Job, Result, Step
from golem_core.text.sorter import Kind
from golem_server import chat, sse
from golem_server.access_log import NOTE
from golem_server.answer import Answer, new_id, usage
from golem_server.body import read_object
from golem_server.drawing import check, submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_native import Native
from golem_server.llama_settings import CHAT
from golem_server.logprobs import Entries, legacy, legacy_prompt
from golem_server.media import Sight, has_media
from golem_server.progress import Reports, so_far
from golem_server.prompts import encode_prompt, read_prompts, text_of
from golem_server.reply import Delta, Reply, call_json
from golem_server.schema import ChatRequest, CompletionRequest, Drawing, read_request
from golem_server.service import Service
from golem_server.version import FINGERPRINT


class _Header:
    """What every body and chunk of one answer shares."""

    def __init__(self, service: Service, request: Drawing):
        self.id = new_id()
        self.created = int(time.time())
        self.model = request.model or service.name

    def chunk(self, choices: list[Any], kind: str, **more: Any) -> bytes:
        """A chunk of a chat answer."""
        return sse.frame(
            {
                "choices": choices,
                "created": self.created,
                "id": self.id,
                "model": self.model,
                "system_fingerprint": FINGERPRINT,
                "object": kind,
                **more,
            }
        )

    def body(
        self, choices: list[Any], kind: str, results: list[Result], count: int = 1
    ) -> dict[str, Any]:
        """A whole answer; ``results``, ``count`` to a prompt, is empty where nothing ends."""
        told = {"usage": usage(results, count)} if results else {}
        timed = {"timings": results[0].timings()} if results else {}
        return {
            "choices": choices,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "object": kind,
            **told,
            "id": self.id,
            **timed,
        }


class _Resource:
    """What the two endpoints have in common."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def _failed(self, req: falcon.Request) -> Callable[[Refusal], None]:
        """What is told of an error in a stream."""
        note = req.env[NOTE]

        def failed(refusal: Refusal) -> None:
            note.refusal = refusal.logged

        return failed


# ---- chat ----


def delta_json(delta: Delta) -> dict[str, Any]:
    """A piece of an answer as the ``delta`` of a chunk."""
    piece = delta.piece
    if piece.kind is Kind.CALL:
        function = {"name": piece.name, "arguments": piece.text}
        call = {"index": delta.index, "id": delta.id, "type": "function", "function": function}
        return {"tool_calls": [call]}
    name = "content" if piece.kind is Kind.CONTENT else "reasoning_content"
    return {name: piece.text}


def message_json(reply: Reply) -> dict[str, Any]:
    """A whole answer as a message."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [call_json(call) for call in reply.calls]
    return message


class _ChatWriter:
    """The chunks of a streamed chat answer."""

    KIND = "chat.completion.chunk"
    ROLE: ClassVar[dict[str, Any]] = {"role": "assistant", "content": None}

    def __init__(
        self, header: _Header, replies: list[Reply], jobs: Sequence[Job], request: ChatRequest
    ):
        self.header = header
        self.replies = replies
        self.jobs = jobs
        self.include_usage = request.include_usage
        self._timed = bool(request.timings_per_token)
        # Who asks how far the prompt is gets the role again when the answer begins.
        self._silent = set(range(len(jobs))) if request.return_progress else set()
        self._reports = Reports(jobs, self._timed)

    def _chunk(
        self, index: int, delta: dict[str, Any], entries: Any, reason: str | None, **more: Any
    ) -> bytes:
        choice: dict[str, Any] = {"finish_reason": reason, "index": index, "delta": delta}
        if entries:
            choice["logprobs"] = {"content": entries}
        return self.header.chunk([choice], self.KIND, **more)

    def _deltas(self, index: int, deltas: list[Delta], **more: Any) -> bytes:
        return b"".join(self._chunk(index, delta_json(d), d.entries, None, **more) for d in deltas)

    def _told(self) -> bytes:
        reports = self._reports.fresh()
        return b"".join(self._chunk(i, self.ROLE, (), None, **more) for i, more in reports)

    def _begun(self, index: int) -> bytes:
        if index not in self._silent:
            return b""
        self._silent.remove(index)
        return self._chunk(index, self.ROLE, (), None)

    def opening(self) -> bytes:
        if self._silent:
            return self._told()
        return b"".join(self._chunk(i, self.ROLE, (), None) for i in range(len(self.replies)))

    def steps(self, index: int, steps: list[Step]) -> bytes:
        told = self._told()
        if not steps:
            return told
        told += self._begun(index)
        reply, job = self.replies[index], self.jobs[index]
        if not self._timed:
            return told + self._deltas(index, reply.take(steps))
        return told + b"".join(
            [self._deltas(index, reply.take([s]), timings=so_far(job, s)) for s in steps]
        )

    def ending(self, index: int, result: Result) -> bytes:
        reply = self.replies[index]
        more = {} if self.include_usage else {"timings": result.timings()}
        last = self._told() + self._begun(index) + self._deltas(index, reply.end(result))
        return last + self._chunk(index, {}, reply.rest(), reply.finish_reason, **more)

    def closing(self, results: list[Result]) -> bytes:
        if not self.include_usage:
            return b""
        told = {"usage": usage(results, len(results)), "timings": results[0].timings()}
        return self.header.chunk([], self.KIND, **told)


class ChatCompletions(_Resource):
    """``POST /v1/chat/completions``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        request = read_request(ChatRequest, body)
        engine = self.service.acquire(req, request.model, request.stays)
        top = request.top
        # What they ask for is in the turn's own grammar.
        rest = {name: body[name] for name in body if name not in ("grammar", "json_schema")}
        header = _Header(self.service, request)

        def begin() -> tuple[chat.Turn, Answer, list[Reply]]:
            with engine.entering():
                turn = chat.prepare(
                    engine.model,
                    request,
                    self.service.server.reasoning,
                    Sight.of(self.service, engine, req, partial(check, engine, request, rest, top)),
                    engine.context,
                )
                req.env[NOTE].prompts.append(turn.text)
                answer = submit(
                    req,
                    engine,
                    request,
                    rest,
                    [turn.tokens],
                    chat_format=CHAT,
                    n_probs=top,
                    **turn.options,
                )
            tokenizer, after = engine.model.tokenizer, bool(request.post_sampling_probs)
            replies = [turn.reply(Entries(tokenizer, after) if top else None) for _ in answer.jobs]
            return turn, answer, replies

        def streamed() -> tuple[Answer, _ChatWriter]:
            _, answer, replies = begin()
            return answer, _ChatWriter(header, replies, answer.jobs, request)

        if request.stream:
            told = self._failed(req)
            if has_media(request.messages):
                sse.respond_later(resp, streamed, told, ping=request.ping)
            else:
                sse.respond(resp, *streamed(), told, ping=request.ping)
            return
        turn, answer, replies = begin()
        results = answer.results()
        choices = [
            _choice(*one, index)
            for index, one in enumerate(zip(replies, answer.jobs, results, strict=True))
        ]
        if turn.both:
            for choice, result in zip(choices, results, strict=True):
                told = turn.reply(inline=True)
                told.whole(result.text)
                told.end(result)
                choice["message"]["content"] = told.content
        body = header.body(choices, "chat.completion", results, len(results))
        if request.verbose:
            native = Native(engine.model.tokenizer, self.service)
            told = native.ended(0, answer.jobs[0].request, results[0], header.model)
            told["generation_settings"]["grammar"] = request.grammar or ""
            body["__verbose"] = told
        resp.content_type = JSON
        resp.data = encode(body)


def _choice(reply: Reply, job: Job, result: Result, index: int) -> dict[str, Any]:
    """A choice of a whole answer."""
    if job.request.n_probs:
        reply.take(job.steps() or [])
    else:
        reply.whole(result.text)
    reply.end(result)
    reply.rest()
    choice: dict[str, Any] = {
        "finish_reason": reply.finish_reason,
        "index": index,
        "message": message_json(reply),
    }
    if job.request.n_probs:
        choice["logprobs"] = {"content": reply.entries}
    return choice


# ---- completions ----


class _Continuation:
    """One choice of a completion, while it is drawn.

    echo: the prompt, where it is part of the text. top: competitors told of each token, None when
    no probabilities were asked for. job: whose prompt it is.
    """

    def __init__(self, tokenizer: Any, echo: str, top: int | None, job: Job):
        self.text = echo
        self._top = top
        self._entries = Entries(tokenizer)
        self._tokenizer = tokenizer
        self._job = job

    @property
    def scored(self) -> bool:
        """Whether the prompt's own probabilities are told."""
        return self._job.request.scores_prompt

    def prompt(self) -> dict[str, list[Any]]:
        """What the tokens of a prompt competed with that has been read and is all of the text."""
        job, top = self._job, self._top or 0
        tokens = job.request.tokens
        return legacy_prompt(self._tokenizer, tokens, job.prompt_probs, self.text, top)

    def take(self, steps: Iterable[Step]) -> str:
        """The text that steps release."""
        fresh = ""
        for step in steps:
            self._entries.take(step)
            fresh += step.text
        return fresh

    def add(self, fresh: str) -> dict[str, list[Any]] | None:
        """Adds a text to the choice's; what its tokens competed with, None when nobody asked."""
        entries, start = self._entries.release(), len(self.text)
        self.text += fresh
        return None if self._top is None else legacy(entries, start, self._top)

    def end(self, result: Result) -> None:
        """The answer is over."""
        self._entries.end(result)


class _CompletionWriter:
    """The chunks of streamed completions."""

    KIND = "text_completion"

    def __init__(
        self,
        header: _Header,
        choices: list[_Continuation],
        jobs: Sequence[Job],
        request: CompletionRequest,
    ):
        self.header = header
        self.choices = choices
        self.jobs = jobs
        self._timed = bool(request.timings_per_token)
        self._reports = Reports(jobs, self._timed)
        self._unread = {index for index, choice in enumerate(choices) if choice.scored}

    def _chunk(
        self, index: int, text: str, logprobs: Any, result: Result | None = None, **more: Any
    ) -> bytes:
        reason = None if result is None else result.finish_reason
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}
        results = [] if result is None else [result]
        return sse.frame(self.header.body([choice], self.KIND, results) | more)

    def _told(self) -> bytes:
        reports = self._reports.fresh()
        return b"".join(self._chunk(i, "", None, **more) for i, more in reports)

    def _step(self, index: int, step: Step) -> bytes:
        choice = self.choices[index]
        text = choice.take([step])
        if not text:
            return b""
        pace = {"timings": so_far(self.jobs[index], step)} if self._timed else {}
        return self._chunk(index, text, choice.add(text), **pace)

    def opening(self) -> bytes:
        texts = {i: c.text for i, c in enumerate(self.choices) if i not in self._unread}
        return b"".join(self._chunk(i, text, None) for i, text in texts.items() if text)

    def _begun(self, index: int) -> bytes:
        """The prompt, where its tokens' probabilities had to be waited for."""
        if index not in self._unread:
            return b""
        self._unread.remove(index)
        choice = self.choices[index]
        return self._chunk(index, choice.text, choice.prompt())

    def steps(self, index: int, steps: list[Step]) -> bytes:
        told = self._told()
        if not steps:
            return told
        return told + self._begun(index) + b"".join([self._step(index, step) for step in steps])

    def ending(self, index: int, result: Result) -> bytes:
        told = self._told() + self._begun(index)
        self.choices[index].end(result)
        return told + self._chunk(index, "", self.choices[index].add(""), result)

    def closing(self, results: list[Result]) -> bytes:
        return b""


class Completions(_Resource):
    """``POST /v1/completions``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        request = read_request(CompletionRequest, body)
        engine = self.service.acquire(req, request.model, request.stays)
        tokenizer = engine.model.tokenizer
        top = request.top
        if request.post_sampling_probs:
            raise Refusal(
                '"post_sampling_probs" has no place in this endpoint\'s shape: use /completion or '
                "/v1/chat/completions"
            )
        with engine.entering():
            given = read_prompts(request.prompt, self.service.server.most_answers)
            prompts = [encode_prompt(tokenizer, elements, engine.context) for elements in given]
            texts = [text_of(tokenizer, elements) for elements in given]
            req.env[NOTE].prompts += texts
            probs = 0 if top is None else max(top, 1)
            echoes = bool(request.echo)
            answer = submit(
                req,
                engine,
                request,
                body,
                prompts,
                n_probs=probs,
                scores_prompt=echoes and top is not None,
                only_reads=echoes and request.length == 0,
            )
        before = [text if echoes else "" for text in texts for _ in range(answer.count)]
        choices = [
            _Continuation(tokenizer, echo, top, job)
            for echo, job in zip(before, answer.jobs, strict=True)
        ]
        header = _Header(self.service, request)
        if request.stream:
            writer = _CompletionWriter(header, choices, answer.jobs, request)
            sse.respond(resp, answer, writer, self._failed(req), ping=request.ping)
            return
        results = answer.results()
        whole = [
            _completion(*one, index)
            for index, one in enumerate(zip(choices, answer.jobs, results, strict=True))
        ]
        resp.content_type = JSON
        resp.data = encode(header.body(whole, "text_completion", results, answer.count))


def _completion(choice: _Continuation, job: Job, result: Result, index: int) -> dict[str, Any]:
    """A choice of whole completions."""
    if job.request.n_probs:
        choice.take(job.steps() or [])
    choice.end(result)
    asked = choice.prompt() if choice.scored else {}
    logprobs = choice.add(result.text)
    if logprobs is not None:
        logprobs = {name: [*asked.get(name, ()), *found] for name, found in logprobs.items()}
    return {
        "text": choice.text,
        "index": index,
        "logprobs": logprobs,
        "finish_reason": result.finish_reason,
    }
