"""``/v1/embeddings`` in OpenAI's and llama-server's words, and what every dialect of it shares.

A request is checked whole before any work: its texts are read into ids, and one that is too long,
empty or of the wrong type refuses all. An answer of more than one pass leaves text by text while
the later ones are computed, so that its size is no matter of memory; a client that hangs up takes
its texts out of the passes to come.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import falcon
import numpy as np

from golem_core.embedding import Embedding, TextTooLong, unit
from golem_core.model.errors import CannotEmbed
from golem_core.sample.params import shown
from golem_core.schedule.batcher import BatchJob
from golem_server.access_log import NOTE
from golem_server.body import json_type, read_object
from golem_server.disconnect import client_gone
from golem_server.errors import JSON, ClientGone, Refusal, encode
from golem_server.prompts import wrong
from golem_server.service import Service

MOST_TEXTS = 2048  # of a request, as at OpenAI
NOT_SUPPORTED = "This server does not support embeddings. Start it with `--embed FILE`"


def embedding_of(service: Service, req: falcon.Request, asked: str | None) -> Embedding:
    """What answers: ``-embed``'s model, else the chat model that the request means.

    Raises:
        Refusal: 501 where neither gives vectors.
    """
    if service.embedding is not None:
        return service.embedding
    if not service.chats:
        raise Refusal(NOT_SUPPORTED, "not_supported_error")
    model = service.acquire(req, asked).model
    try:
        return model.embedding()
    except CannotEmbed as error:
        raise Refusal(f"{NOT_SUPPORTED} ({error})", "not_supported_error") from None


# ---- reading texts ----


def read_texts(embedding: Embedding, given: Any, field: str = "input") -> list[np.ndarray]:
    """The ids (tokens,) of every text of a field: texts, ids, or lists of either.

    Texts get the model's special tokens, ids are used as they are.

    Raises:
        Refusal: for what is none of these, or holds nothing.
    """
    if given == []:
        raise Refusal(f'"{field}" must not be empty')
    several = isinstance(given, list) and not _mixed(given)
    texts = given if several else [given]
    if len(texts) > MOST_TEXTS:
        raise Refusal(f'"{field}" holds {len(texts)} texts; at most {MOST_TEXTS} a request')
    return [_ids(embedding, text, field) for text in texts]


def _is_id(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _mixed(given: list) -> bool:
    """Whether a list is one text, of ids or of ids and strings, and not several texts."""
    return any(_is_id(item) for item in given) and all(
        _is_id(item) or isinstance(item, str) for item in given
    )


def _ids(embedding: Embedding, text: Any, field: str) -> np.ndarray:
    if isinstance(text, dict) and isinstance(text.get("prompt_string"), str):
        text = text["prompt_string"]
    if text == "" or text == []:
        raise Refusal("Input content cannot be empty")
    if isinstance(text, str):
        return embedding.tokenize(text)
    if not isinstance(text, list):
        raise wrong("prompt")  # llama-server's word, whatever the field
    vocabulary = embedding.model.tokenizer.n_vocab
    ids: list[int] = []
    for place, item in enumerate(text):
        if isinstance(item, str):
            ids += embedding.model.tokenizer.encode(item, add_special=place == 0)
        elif not _is_id(item):
            raise wrong("prompt")
        elif not 0 <= item < vocabulary:
            raise Refusal(
                f'Prompt contains invalid tokens: "{field}" holds {shown(item)}, and ids are 0 to '
                f"{vocabulary - 1}"
            )
        else:
            ids.append(item)
    return np.array(ids, np.int32)


def submit(embedding: Embedding, texts: Sequence[np.ndarray]) -> BatchJob:
    """The job of some texts.

    Raises:
        Refusal: for one that is too long.
        QueueFull, EngineClosed.
    """
    try:
        return embedding.submit(texts)
    except TextTooLong as error:
        raise Refusal(
            f"input ({error.tokens} tokens) is larger than the max context size "
            f"({error.context} tokens). skipping",
            "exceed_context_size_error",
            n_prompt_tokens=error.tokens,
            n_ctx=error.context,
        ) from None
    except ValueError:  # a text of which nothing is left, by a model without special tokens
        raise Refusal("Input content cannot be empty") from None


def read_dimensions(embedding: Embedding, value: Any) -> int | None:
    """How many values of each vector are wanted; None for all.

    Raises:
        Refusal: for what no vector of the model has.
    """
    return None if value is None else _whole("dimensions", value, 1, embedding.width)


def _whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """A field's number as a whole one inside its limits; 40.0 is one. Raises Refusal."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value % 1 or value < low or (high is not None and value > high):
        most = "" if high is None else f" to {high}"
        raise Refusal(f'"{name}" must be a whole number from {low}{most}, it is {shown(value)}')
    return int(value)


def normalised(vector: np.ndarray, norm: int, dimensions: int | None = None) -> np.ndarray:
    """A vector by llama-server's ``embd_normalize``: -1 raw, 0 largest 32760, else the p-norm."""
    if norm == 2:
        return unit(vector, dimensions)
    vector = vector if dimensions is None else vector[:dimensions]
    if norm < 0:
        return vector
    values = vector.astype(np.float64)
    if norm == 0:
        length = np.abs(values).max(initial=0) / 32760.0
    else:
        length = np.sum(np.abs(values) ** norm) ** (1 / norm)
    return (values / length if length > 0 else values).astype(np.float32)


# ---- answering ----


@dataclass(frozen=True)
class Body:
    """A response in pieces: what stands before, between and after the results."""

    head: bytes
    item: Callable[[int, np.ndarray], bytes]
    tail: Callable[[], bytes]  # called when everything before it is there


class _Stream:
    """A WSGI body that writes results as they come; leaving it takes the job out."""

    def __init__(self, job: BatchJob, first: bytes, rest: Iterator[bytes]):
        self._job = job
        self._first = first
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        yield from self._rest

    def close(self) -> None:
        self._job.cancel()


def answer(
    req: falcon.Request, resp: falcon.Response, embedding: Embedding, job: BatchJob, body: Body
) -> None:
    """Makes the results the response: whole, or as they come where they take several passes.

    Raises:
        ClientGone, PassFailed, EngineClosed: before anything was sent.
    """
    resp.content_type = JSON
    req.env[NOTE].done = f"{len(job.items)} texts, {sum(job.sizes)} tokens"
    gone = client_gone(req.env)
    texts, tokens = embedding.one_pass
    if len(job.items) <= texts and sum(job.sizes) <= tokens:
        vectors = job.all(gone)
        if vectors is None:
            raise ClientGone
        resp.data = (
            body.head + b",".join(map(body.item, range(len(vectors)), vectors)) + body.tail()
        )
        return
    results = job.results(gone)
    try:
        first = next(results, None)
    except BaseException:
        job.cancel()
        raise
    if first is None:
        raise ClientGone

    def rest() -> Iterator[bytes]:
        count = 1
        for vector in results:
            yield b"," + body.item(count, vector)
            count += 1
        if count == len(job.items):
            yield body.tail()

    resp.stream = _Stream(job, body.head + body.item(0, first), rest())


def number_list(vector: np.ndarray) -> bytes:
    """A vector as JSON."""
    return encode(vector.tolist())


def _oai_item(index: int, vector: np.ndarray, as_base64: bool) -> bytes:
    if not as_base64:
        return b'{"embedding":%s,"index":%d,"object":"embedding"}' % (number_list(vector), index)
    text = base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes())
    return b'{"embedding":"%s","index":%d,"object":"embedding","encoding_format":"base64"}' % (
        text,
        index,
    )


def _split(whole: Mapping[str, Any], key: str) -> tuple[bytes, bytes]:
    """An object with an empty list last, cut inside of that list."""
    text = encode({**whole, key: []})
    return text[:-2], text[-2:]


class Embeddings:
    """``POST /v1/embeddings``; with ``content`` instead of ``input`` it answers as /embedding."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        if "input" in body:
            self._answer(req, resp, body)
        elif "content" in body:
            native(self.service, req, resp, body)
        else:
            raise Refusal('"input" or "content" must be provided')

    def _answer(self, req: falcon.Request, resp: falcon.Response, body: dict[str, Any]) -> None:
        model = _model(body)
        embedding = embedding_of(self.service, req, model)
        as_base64 = _wants_base64(body)
        norm = _norm(body)
        dimensions = read_dimensions(embedding, body.get("dimensions"))
        _refuse_ranking(embedding)
        texts = read_texts(embedding, body["input"])
        job = submit(embedding, texts)
        count = sum(map(len, texts))
        about = {
            "model": embedding.name if model is None else model,
            "object": "list",
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }

        def item(index: int, vector: np.ndarray) -> bytes:
            return _oai_item(index, normalised(vector, norm, dimensions), as_base64)

        head, tail = _split(about, "data")
        answer(req, resp, embedding, job, Body(head, item, lambda: tail))


def native(
    service: Service, req: falcon.Request, resp: falcon.Response, body: Mapping[str, Any]
) -> None:
    """llama-server's ``/embedding``: ``[{"index": 0, "embedding": [[…]]}, …]``.

    Raises:
        Refusal: as ``/v1/embeddings`` does.
    """
    field = "content" if "content" in body else "input"
    if field not in body:
        raise Refusal('"input" or "content" must be provided')
    embedding = embedding_of(service, req, _model(body))
    norm = _norm(body)
    _refuse_ranking(embedding)
    job = submit(embedding, read_texts(embedding, body[field], field))

    def item(index: int, vector: np.ndarray) -> bytes:
        return b'{"index":%d,"embedding":[%s]}' % (index, number_list(normalised(vector, norm)))

    answer(req, resp, embedding, job, Body(b"[", item, lambda: b"]"))


def _model(body: Mapping[str, Any]) -> str | None:
    """The name a request calls the model by. Raises Refusal."""
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise Refusal(f"Field 'model': type must be string, but is {json_type(model)}")
    return model


def _wants_base64(body: Mapping[str, Any]) -> bool:
    asked = body.get("encoding_format")
    if asked not in (None, "", "float", "base64"):
        raise Refusal("The format to return the embeddings in. Can be either float or base64")
    return asked == "base64"


def _norm(body: Mapping[str, Any]) -> int:
    value = body.get("embd_normalize")
    return 2 if value is None else _whole("embd_normalize", value, -1, 64)


def _refuse_ranking(embedding: Embedding) -> None:
    if embedding.model.ranks:
        raise Refusal(
            f"{embedding.name} ranks texts and gives no vectors: ask /v1/rerank",
            "not_supported_error",
        )


# ---- ranking ----


class Rerank:
    """``POST /v1/rerank``: Jina's shape, or text-embeddings-inference's where ``texts`` is sent."""

    def __init__(self, service: Service, max_body: int):
        self.service = service
        self.max_body = max_body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_object(req, self.max_body)
        embedding = self.service.embedding
        if embedding is None or not embedding.model.ranks:
            raise Refusal(
                "This server does not support reranking. Start it with `--embed FILE`, a model "
                "whose file says rank pooling",
                "not_supported_error",
            )
        name = _model(body) or embedding.name
        query, documents = _question(body)
        top = body.get("top_n")
        top = len(documents) if top is None else _whole("top_n", top, 0)
        pairs = embedding.pairs(query, documents)
        scores = submit(embedding, pairs).all(client_gone(req.env))
        if scores is None:
            raise ClientGone
        resp.content_type = JSON
        tokens = sum(map(len, pairs))
        resp.data = encode(_ranking(body, name, documents, scores, tokens, top))


def _question(body: Mapping[str, Any]) -> tuple[str, list[str]]:
    if "query" not in body:
        raise Refusal('"query" must be provided')
    if not isinstance(body["query"], str):
        raise Refusal('"query" must be a string')
    documents = body.get("documents", body.get("texts"))
    texts = isinstance(documents, list) and all(isinstance(text, str) for text in documents)
    if not texts or not documents:
        raise Refusal('"documents" must be a non-empty string array')
    if len(documents) > MOST_TEXTS:
        raise Refusal(f'"documents" holds {len(documents)} texts; at most {MOST_TEXTS} a request')
    return body["query"], documents


def _ranking(
    body: Mapping[str, Any],
    name: str,
    documents: Sequence[str],
    scores: Sequence[np.ndarray],
    tokens: int,
    top: int,
) -> Any:
    """The answer, the best first; of equal ones the first given."""
    tei = "texts" in body
    label = "score" if tei else "relevance_score"
    results = [{"index": i, label: float(score[0])} for i, score in enumerate(scores)]
    if tei and body.get("return_text") is True:
        results = [one | {"text": documents[one["index"]]} for one in results]
    results = sorted(results, key=lambda one: -one[label])[:top]
    if tei:
        return results
    return {
        "model": name,
        "object": "list",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": results,
    }
