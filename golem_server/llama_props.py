"""llama-server's ``/props`` and the routes that only say what this server does not do."""

import json
from functools import lru_cache
from typing import Any

import falcon

from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_core.text.template import ChatTemplate, TemplateError
from golem_server.body import read_body
from golem_server.errors import JSON, Refusal, encode
from golem_server.llama_settings import settings
from golem_server.schema import NO_LORA
from golem_server.service import Service
from golem_server.version import FINGERPRINT

MEDIA_MARKER = "<__media__>"


class Props:
    """``GET /props``; nothing can be set."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode(self.props(req))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        raise Refusal(
            "This server does not support changing global properties", "not_supported_error"
        )

    def props(self, req: falcon.Request) -> dict[str, Any]:
        """What is served and how answers are drawn when a request says nothing."""
        service = self.service
        engine = service.acquire(req, req.get_param("model"), looks=True)
        model = engine.model
        tokenizer = model.tokenizer
        silent = Request([], params=SamplerParams.resolve(model.sampling, {}))
        return {
            "default_generation_settings": {
                "params": settings(silent, service.server.n, short=True),
                "n_ctx": engine.context,
            },
            "total_slots": len(engine.slots),
            "model_alias": service.name,
            "model_ftype": model.file_type,
            "model_path": str(model.path),
            "modalities": _modalities(model),
            "media_marker": MEDIA_MARKER,
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "ui": False,
            "ui_settings": {},
            "chat_template": model.template.source,
            "chat_template_caps": template_caps(model.template),
            "bos_token": _text(tokenizer, tokenizer.bos),
            "eos_token": _text(tokenizer, tokenizer.eos),
            "build_info": FINGERPRINT,
            "is_sleeping": False,
            "cors_proxy_enabled": False,
            "cache": _cache(engine),
        }


def _cache(engine: Engine) -> dict[str, Any]:
    """Golem's own: what keys and values are kept as, the bytes of all slots when they are full,
    and those of conversations that wait outside of them."""
    states = engine.model.executor.states
    return {
        "type_k": states.type_k,
        "type_v": states.type_v,
        "slot_bytes": states.nbytes,
        "host_bytes": engine.stats.stored_bytes,
    }


def _modalities(model: Any) -> dict[str, bool]:
    projector = getattr(model, "projector", None)
    kinds = projector.kinds if projector is not None else ()
    return {"vision": "image" in kinds, "video": False, "audio": "audio" in kinds}


def _text(tokenizer: Any, token: int | None) -> str:
    return "" if token is None else tokenizer.text(token)


# ---- what a template can do ----

_MARK = "zqmarkqz"  # a text that no template holds


@lru_cache(8)
def template_caps(template: ChatTemplate) -> dict[str, bool]:
    """What a chat template makes of a conversation, by rendering some: llama-server's names."""
    user = {"role": "user", "content": "u"}
    call = {"type": "function", "id": "c1", "function": {"name": _MARK, "arguments": {"a": 1}}}
    second = {"type": "function", "id": "c2", "function": {"name": _MARK + "2", "arguments": {}}}
    tool = {"type": "function", "function": {"name": _MARK, "description": "d", "parameters": {}}}

    def shows(messages: list[dict[str, Any]], wanted: str = _MARK, **more: Any) -> bool:
        try:
            return wanted in template.render(messages, **more)
        except TemplateError:
            return False

    def called(*calls: dict[str, Any]) -> list[dict[str, Any]]:
        return [user, {"role": "assistant", "content": "", "tool_calls": list(calls)}, user]

    typed = [{"role": "user", "content": [{"type": "text", "text": _MARK}]}]
    thought = {"role": "assistant", "content": "a", "reasoning_content": _MARK}
    return {
        "supports_object_arguments": shows(called(call)),
        "supports_parallel_tool_calls": shows(called(call, second), _MARK + "2"),
        "supports_preserve_reasoning": shows([user, thought, user], preserve_thinking=True),
        "supports_reasoning_effort": "reasoning_effort" in template.source,
        "supports_string_content": shows([{"role": "user", "content": _MARK}]),
        "supports_system_role": shows([{"role": "system", "content": _MARK}, user]),
        "supports_tool_calls": shows(called(call)),
        "supports_tools": shows([user], tools=[tool]),
        "supports_typed_content": shows(typed) and not shows(typed, "'type'"),
    }


# ---- what is not done here ----


class LoraAdapters:
    """``/lora-adapters``: there are none, and none is all that can be set."""

    def __init__(self, max_body: int):
        self.max_body = max_body

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode([])

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        try:
            wanted = json.loads(read_body(req, self.max_body))
        except (ValueError, RecursionError):
            wanted = None
        if not isinstance(wanted, list):
            raise Refusal("Request body must be an array")
        if wanted:
            raise Refusal(NO_LORA, "not_supported_error")
        resp.content_type = JSON
        resp.data = encode({"success": True})
