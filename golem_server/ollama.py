"""Ollama's ``/api/chat`` and ``/api/generate``, on what reads and answers a chat of this server."""

import copy
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import falcon

from golem_core.schedule import Engine
from golem_core.text.sorter import Sorter
from golem_core.text.template import ChatTemplate, TemplateError
from golem_server import chat
from golem_server.access_log import NOTE
from golem_server.answer import Answer
from golem_server.card import fim_tokens, thinks
from golem_server.derived import Derived
from golem_server.drawing import check, submit
from golem_server.embed_ollama import read_request as read_body
from golem_server.errors import JSON, Refusal, encode
from golem_server.infill import fill
from golem_server.llama_settings import CHAT, PLAIN
from golem_server.logprobs import Entries
from golem_server.media import Sight
from golem_server.ollama_answer import ChatTold, GenerateTold, Told, answer_whole, respond
from golem_server.ollama_choice import choose
from golem_server.ollama_fit import fit_messages
from golem_server.ollama_options import Options
from golem_server.ollama_request import (
    Asked,
    ChatAsked,
    GenerateAsked,
    chat_fields,
    conversation,
    merged_options,
    read_chat,
    read_generate,
    with_pictures,
)
from golem_server.reply import Reply
from golem_server.residency import Entry
from golem_server.schema import ChatRequest, CompletionRequest, Drawing, read_request
from golem_server.service import Service

TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings, or use a model with a longer context length"
)
_GO = ("{{ .", "{{.", "{{- .", "{{-.", "{{ if .", "{{- if .", "{{ range", "{{- range", "{{ else }}")


class _Call:
    """One request: the model it means, and the engine it is answered by."""

    def __init__(
        self,
        service: Service,
        req: falcon.Request,
        asked: Asked,
        derived: Derived | None,
        entry: Entry,
    ):
        self.service = service
        self.req = req
        self.asked = asked
        self.derived = derived
        self.engine: Engine = service.acquire(req, entry.name, asked.stays)
        self.model = _with_template(self.engine.model, derived.template if derived else "")
        self.options: Options = merged_options(asked, derived, self.engine.context)

    @property
    def loaded(self) -> float:
        return self.req.env[NOTE].load_seconds

    @property
    def room(self) -> int:
        """Tokens that prompt and answer may take."""
        return self.options.context or self.engine.context

    @property
    def longest(self) -> int:
        """Tokens of a prompt at most: a slot that is full draws nothing."""
        return min(self.room, self.engine.context - 1)

    @property
    def can_think(self) -> bool:
        return thinks(self.model.reasoning, self.model.template.source)

    def length(self, prompt: int) -> int:
        """Tokens that an answer has room for after a prompt."""
        return max(1, self.room - prompt)

    def too_long(self, tokens: int, dropped: int = 0) -> Refusal:
        """The refusal of a prompt that does not fit."""
        if self.asked.shift is False:
            return Refusal(TOO_LONG)
        over = f"num_ctx {self.room}" if tokens > self.room else f"num_ctx {self.room} has room for"
        gone = f" with the {dropped} oldest messages dropped" if dropped else ""
        return Refusal(
            f"the prompt is {tokens} tokens, more than {over}{gone}: Ollama would cut "
            "tokens out of its middle (num_keep), which golem does not; shorten the last message "
            "or raise num_ctx (up to this server's -context)"
        )

    def bounded(self, fields: dict[str, Any], prompt: int) -> dict[str, Any]:
        """The fields of a request whose answer has to fit as well."""
        if self.options.context is None:
            return fields
        most = self.length(prompt)
        given = fields.get("n_predict")
        if given is None:
            given = self.service.server.n
        return fields | {"n_predict": most if given < 0 else min(given, most)}

    def prepare(self, messages: list[dict[str, Any]], fields: Mapping[str, Any]) -> chat.Turn:
        """A conversation as the model reads it."""
        request = read_request(ChatRequest, {**fields, "messages": messages})
        checked = partial(check, self.engine, request, self._rest(fields), self._told)
        sight = Sight.of(self.service, self.engine, self.req, checked)
        return chat.prepare(self.model, request, self.service.server.reasoning, sight)

    def conversation(
        self, messages: list[dict[str, Any]], fields: dict[str, Any]
    ) -> tuple[chat.Turn, dict[str, Any]]:
        """The turn that is answered, its oldest messages dropped where it is too long.

        Raises:
            Refusal: when it is too long all the same, or may not be cut.
        """

        def cost(some: list[dict[str, Any]]) -> int | None:
            try:
                return len(self.prepare(some, fields).tokens)
            except (Refusal, TemplateError):
                return None

        turn = self.prepare(messages, fields)
        kept = messages
        if len(turn.tokens) > self.longest and self.asked.truncate is not False:
            kept = fit_messages(messages, self.longest, cost)
            turn = self.prepare(kept, fields)
        if len(turn.tokens) > self.longest:
            raise self.too_long(len(turn.tokens), len(messages) - len(kept))
        return turn, self.bounded(fields, len(turn.tokens))

    def submit(
        self,
        request: Drawing,
        fields: Mapping[str, Any],
        tokens: list[int],
        chat_format: str,
        **options: Any,
    ) -> Answer:
        """The answer to a prompt, being drawn."""
        return submit(
            self.req,
            self.engine,
            request,
            self._rest(fields),
            [tokens],
            chat_format=chat_format,
            n_probs=self._told,
            **options,
        )

    @property
    def _told(self) -> int:
        """Competitors that are told of each token."""
        top = self.asked.top
        return 0 if top is None else max(1, top)

    @staticmethod
    def _rest(fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that say how to draw; what others ask for is in the turn's own grammar."""
        return {name: fields[name] for name in fields if name != "response_format"}

    def entries(self) -> Entries | None:
        return None if self.asked.top is None else Entries(self.model.tokenizer)


class _Resource:
    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def _empty(
        self, req: falcon.Request, resp: falcon.Response, asked: Asked, entry: Entry, told: Told
    ) -> None:
        """A request without a prompt: brings the model, or lets go of it."""
        unloads = asked.stays == 0
        if not unloads or self.service.residency.engine(entry.name) is not None:
            self.service.acquire(req, entry.name, asked.stays)
        reason = "unload" if unloads else "load"
        resp.content_type = JSON
        resp.data = encode(told.head() | told.nothing() | {"done": True, "done_reason": reason})

    def _answer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        asked: Asked,
        answer: Answer,
        told: Told,
        reply: Reply,
    ) -> None:
        if not asked.streams:
            resp.content_type = JSON
            resp.data = encode(answer_whole(answer, told, reply))
            return
        note = req.env[NOTE]

        def failed(refusal: Refusal) -> None:
            note.refusal = refusal.logged

        respond(resp, answer, told, reply, failed)


class Chat(_Resource):
    """``POST /api/chat``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        began = time.monotonic_ns()
        asked = read_chat(read_body(req, self.max_body))
        entry, derived = choose(self.service, asked.name)
        if not asked.messages:
            self._empty(req, resp, asked, entry, ChatTold(asked.name, began, 0.0, None))
            return
        call = _Call(self.service, req, asked, derived, entry)
        with call.engine.entering():
            turn, request, fields = self._turn(call, asked)
            req.env[NOTE].prompts.append(turn.text)
            answer = call.submit(request, fields, turn.tokens, CHAT, **turn.options)
        told = ChatTold(asked.name, began, call.loaded, asked.top)
        self._answer(req, resp, asked, answer, told, turn.reply(call.entries()))

    def _turn(self, call: _Call, asked: ChatAsked) -> tuple[chat.Turn, ChatRequest, dict[str, Any]]:
        fields = chat_fields(asked, call.options, call.can_think)
        fields |= {"tools": asked.tools} if asked.tools else {}
        turn, fields = call.conversation(conversation(asked.messages, call.derived), fields)
        return turn, read_request(ChatRequest, fields), fields


class Generate(_Resource):
    """``POST /api/generate``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        began = time.monotonic_ns()
        asked = read_generate(read_body(req, self.max_body))
        entry, derived = choose(self.service, asked.name)
        if not asked.prompt and not asked.suffix and not asked.images:
            told = GenerateTold(asked.name, began, 0.0, None, context=False)
            self._empty(req, resp, asked, entry, told)
            return
        call = _Call(self.service, req, asked, derived, entry)
        plain = asked.raw or asked.suffix
        with call.engine.entering():
            answer, reply = self._plain(call, asked) if plain else self._templated(call, asked)
        told = GenerateTold(asked.name, began, call.loaded, asked.top, context=not asked.raw)
        self._answer(req, resp, asked, answer, told, reply)

    def _plain(self, call: _Call, asked: GenerateAsked) -> tuple[Answer, Reply]:
        """A prompt that is the model's to read as it is, or a gap to fill."""
        if asked.images:
            raise Refusal("raw prompts and gaps take no images: leave raw and suffix out")
        fields = chat_fields(asked, call.options, call.can_think)
        held = fields.pop("response_format", None)
        for name in ("chat_template_kwargs", "reasoning_effort"):
            fields.pop(name, None)
        if held is not None:
            schema = held.get("json_schema", {}).get("schema", {"type": "object"})
            fields["json_schema"] = schema
        tokens = self._gap(call, asked) if asked.suffix else _raw(call, asked)
        if len(tokens) > call.longest:
            raise call.too_long(len(tokens))
        fields = call.bounded(fields, len(tokens))
        call.req.env[NOTE].prompts.append(asked.prompt or "")
        request = read_request(CompletionRequest, fields)
        answer = call.submit(request, fields, tokens, PLAIN)
        return answer, Reply(Sorter(), entries=call.entries())

    def _gap(self, call: _Call, asked: GenerateAsked) -> list[int]:
        if fim_tokens(call.model.tokenizer) is None:
            raise Refusal(f'"{asked.name}" does not support insert')
        length = call.options.length
        return fill(
            call.model.tokenizer,
            asked.prompt or "",
            asked.suffix or "",
            context=call.room,
            length=call.room // 4 if length is None or length < 0 else length,
        )

    def _templated(self, call: _Call, asked: GenerateAsked) -> tuple[Answer, Reply]:
        """A prompt that becomes a conversation of one message."""
        if asked.template:
            call.model = _with_template(call.model, asked.template)
        user = {"role": "user", "content": with_pictures(asked.prompt or "", asked.images, "this")}
        derived = call.derived
        system = asked.system or (derived.system if derived else "")
        before = derived.messages if derived and not asked.context else []
        first = [{"role": "system", "content": system}] if system else []
        fields = chat_fields(asked, call.options, call.can_think)
        turn = call.prepare([*first, *conversation(before, None), user], fields)
        tokens = turn.tokens
        if asked.context:
            tokens = _after(call, asked.context, tokens)
        if len(tokens) > call.longest:
            raise call.too_long(len(tokens))
        fields = call.bounded(fields, len(tokens))
        call.req.env[NOTE].prompts.append(turn.text)
        request = read_request(ChatRequest, fields)
        answer = call.submit(request, fields, tokens, CHAT, **turn.options)
        return answer, turn.reply(call.entries())


def _raw(call: _Call, asked: GenerateAsked) -> list[int]:
    return call.model.tokenizer.encode(asked.prompt or "", add_special=True, parse_special=True)


def _after(call: _Call, context: list[int], tokens: list[int]) -> list[int]:
    """A prompt after what an earlier answer gave as its context: the begin token is there once."""
    known = call.model.tokenizer.n_vocab
    if not all(0 <= token < known for token in context):
        raise Refusal("context holds ids that are none of this model's")
    begins = tokens[:1] == [call.model.tokenizer.bos]
    return [*context, *tokens[begins:]]


def _with_template(model: Any, source: str) -> Any:
    """The model with another chat template. Raises Refusal for one that cannot be read."""
    if not source:
        return model
    check_template(source)
    model = copy.copy(model)
    model.template = _template(source, model.template.bos_token, model.template.eos_token)
    return model


def check_template(source: str) -> None:
    """Raises Refusal for a template that golem does not render."""
    if any(mark in source for mark in _GO):
        raise Refusal(
            "template: this one is written in Go's language, and golem renders Jinja, as model "
            "files hold it: leave it out to use the file's own"
        )
    _template(source, "", "")


@lru_cache(16)
def _compiled(source: str, bos: str, eos: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token=bos, eos_token=eos)


def _template(source: str, bos: str, eos: str) -> ChatTemplate:
    try:
        return _compiled(source, bos, eos)
    except TemplateError as error:
        raise Refusal(f"template: {error}") from None
