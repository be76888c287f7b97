"""OpenAI's ``/v1/chat/completions`` and ``/v1/completions``, with llama-server's bodies."""

import itertools
import time
from collections.abc import Iterable
from typing import Any

import falcon

from golem_core.schedule import Job, Result, Step
from golem_core.text.sorter import Kind
from golem_server import chat, sse
from golem_server.access_log import NOTE
from golem_server.answer import new_id, usage
from golem_server.body import read_object
from golem_server.drawing import submit
from golem_server.errors import JSON, Refusal, encode
from golem_server.logprobs import Entries, legacy
from golem_server.reply import Delta, Reply, call_json
from golem_server.schema import ChatRequest, CompletionRequest, Drawing, read_request
from golem_server.service import Service
from golem_server.version import FINGERPRINT

WRONG_PROMPT = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt '
    "string, or a list of mixed strings & tokens."
)


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

    def _stream(
        self, req: falcon.Request, resp: falcon.Response, answer: Any, writer: sse.Writer
    ) -> None:
        note = req.env[NOTE]

        def failed(refusal: Refusal) -> None:
            note.refusal = refusal.logged

        sse.respond(resp, answer, writer, failed)


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

    def __init__(self, header: _Header, replies: list[Reply], include_usage: bool):
        self.header = header
        self.replies = replies
        self.include_usage = include_usage

    def _chunk(
        self, index: int, delta: dict[str, Any], entries: Any, reason: str | None, **more: Any
    ) -> bytes:
        choice: dict[str, Any] = {"finish_reason": reason, "index": index, "delta": delta}
        if entries:
            choice["logprobs"] = {"content": entries}
        return self.header.chunk([choice], self.KIND, **more)

    def _deltas(self, index: int, deltas: list[Delta]) -> bytes:
        return b"".join(self._chunk(index, delta_json(d), d.entries, None) for d in deltas)

    def opening(self) -> bytes:
        first = {"role": "assistant", "content": None}
        return b"".join(self._chunk(index, first, (), None) for index in range(len(self.replies)))

    def steps(self, index: int, steps: list[Step]) -> bytes:
        return self._deltas(index, self.replies[index].take(steps))

    def ending(self, index: int, result: Result) -> bytes:
        reply = self.replies[index]
        more = {} if self.include_usage else {"timings": result.timings()}
        last = self._deltas(index, reply.end(result))
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
        with engine.entering():
            turn = chat.prepare(engine.model, request, self.service.server.reasoning)
            req.env[NOTE].prompts.append(turn.text)
            # What they ask for is in the turn's own grammar.
            rest = {name: body[name] for name in body if name not in ("grammar", "json_schema")}
            answer = submit(req, engine, request, rest, [turn.tokens], n_probs=top, **turn.options)
        tokenizer = engine.model.tokenizer
        replies = [turn.reply(Entries(tokenizer) if top else None) for _ in answer.jobs]
        header = _Header(self.service, request)
        if request.stream:
            writer = _ChatWriter(header, replies, request.include_usage)
            self._stream(req, resp, answer, writer)
            return
        results = answer.results()
        choices = [
            _choice(*one, index)
            for index, one in enumerate(zip(replies, answer.jobs, results, strict=True))
        ]
        resp.content_type = JSON
        resp.data = encode(header.body(choices, "chat.completion", results, len(results)))


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


def read_prompts(given: Any) -> list[list[str | int]]:
    """The prompts of a ``prompt`` field, each a list of texts and ids in order.

    Raises:
        Refusal: for anything that is no prompt.
    """
    if given is None:
        raise Refusal('"prompt" is required')
    if given == []:
        raise Refusal('"prompt" must not be empty')
    if isinstance(given, str):
        return [[given]]
    if not isinstance(given, list):
        raise Refusal(WRONG_PROMPT)
    if any(_is_id(item) for item in given):
        return [_elements(given)]
    return [[item] if isinstance(item, str) else _elements(item) for item in given]


def _is_id(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _elements(given: Any) -> list[str | int]:
    if not isinstance(given, list) or not all(_is_id(i) or isinstance(i, str) for i in given):
        raise Refusal(WRONG_PROMPT)
    if not given:
        raise Refusal('"prompt" must not be empty')
    return given


def encode_elements(tokenizer: Any, elements: list[str | int]) -> list[int]:
    """The ids of a prompt; a text at its beginning gets the special tokens of one.

    Raises:
        Refusal: for an id outside the vocabulary.
    """
    tokens: list[int] = []
    for place, item in enumerate(elements):
        if isinstance(item, str):
            tokens += tokenizer.encode(item, add_special=place == 0, parse_special=True)
        elif 0 <= item < tokenizer.n_vocab:
            tokens.append(item)
        else:
            raise Refusal("Prompt contains invalid tokens")
    return tokens


def text_of(tokenizer: Any, elements: list[str | int]) -> str:
    """A prompt as text, for ``echo``."""
    parts = []
    for is_text, group in itertools.groupby(elements, lambda item: isinstance(item, str)):
        run = list(group)
        parts += run if is_text else [tokenizer.decode(run, special=True)]
    return "".join(parts)


class _Continuation:
    """One choice of a completion, while it is drawn.

    echo: the prompt, where it is part of the text. top: competitors told of each token, None when
    no probabilities were asked for.
    """

    def __init__(self, tokenizer: Any, echo: str, top: int | None):
        self.text = echo
        self._top = top
        self._entries = Entries(tokenizer)

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

    def __init__(self, header: _Header, choices: list[_Continuation]):
        self.header = header
        self.choices = choices

    def _chunk(self, index: int, text: str, logprobs: Any, result: Result | None = None) -> bytes:
        reason = None if result is None else result.finish_reason
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}
        results = [] if result is None else [result]
        return sse.frame(self.header.body([choice], self.KIND, results))

    def opening(self) -> bytes:
        texts = [choice.text for choice in self.choices]
        return b"".join(self._chunk(i, text, None) for i, text in enumerate(texts) if text)

    def steps(self, index: int, steps: list[Step]) -> bytes:
        choice = self.choices[index]
        texts = [choice.take([step]) for step in steps]
        return b"".join(self._chunk(index, text, choice.add(text)) for text in texts if text)

    def ending(self, index: int, result: Result) -> bytes:
        self.choices[index].end(result)
        return self._chunk(index, "", self.choices[index].add(""), result)

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
        if request.echo and top is not None:
            raise Refusal(
                "echo and logprobs together are not implemented: probabilities of the prompt's "
                "tokens are not computed; leave one of them out"
            )
        with engine.entering():
            given = read_prompts(request.prompt)
            prompts = [encode_elements(tokenizer, elements) for elements in given]
            texts = [text_of(tokenizer, elements) for elements in given]
            req.env[NOTE].prompts += texts
            probs = 0 if top is None else max(top, 1)
            answer = submit(req, engine, request, body, prompts, n_probs=probs)
        echoes = [text if request.echo else "" for text in texts for _ in range(answer.count)]
        choices = [_Continuation(tokenizer, echo, top) for echo in echoes]
        header = _Header(self.service, request)
        if request.stream:
            self._stream(req, resp, answer, _CompletionWriter(header, choices))
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
    logprobs = choice.add(result.text)
    return {
        "text": choice.text,
        "index": index,
        "logprobs": logprobs,
        "finish_reason": result.finish_reason,
    }
