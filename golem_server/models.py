"""``/v1/models``: what is served, in llama-server's shape, which holds OpenAI's and Ollama's."""

import time
from typing import Any

import falcon

from golem_server.errors import JSON, Refusal, encode, not_found
from golem_server.residency import Entry
from golem_server.service import Phase, Service

# llama.cpp's numbers for tokenizer.ggml.model
VOCABULARIES = {"none": 0, "llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}


def entry(service: Service, model: Entry) -> dict[str, Any]:
    """A chat model's entry of ``data``; one of ``-models`` says whether it is in memory."""
    about = _named(model.name)
    resident = service.residency.resident(model.name)
    if service.server.models is not None:
        about["status"] = {"value": "loaded" if resident else "unloaded"}
    if resident is None:
        return about
    engine = resident.engine
    chat = engine.model
    kind = str(chat.file.metadata.get("tokenizer.ggml.model", "none"))
    meta = {
        "vocab_type": VOCABULARIES.get(kind, 0),
        "n_vocab": chat.n_vocab,
        "n_ctx": engine.context,
        "n_ctx_train": chat.context_length,
        "n_embd": chat.embedding_length,
        "n_params": chat.n_params,
        "size": chat.size_bytes,
        "ftype": chat.file_type,
    }
    modalities = {"input_modalities": ["text"], "output_modalities": ["text"]}
    return about | {"meta": meta, "architecture": modalities}


def _named(name: str) -> dict[str, Any]:
    """What every entry begins with."""
    return {
        "id": name,
        "aliases": [name],
        "tags": [],
        "object": "model",
        "created": int(time.time()),
        "owned_by": "llamacpp",
    }


def entries(service: Service) -> list[dict[str, Any]]:
    """All of ``data``."""
    if not service.chats:
        return [_named(service.name)]
    if service.phase is not Phase.READY:
        raise service.unavailable()
    return [entry(service, model) for model in service.entries()]


def listing(service: Service) -> dict[str, Any]:
    """The body of ``GET /v1/models``."""
    data = entries(service)
    capabilities = ["completion"] if service.chats else []
    return {
        "models": [_as_ollama(one["id"], capabilities) for one in data],
        "object": "list",
        "data": data,
    }


def _as_ollama(name: str, capabilities: list[str]) -> dict[str, Any]:
    """The entry of ``models``, as llama-server fills it in."""
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": capabilities,
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "",
            "families": [""],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


class Models:
    """``GET /v1/models``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = JSON
        resp.data = encode(listing(self.service))


class Model:
    """``GET /v1/models/{id}``."""

    def __init__(self, service: Service):
        self.service = service

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        if not name:
            raise not_found()
        found = next((one for one in entries(self.service) if one["id"] == name), None)
        if found is None:
            served = ", ".join(f'"{one["id"]}"' for one in entries(self.service))
            raise Refusal(
                f'there is no model "{name[:100]}" here; what is served is {served}',
                "not_found_error",
            )
        resp.content_type = JSON
        resp.data = encode(found)
