"""``/api/embed`` and ``/api/embeddings``: vectors in Ollama's words and with Ollama's manners.

Both cut a text that is too long where the other dialects refuse it; ``/api/embeddings`` gives the
one vector as the model pooled it, not made one of length 1, unless the file asks for that.
"""

import json
import time
from typing import Any

import falcon
import numpy as np

from golem_core.embedding import Embedding, unit
from golem_core.sample.params import shown
from golem_server.access_log import NOTE
from golem_server.body import json_type, read_body
from golem_server.disconnect import client_gone
from golem_server.embeddings import (
    MOST_TEXTS,
    Body,
    answer,
    embedding_of,
    number_list,
    submit,
)
from golem_server.errors import JSON, ClientGone, Refusal, encode
from golem_server.keep_alive import read_keep_alive
from golem_server.service import Service

TOO_LONG = "the input length exceeds the context length"


def error_body(refusal: Refusal) -> dict[str, Any]:
    """A refusal as Ollama words it."""
    return {"error": refusal.message}


def read_request(req: falcon.Request, limit: int) -> dict[str, Any]:
    """The object a request holds.

    Raises:
        Refusal: 400, in Ollama's words.
    """
    body = read_body(req, limit)
    if not body.strip():
        raise Refusal("missing request body")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(str(error)) from None
    if not isinstance(value, dict):
        raise Refusal("the request body must be a JSON object")
    read_keep_alive(value.get("keep_alive"))
    return value


class _Resource:
    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def _begin(self, req: falcon.Request) -> tuple[dict[str, Any], str, Embedding]:
        """The request, the model's name as asked for, and what answers."""
        request = read_request(req, self.max_body)
        model = request.get("model")
        if model is not None and not isinstance(model, str):
            raise Refusal("model must be a string")
        embedding = embedding_of(self.service, req, model)
        if embedding.model.ranks:
            raise Refusal(f"{embedding.name} ranks texts and gives no vectors")
        return request, model or embedding.name, embedding


class Embed(_Resource):
    """``POST /api/embed``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        began = time.monotonic_ns()
        request, model, embedding = self._begin(req)
        given = request.get("input")
        resp.content_type = JSON
        if given in (None, "", []):
            resp.data = encode({"model": model, "embeddings": []})
            return
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise Refusal("invalid input type")
        if len(texts) > MOST_TEXTS:
            raise Refusal(f"input holds {len(texts)} texts; at most {MOST_TEXTS} a request")
        limit = _limit(embedding, request)
        ids = [embedding.tokenize(text) for text in texts]
        if _truncates(request):
            ids = [embedding.model.cut(one, limit) for one in ids]
        elif any(len(one) > limit for one in ids):
            raise Refusal(TOO_LONG)
        dimensions = _dimensions(embedding, request)
        job = submit(embedding, ids)

        def item(index: int, vector: np.ndarray) -> bytes:
            return number_list(finite(unit(vector, dimensions)))

        # A member whose value is known only at the end cannot stand before the vectors.
        head = encode({"model": model, "embeddings": []})[:-2]
        count = sum(map(len, ids))
        loading = round(req.env[NOTE].load_seconds * 1e9)

        def tail() -> bytes:
            about = {"total_duration": time.monotonic_ns() - began, "load_duration": loading}
            about["prompt_eval_count"] = count
            return b"]," + encode({key: value for key, value in about.items() if value})[1:]

        answer(req, resp, embedding, job, Body(head, item, tail))


class EmbedOne(_Resource):
    """``POST /api/embeddings``: the older form, one text."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        request, _, embedding = self._begin(req)
        prompt = request.get("prompt")
        if prompt is not None and not isinstance(prompt, str):
            raise Refusal("prompt must be a string")
        resp.content_type = JSON
        if not prompt:
            resp.data = encode({"embedding": []})
            return
        ids = embedding.model.cut(embedding.tokenize(prompt), _limit(embedding, request))
        req.env[NOTE].done = f"1 text, {len(ids)} tokens"
        vectors = submit(embedding, [ids]).all(client_gone(req.env))
        if vectors is None:
            raise ClientGone
        vector = unit(vectors[0]) if embedding.model.normalised else vectors[0]
        resp.data = encode({"embedding": finite(vector).tolist()})


def _limit(embedding: Embedding, request: dict[str, Any]) -> int:
    """Tokens of a text at most: the model's, or fewer where ``options.num_ctx`` says so."""
    options = request.get("options")
    if options is not None and not isinstance(options, dict):
        raise Refusal(f"options must be an object, it is {json_type(options)}")
    asked = (options or {}).get("num_ctx")
    if asked is not None and not _is_whole(asked):
        raise Refusal('option "num_ctx" must be of type integer')
    limit = embedding.context if asked is None else min(embedding.context, int(asked))
    if limit <= 2:
        raise Refusal("input after truncation exceeds maximum context length")
    return limit


def _dimensions(embedding: Embedding, request: dict[str, Any]) -> int | None:
    """Values wanted; any number that is no shorter prefix means all."""
    value = request.get("dimensions")
    if value is None:
        return None
    if not _is_whole(value):
        raise Refusal(f"dimensions must be a whole number, it is {shown(value)}")
    return int(value) if 0 < value < embedding.width else None


def _truncates(request: dict[str, Any]) -> bool:
    value = request.get("truncate")
    if value is not None and not isinstance(value, bool):
        raise Refusal(f"truncate must be a boolean, it is {json_type(value)}")
    return value is not False


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0


def finite(vector: np.ndarray) -> np.ndarray:
    """The vector itself.

    Raises:
        Refusal: where a value is none that JSON has.
    """
    if not np.isfinite(vector).all():
        raise Refusal("embedding contains NaN or Inf values")
    return vector
