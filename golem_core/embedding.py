"""Vectors of texts: an open embedding model, and the thread that packs everybody's texts together.

``Embedding`` is what ``golem_core.open`` gives for an embedding file and what a server answers
``/v1/embeddings`` with. Texts of one caller and of several waiting ones share passes; a text's
vector has the same bits alone and in any company.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golem_core import arguments
from golem_core.model.embedder import Embedder, of_decoder, open_embedder
from golem_core.model.errors import CannotEmbed
from golem_core.schedule import EngineClosed
from golem_core.schedule.batcher import WAIT_SECONDS, Batcher, BatchJob, BatchStats


class TextTooLong(ValueError):
    """A text of more tokens than the model reads."""

    def __init__(self, tokens: int, context: int, index: int = 0):
        self.tokens = tokens
        self.context = context
        self.index = index  # of the text among those given
        super().__init__(
            f"text {index} is {tokens} tokens long and the model reads {context}: cut it into "
            "pieces, or let it be truncated"
        )


def unit(vector: np.ndarray, dimensions: int | None = None) -> np.ndarray:
    """The first ``dimensions`` values (all when None) of a vector, made one of length 1.

    (width,) or (texts, width) f32 -> f32; sums in f64. A vector of zeros stays one.
    """
    cut = vector if dimensions is None else vector[..., :dimensions]
    length = np.sqrt(np.sum(np.square(cut, dtype=np.float64), axis=-1, keepdims=True))
    return (cut / np.where(length > 0, length, 1.0)).astype(np.float32)


class Embedding:
    """An open model that makes vectors. Close it, or use it in a ``with`` block. Thread-safe.

    embedder: closed with it. queue: requests that may wait for their turn. wait: seconds that a
    nearly empty pass waits for company.
    """

    def __init__(self, embedder: Embedder, *, queue: int = 256, wait: float = WAIT_SECONDS):
        self.model = embedder
        self._closed = False
        self._batcher = Batcher(
            embedder.run,
            name="embed",
            cap=embedder.columns,
            most=embedder.texts,
            queue=queue,
            wait=wait,
        )

    def __enter__(self) -> Embedding:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fails what waits and frees the model. Idempotent."""
        self._closed = True
        self._batcher.close()
        self.model.close()

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def width(self) -> int:
        """Values of a vector."""
        return self.model.width

    @property
    def context(self) -> int:
        """Tokens of a text at most, its special tokens among them."""
        return self.model.context

    @property
    def stats(self) -> BatchStats:
        """Passes, texts and tokens so far."""
        return self._batcher.stats

    @property
    def one_pass(self) -> tuple[int, int]:
        """Texts and tokens that a pass holds at most."""
        return self.model.texts, self.model.columns

    def tokenize(self, text: str) -> np.ndarray:
        """The ids of a text, with the special tokens around it: (tokens,) i32."""
        self._require_open()
        return self.model.encode(arguments.text("text", text))

    def _require_open(self) -> None:
        if self._closed:
            raise EngineClosed("this model is closed: open it again")

    def submit(self, texts: Sequence[np.ndarray]) -> BatchJob:
        """Texts as ids; the job's results are their vectors as pooled, (width,) f32.

        Raises TextTooLong, ValueError for ids that do not exist, QueueFull, EngineClosed.
        """
        for index, ids in enumerate(texts):
            if len(ids) > self.context:
                raise TextTooLong(len(ids), self.context, index)
            if not len(ids):
                raise ValueError(f"text {index} holds no token")
            if ids.min() < 0 or ids.max() >= self.model.tokenizer.n_vocab:
                raise ValueError(f"text {index} holds tokens outside the vocabulary")
        return self._batcher.submit(list(texts), [len(ids) for ids in texts])

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        dimensions: int | None = None,
        normalise: bool = True,
        truncate: bool = False,
    ) -> np.ndarray:
        """Vectors of texts: (texts, width) f32, or (width,) for a single text.

        The prefix that a model was trained with ("search_query: ") is the caller's to write.
        dimensions: keep so many values. normalise: to length 1; the cut of ``dimensions`` is
        normalised anew. truncate: cut a text that is too long instead of raising TextTooLong.
        """
        if self.model.ranks:
            raise CannotEmbed(f"{self.name} ranks pairs of texts and gives no vectors: use rank")
        dimensions = arguments.whole("dimensions", dimensions, 1, self.width)
        ids = [self.tokenize(text) for text in arguments.texts("texts", texts)]
        if truncate:
            ids = [self.model.cut(one, self.context) for one in ids]
        made = self.submit(ids).all() or []
        vectors = np.array(made, np.float32).reshape(len(ids), self.width)
        if normalise:
            vectors = unit(vectors, dimensions)
        elif dimensions is not None:
            vectors = vectors[:, :dimensions]
        return vectors[0] if isinstance(texts, str) else vectors

    def pairs(self, query: str, documents: Sequence[str]) -> list[np.ndarray]:
        """The ids of a question with each of the texts to rank. Raises CannotEmbed."""
        if not self.model.ranks:
            raise CannotEmbed(f"{self.name} gives vectors and ranks nothing: use embed")
        self._require_open()
        query = arguments.text("query", query)
        return [
            self.model.encode_pair(query, document)
            for document in arguments.texts("documents", documents)
        ]

    def rank(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """How well each text answers the question, larger is better: (documents,) f32."""
        made = self.submit(self.pairs(query, documents)).all() or []
        return np.array([scores[0] for scores in made], np.float32)


def open_embedding(path: str | Path, *, queue: int = 256, **embedder: Any) -> Embedding:
    """Opens a GGUF embedding model; the arguments are ``open_embedder``'s, and it raises alike."""
    return Embedding(open_embedder(path, **embedder), queue=queue)


def embedding_of(model: Any, *, queue: int = 256) -> Embedding:
    """Vectors by an open chat model; to be closed before the model. Raises CannotEmbed."""
    return Embedding(of_decoder(model), queue=queue)
