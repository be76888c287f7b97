"""What Ollama's clients send, read and checked; its conversations become chats of this server."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from golem_server.body import json_type
from golem_server.derived import Derived
from golem_server.errors import Refusal
from golem_server.keep_alive import read_keep_alive
from golem_server.ollama_options import Options, read_options
from golem_server.schema import typed

LEVELS = ("low", "medium", "high", "max")
MOST_TOP = 20
_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
ROLES = ("system", "user", "assistant", "tool")


class Asked(msgspec.Struct, kw_only=True):
    """What chats and generations share."""

    model: str | None = None
    stream: bool | None = None
    format: Any = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None
    think: Any = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | float | None = None

    @property
    def name(self) -> str:
        """Raises Refusal when no model is named."""
        if not self.model:
            raise Refusal("model is required")
        return self.model

    @property
    def streams(self) -> bool:
        return self.stream is not False

    @property
    def stays(self) -> float | None:
        """Seconds the model stays, as read_keep_alive has it."""
        return read_keep_alive(self.keep_alive)

    @property
    def top(self) -> int | None:
        """Competitors told of each token, None = no probabilities at all."""
        top = self.top_logprobs or 0
        if not 0 <= top <= MOST_TOP:
            raise Refusal(f"top_logprobs must be between 0 and {MOST_TOP}")
        return int(top) if self.logprobs else None


class ChatAsked(Asked):
    """``POST /api/chat``."""

    messages: list[Any] | None = None
    tools: list[Any] | None = None


class GenerateAsked(Asked):
    """``POST /api/generate``."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[Any] | None = None


def read_chat(body: Mapping[str, Any]) -> ChatAsked:
    """Raises Refusal for a field of the wrong type."""
    return typed(ChatAsked, body)


def read_generate(body: Mapping[str, Any]) -> GenerateAsked:
    """Raises Refusal for a field of the wrong type, and for fields that exclude each other."""
    asked = typed(GenerateAsked, body)
    if asked.raw and (asked.template or asked.system or asked.context):
        raise Refusal("raw mode does not support template, system, or context")
    return asked


# ---- a chat request of this server ----


def chat_fields(asked: Asked, options: Options, can_think: bool) -> dict[str, Any]:
    """The fields of ``/v1/chat/completions`` that ask for the same, but for its messages."""
    held = _format(asked.format)
    return {
        "stream": asked.streams,
        "stop": options.stop,
        **options.sampling,
        **({} if options.length is None else {"n_predict": options.length}),
        **({"response_format": held} if held else {}),
        **_thinking(asked, can_think),
    }


def _format(given: Any) -> dict[str, Any] | None:
    """What the answer is held to, as ``response_format`` has it."""
    if given in (None, ""):
        return None
    if given == "json" or given in ({}, {"type": "object"}):
        return {"type": "json_object"}
    if not isinstance(given, dict):
        shown = msgspec.json.encode(given).decode()[:100]
        raise Refusal(f'invalid format: {shown}; expected "json" or a valid JSON Schema object')
    return {"type": "json_schema", "json_schema": {"schema": given}}


def _thinking(asked: Asked, can: bool) -> dict[str, Any]:
    think = asked.think
    if think is None:
        return {}
    if isinstance(think, str) and think not in LEVELS:
        shown = msgspec.json.encode(think).decode()[:100]
        raise Refusal(
            f'invalid think value: {shown} (must be "high", "medium", "low", "max", true, or false)'
        )
    if not isinstance(think, str | bool):
        raise Refusal(f'"think" must be a boolean or a level, it is {json_type(think)}')
    if think and not can:
        raise Refusal(f'"{asked.model}" does not support thinking')
    fields: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": bool(think)}}
    return fields | ({"reasoning_effort": think} if isinstance(think, str) else {})


def conversation(messages: list[Any], derived: Derived | None) -> list[dict[str, Any]]:
    """The messages of a chat as ``/v1/chat/completions`` takes them.

    A made model's system message comes first unless the client sends its own, its other messages
    before the client's.
    """
    own = [_message(place, one) for place, one in enumerate(messages)]
    if derived is None:
        return own
    system = derived.system and not (own and own[0]["role"] == "system")
    first = [{"role": "system", "content": derived.system}] if system else []
    return [*first, *(_message(place, one) for place, one in enumerate(derived.messages)), *own]


def _message(place: int, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Refusal(f"message {place} is {json_type(given)}, and an object is expected")
    role = given.get("role")
    if not isinstance(role, str):
        raise Refusal(f"message {place}: 'role' must be a string")
    content = given.get("content")
    if content is not None and not isinstance(content, str):
        raise Refusal(f"message {place}: 'content' must be a string, it is {json_type(content)}")
    message: dict[str, Any] = {
        "role": role.lower(),
        "content": with_pictures(content or "", given.get("images"), f"message {place}"),
    }
    named = {"thinking": "reasoning_content", "tool_name": "name", "tool_call_id": "tool_call_id"}
    message |= {to: given[name] for name, to in named.items() if given.get(name)}
    if given.get("tool_calls"):
        message["tool_calls"] = given["tool_calls"]
    return message


def with_pictures(text: str, images: Any, whose: str) -> str | list[dict[str, Any]]:
    """The content of a message with Ollama's bare base64 beside its text."""
    if not images:
        return text
    if not isinstance(images, list):
        raise Refusal(f"{whose}: 'images' must be an array")
    parts = [_picture(image, whose) for image in images]
    return [*parts, {"type": "text", "text": text}]


def _picture(image: Any, whose: str) -> dict[str, Any]:
    if not isinstance(image, str):
        raise Refusal(f"{whose}: an image must be base64 text")
    try:
        head = base64.b64decode(image[:64], validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(f"{whose}: an image is not base64 text") from None
    kind = next((k for start, k in _PICTURES.items() if head.startswith(start)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{image}"}}


def merged_options(asked: Asked, derived: Derived | None, slot: int) -> Options:
    """The request's options over those the model was made with."""
    own = dict(derived.parameters) if derived else {}
    return read_options(own | (asked.options or {}), slot)
