"""llama-server's ``/slots``: what every slot is doing, and forgetting, saving or restoring one."""

import contextlib
import time
from typing import Any

import falcon

from golem_core.schedule import Engine, SlotState
from golem_server.answer import PROBE_SECONDS
from golem_server.body import json_type, object_of, read_body
from golem_server.disconnect import client_gone
from golem_server.errors import JSON, ClientGone, Refusal, encode
from golem_server.llama_settings import settings
from golem_server.llama_slot_files import valid_name
from golem_server.service import Service

NO_SLOT = "Invalid slot ID"
ACTIONS = ("save", "restore", "erase")
NO_FILES = "This server does not support slots action. Start it with `-slot-save-path`"


def slot_json(state: SlotState, default_length: int) -> dict[str, Any]:
    """A slot as ``GET /slots`` tells it."""
    told: dict[str, Any] = {
        "id": state.id,
        "n_ctx": state.n_ctx,
        "speculative": False,
        "is_processing": state.is_processing,
    }
    job = state.job
    if job is None:
        return told
    read = job.progress
    busy = state.is_processing
    return told | {
        "id_task": job.number,
        "n_prompt_tokens": state.n_tokens,
        "n_prompt_tokens_processed": read.processed - read.cached if busy else 0,
        "n_prompt_tokens_cache": read.cached if busy else 0,
        "params": settings(job.request, default_length, short=True),
        "next_token": [
            {
                "has_next_token": busy,
                "has_new_line": job.result is not None and job.result.has_new_line,
                "n_remain": state.n_remain,
                "n_decoded": state.n_decoded,
            }
        ],
    }


class Slots:
    """``GET /slots``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        engine = self.service.resident(req.get_param("model") or "")
        states = [] if engine is None else engine.slots
        if req.get_param("fail_on_no_slot") and all(state.is_processing for state in states):
            raise Refusal("no slot available", "unavailable_error", retry=True)
        resp.content_type = JSON
        resp.data = encode([slot_json(state, self.service.server.n) for state in states])


class Slot:
    """``POST /slots/{id}?action=``."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response, slot: str) -> None:
        action = req.get_param("action")
        files = self.service.slot_files
        if files is None and action != "erase":
            raise Refusal(NO_FILES, "not_supported_error")
        if not slot.isascii() or not slot.isdigit():
            raise Refusal(NO_SLOT)
        if action not in ACTIONS:
            raise Refusal("Invalid action")
        body = self._body(req, action)
        named = req.get_param("model") or body.get("model")
        if named is not None and not isinstance(named, str):
            raise Refusal(f"Field 'model': type must be string, but is {json_type(named)}")
        if action == "save" and self.service.resident(named or "") is None:
            raise Refusal(
                "Unable to save slot: the model is not in memory, and its slots are empty"
            )
        engine = self.service.acquire(req, named, looks=True)
        index = _slot(slot, engine)
        resp.content_type = JSON
        if action == "erase":
            resp.data = encode({"id_slot": index, "n_erased": _erase(req, engine, index)})
            return
        name = body.get("filename")
        if name is None:
            raise Refusal("key 'filename' not found")
        if not isinstance(name, str) or not valid_name(name):
            raise Refusal("Invalid filename")
        act = files.save if action == "save" else files.restore
        while (told := act(engine, index, name)) is None:
            _wait(req, engine, index)
        resp.data = encode({"id_slot": index, "filename": name, **told})

    def _body(self, req: falcon.Request, action: str) -> dict[str, Any]:
        """The object that was sent; who only erases may send anything."""
        body = read_body(req, self.max_body)
        with contextlib.suppress(*([Refusal] if action == "erase" else [])):
            return object_of(body)
        return {}


def _slot(text: str, engine: Engine) -> int:
    if int(text[:9]) >= len(engine.slots):
        raise Refusal(NO_SLOT)
    return int(text)


def _erase(req: falcon.Request, engine: Engine, index: int) -> int:
    while (count := engine.erase(index)) is None:
        _wait(req, engine, index)
    return count


def _wait(req: falcon.Request, engine: Engine, index: int) -> None:
    """Wait until a slot is idle. Raises ClientGone when nobody waits for that any more."""
    gone = client_gone(req.env)
    while engine.slots[index].is_processing:
        if gone():
            raise ClientGone
        time.sleep(PROBE_SECONDS)
