"""``/v1/models``: what is served, in llama-server's shape, which holds OpenAI's and Ollama's."""

import time
from typing import Any

import falcon

from golem_server.errors import JSON, Refusal, encode, not_found
from golem_server.service import Service

# llama.cpp's numbers for tokenizer.ggml.model
VOCABULARIES = {"none": 0, "llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}


def entry(service: Service) -> dict[str, Any]:
    """The chat model's entry of ``data``."""
    name = service.name
    about = {
        "id": name,
        "aliases": [name],
        "tags": [],
        "object": "model",
        "created": int(time.time()),
        "owned_by": "llamacpp",
    }
    if not service.chats:
        return about
    engine = service.engine
    model = engine.model
    kind = str(model.file.metadata.get("tokenizer.ggml.model", "none"))
    meta = {
        "vocab_type": VOCABULARIES.get(kind, 0),
        "n_vocab": model.n_vocab,
        "n_ctx": engine.context,
        "n_ctx_train": model.context_length,
        "n_embd": model.embedding_length,
        "n_params": model.n_params,
        "size": model.size_bytes,
        "ftype": model.file_type,
    }
    modalities = {"input_modalities": ["text"], "output_modalities": ["text"]}
    return about | {"meta": meta, "architecture": modalities}


def listing(service: Service) -> dict[str, Any]:
    """The body of ``GET /v1/models``."""
    name = service.name
    details = {
        "parent_model": "",
        "format": "gguf",
        "family": "",
        "families": [""],
        "parameter_size": "",
        "quantization_level": "",
    }
    ollama = {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"] if service.chats else [],
        "parameters": "",
        "details": details,
    }
    return {"models": [ollama], "object": "list", "data": [entry(service)]}


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
        if name != self.service.name:
            raise Refusal(
                f'there is no model "{name[:100]}" here; the one served is "{self.service.name}"',
                "not_found_error",
            )
        resp.content_type = JSON
        resp.data = encode(entry(self.service))
