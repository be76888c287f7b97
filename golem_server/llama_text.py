"""llama-server's routes from text to tokens and back, and from a conversation to its prompt."""

from collections.abc import Mapping
from typing import Any

import falcon

from golem_core.sample.params import shown
from golem_server import chat
from golem_server.body import read_object
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_native import decode
from golem_server.media import Sight
from golem_server.schema import ChatRequest, read_request
from golem_server.service import Service


class _Resource:
    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        named = body.get("model")
        engine = self.service.acquire(req, named if isinstance(named, str) else None, looks=True)
        resp.content_type = JSON
        resp.data = encode(self.answer(engine.model, body))

    def answer(self, model: Any, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


class Tokenize(_Resource):
    """``POST /tokenize``."""

    def answer(self, model: Any, body: Mapping[str, Any]) -> dict[str, Any]:
        """The tokens of ``content``, a text or a list of texts and ids."""
        tokenizer = model.tokenizer
        special = {
            "add_special": _flag(body, "add_special", False),
            "parse_special": _flag(body, "parse_special", True),
        }
        tokens = _tokens(tokenizer, body.get("content"), **special)
        if not _flag(body, "with_pieces", False):
            return {"tokens": tokens}
        return {"tokens": [{"id": i, "piece": _piece(tokenizer.piece(i, True))} for i in tokens]}


def _flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(f"Field '{name}': type must be boolean")
    return default if value is None else value


def _tokens(tokenizer: Any, content: Any, add_special: bool, parse_special: bool) -> list[int]:
    if content is None:
        return []
    items = [content] if isinstance(content, str) else content
    if not isinstance(items, list):
        raise _wrong("content", content)
    tokens: list[int] = []
    for place, item in enumerate(items):
        if isinstance(item, str):
            first = add_special and place == 0
            tokens += tokenizer.encode(item, add_special=first, parse_special=parse_special)
        else:
            tokens.append(_known(tokenizer, "content", item))
    return tokens


def _wrong(field: str, value: Any) -> Refusal:
    kinds = {"content": "string or a list of strings and tokens", "tokens": "list of tokens"}
    return Refusal(f"Field '{field}': it must be a {kinds[field]}, and holds {shown(value)}")


def _known(tokenizer: Any, field: str, token: Any) -> int:
    if isinstance(token, bool) or not isinstance(token, int):
        raise _wrong(field, token)
    if not 0 <= token < tokenizer.n_vocab:
        raise Refusal("Prompt contains invalid tokens")
    return token


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


class Detokenize(_Resource):
    """``POST /detokenize``."""

    def answer(self, model: Any, body: Mapping[str, Any]) -> dict[str, Any]:
        """The text of ``tokens``."""
        given = body.get("tokens")
        if given is None:
            return {"content": ""}
        if not isinstance(given, list):
            raise _wrong("tokens", given)
        tokens = [_known(model.tokenizer, "tokens", token) for token in given]
        return {"content": decode(model.tokenizer, tokens)}


class _OfConversation(_Resource):
    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        named = body.get("model")
        engine = self.service.acquire(req, named if isinstance(named, str) else None, looks=True)
        request = read_request(ChatRequest, body)
        sight = Sight.of(self.service, engine, req)
        turn = chat.prepare(engine.model, request, self.service.server.reasoning, sight)
        resp.content_type = JSON
        resp.data = encode(self.told(turn))

    def told(self, turn: chat.Turn) -> dict[str, Any]:
        raise NotImplementedError


class ApplyTemplate(_OfConversation):
    """``POST /apply-template``: the prompt of a chat request."""

    def told(self, turn: chat.Turn) -> dict[str, Any]:
        return {"prompt": turn.text}


class InputTokens(_OfConversation):
    """``POST /v1/chat/completions/input_tokens``: how long the prompt of a chat request is."""

    def told(self, turn: chat.Turn) -> dict[str, Any]:
        return {"input_tokens": len(turn.tokens), "object": "response.input_tokens"}
