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


def embedding_entry(service: Service) -> dict[str, Any]:
    """The entry of ``-embed``'s model; under ``-alias`` where it is served alone."""
    model = service.embedding.model
    about = _named(model.name if service.chats else service.name)
    about["capabilities"] = ["embedding"]
    about["meta"] = {
        "vocab_type": VOCABULARIES.get(model.tokenizer.model, 0),
        "n_vocab": model.tokenizer.n_vocab,
        "n_ctx": model.context,
        "n_ctx_train": model.context,
        "n_embd": model.width,
        "n_params": model.n_params,
        "size": model.size_bytes,
        "ftype": model.file_type,
    }
    return about


def entries(service: Service) -> list[dict[str, Any]]:
    """All of ``data``."""
    if service.phase is not Phase.READY:
        raise service.unavailable()
    found = [entry(service, model) for model in service.entries()] if service.chats else []
    if service.embedding is not None:
        found.append(embedding_entry(service))
    if found or service.chats:  # a folder of models may be empty
        return found
    return [_named(service.name)]


def listing(service: Service) -> dict[str, Any]:
    """The body of ``GET /v1/models``."""
    data = entries(service)
    otherwise = ["completion"] if service.chats else []
    return {
        "models": [_as_ollama(one["id"], one.get("capabilities", otherwise)) for one in data],
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
        if found is None and self.service.server.models is not None:
            found = entry(self.service, self.service.find(name))  # any name that requests may use
        if found is None:
            served = ", ".join(f'"{one["id"]}"' for one in entries(self.service))
            raise Refusal(
                f'there is no model "{name[:100]}" here; what is served is {served}',
                "not_found_error",
            )
        resp.content_type = JSON
        resp.data = encode(found)
