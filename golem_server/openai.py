"""OpenAI's ``/v1/chat/completions`` and ``/v1/completions``, with llama-server's bodies."""

import itertools
import time
from typing import Any

import falcon

from golem_core.schedule import Result
from golem_core.text.rendered import encode_rendered
from golem_server import chat, sse
from golem_server.access_log import NOTE
from golem_server.answer import new_id, usage
from golem_server.body import read_object
from golem_server.drawing import submit
from golem_server.errors import JSON, Refusal, encode
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

    def body(self, choices: list[Any], kind: str, results: list[Result]) -> dict[str, Any]:
        """A whole answer; ``results`` is empty for a chunk that ends nothing."""
        told = {"usage": usage(results)} if results else {}
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
            note.refusal = refusal.message

        sse.respond(resp, answer, writer, failed)


# ---- chat ----


class _ChatWriter:
    """The chunks of a streamed chat answer."""

    KIND = "chat.completion.chunk"

    def __init__(self, header: _Header, include_usage: bool):
        self.header = header
        self.include_usage = include_usage

    def _chunk(self, delta: dict[str, Any], reason: str | None, **more: Any) -> bytes:
        choice = {"finish_reason": reason, "index": 0, "delta": delta}
        return self.header.chunk([choice], self.KIND, **more)

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": None}, None)

    def delta(self, index: int, text: str) -> bytes:
        return self._chunk({"content": text}, None)

    def ending(self, index: int, result: Result) -> bytes:
        more = {} if self.include_usage else {"timings": result.timings()}
        return self._chunk({}, result.finish_reason, **more)

    def closing(self, results: list[Result]) -> bytes:
        if not self.include_usage:
            return b""
        told = {"usage": usage(results), "timings": results[0].timings()}
        return self.header.chunk([], self.KIND, **told)


class ChatCompletions(_Resource):
    """``POST /v1/chat/completions``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        request = read_request(ChatRequest, body)
        engine = self.service.engine
        with engine.entering():
            prompt = chat.render(engine.model.template, request)
            req.env[NOTE].prompts.append(prompt.text)
            tokens = encode_rendered(engine.model.tokenizer, prompt.text)
            answer = submit(req, engine, request, body, [tokens])
        header = _Header(self.service, request)
        if request.stream:
            writer = _ChatWriter(header, request.include_usage)
            self._stream(req, resp, answer, writer)
            return
        result = answer.results()[0]
        message = {"role": "assistant", "content": prompt.beginning + result.text}
        choice = {"finish_reason": result.finish_reason, "index": 0, "message": message}
        resp.content_type = JSON
        resp.data = encode(header.body([choice], "chat.completion", [result]))


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


class _CompletionWriter:
    """The chunks of streamed completions."""

    KIND = "text_completion"

    def __init__(self, header: _Header, echoes: list[str]):
        self.header = header
        self.echoes = echoes

    def _chunk(self, index: int, text: str, result: Result | None = None) -> bytes:
        reason = None if result is None else result.finish_reason
        choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
        results = [] if result is None else [result]
        return sse.frame(self.header.body([choice], self.KIND, results))

    def opening(self) -> bytes:
        return b"".join(self._chunk(i, text) for i, text in enumerate(self.echoes) if text)

    def delta(self, index: int, text: str) -> bytes:
        return self._chunk(index, text)

    def ending(self, index: int, result: Result) -> bytes:
        return self._chunk(index, "", result)

    def closing(self, results: list[Result]) -> bytes:
        return b""


class Completions(_Resource):
    """``POST /v1/completions``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        request = read_request(CompletionRequest, body)
        engine = self.service.engine
        tokenizer = engine.model.tokenizer
        with engine.entering():
            given = read_prompts(request.prompt)
            prompts = [encode_elements(tokenizer, elements) for elements in given]
            texts = [text_of(tokenizer, elements) for elements in given]
            req.env[NOTE].prompts += texts
            answer = submit(req, engine, request, body, prompts)
        echoes = texts if request.echo else [""] * len(texts)
        header = _Header(self.service, request)
        if request.stream:
            writer = _CompletionWriter(header, echoes)
            self._stream(req, resp, answer, writer)
            return
        results = answer.results()
        choices = [
            {
                "text": echo + result.text,
                "index": index,
                "logprobs": None,
                "finish_reason": result.finish_reason,
            }
            for index, (echo, result) in enumerate(zip(echoes, results, strict=True))
        ]
        resp.content_type = JSON
        resp.data = encode(header.body(choices, "text_completion", results))
