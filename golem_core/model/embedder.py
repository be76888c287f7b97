"""Opening a model that makes vectors of texts: from a path to what a batcher runs.

Encoders (BERT and its kin) have a program of their own. A decoder gives vectors too, where all its
state is keys and values: its blocks are written once more, over whole texts and without a cache,
and share the weights of the chat model where there is one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.graph.program import Program
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import WeightError
from golem_core.model.decoder import Decoder
from golem_core.model.describe import OfFile, name_of, refuse_other_kinds
from golem_core.model.encoder import Encoder, read_pooling
from golem_core.model.errors import CannotEmbed, ModelError
from golem_core.model.memory import memory_limit, told_limit
from golem_core.plugins import Plugins, UnknownArchitecture, load_plugins
from golem_core.reference import ReferenceExecutor
from golem_core.text.tokenizer import Tokenizer, TokenizerError, load_tokenizer

COLUMNS = 4096  # tokens of a pass, where no text is longer
TEXTS = 1024  # of a pass
LONGEST = 8192  # tokens of a text, whatever the model was trained on
EXECUTORS = ("cpu", "reference")
_PARTS = re.compile(r"\{query\}|\{document\}")


class _Network(Protocol):
    """One way to make vectors: a program, its inputs and what becomes of its outputs."""

    program: Program
    wanted: tuple[str, ...]

    def inputs(self, offsets: np.ndarray) -> dict[str, np.ndarray]: ...

    def pooled(self, made: dict[str, np.ndarray], offsets: np.ndarray) -> np.ndarray: ...


class _Encoded:
    """An encoder's program pools by itself."""

    def __init__(self, encoder: Encoder, columns: int, texts: int):
        if encoder.pooling == "none":
            raise ModelError(
                f"{encoder.hyper.file}: pooling_type is 0, one vector a token; golem gives one a "
                "text, so the file must say how to pool"
            )
        self.program = encoder.program(columns, texts)
        self.pooling = encoder.pooling
        self.wanted = ("scores",) if self.pooling == "rank" else ("vectors",)

    def inputs(self, offsets: np.ndarray) -> dict[str, np.ndarray]:
        if self.pooling == "mean":
            return {}
        return {"picked": offsets[1:] - 1 if self.pooling == "last" else offsets[:-1]}

    def pooled(self, made: dict[str, np.ndarray], offsets: np.ndarray) -> np.ndarray:
        return made[self.wanted[0]].copy()


class _Decoded:
    """A decoder gives hidden rows; the host pools them."""

    wanted = ("hidden",)

    def __init__(self, decoder: Decoder, pooling: str, columns: int, texts: int):
        self.program = decoder.embedding_program(columns, texts)
        self.pooling = pooling
        self._head = None
        if pooling == "rank":
            weight = decoder.tensors.linear("cls.output")
            bias = 0.0 if weight.bias is None else weight.bias
            self._head = weight.numpy().reshape(weight.shape), bias

    def inputs(self, offsets: np.ndarray) -> dict[str, np.ndarray]:
        if self.pooling == "mean":
            return {"outputs": np.arange(offsets[-1], dtype=np.int32)}
        return {"outputs": offsets[:-1] if self.pooling == "cls" else offsets[1:] - 1}

    def pooled(self, made: dict[str, np.ndarray], offsets: np.ndarray) -> np.ndarray:
        rows = made["hidden"]
        if self.pooling == "mean":
            sums = np.add.reduceat(rows, offsets[:-1], axis=0)
            return sums / np.diff(offsets)[:, None].astype(np.float32)
        if self._head is not None:
            matrix, bias = self._head
            scores = rows @ matrix.T + bias
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            return scores / scores.sum(-1, keepdims=True)
        return rows.copy()


@dataclass
class Embedder(OfFile):
    """A loaded model that makes vectors. ``run`` is for one thread at a time.

    width: values of a vector. context: tokens of a text at most. columns, texts: of a pass at
    most. pooling: "mean", "cls", "last", or "rank": then ``run`` gives scores, not vectors.
    owned: what ``close`` closes with it.
    """

    path: Path
    file: GGUF
    architecture: str
    tokenizer: Tokenizer
    executor: Any
    network: _Network
    width: int
    blocks: int
    context: int
    columns: int
    texts: int
    pooling: str
    rerank_prompt: str = ""
    owned: bool = True
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The file's name without ``.gguf``."""
        return name_of(self.path)

    @property
    def ranks(self) -> bool:
        """Whether it scores pairs of texts instead of making vectors."""
        return self.pooling == "rank"

    @property
    def normalised(self) -> bool:
        """Whether the file asks for unit vectors even where raw ones are usual (Ollama's key)."""
        return bool(self.file.metadata.get(f"{self.architecture}.normalize_embeddings", False))

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text with the special tokens around it: (tokens,) i32."""
        ids = self.tokenizer.encode(text, add_special=True, parse_special=True)
        return np.array(ids, np.int32)

    def encode_pair(self, query: str, document: str) -> np.ndarray:
        """The ids of a question and a text to rank: (tokens,) i32."""
        if self.rerank_prompt:
            parts = {"{query}": query, "{document}": document}
            # In one go: a question may itself have "{document}" in it.
            prompt = _PARTS.sub(lambda found: parts[found[0]], self.rerank_prompt)
            ids = self.tokenizer.encode(prompt, add_special=False, parse_special=True)
            return np.array(ids, np.int32)
        t = self.tokenizer
        first, second = (t.encode(x, parse_special=False) for x in (query, document))
        around = t.encode("", add_special=True)
        opening = around[: len(around) // 2] if len(around) > 1 else []
        end = around[len(opening) :]
        # XLM-R puts two separators between the texts, BERT one.
        between = end * 2 if t.model == "t5" else end
        return np.array([*opening, *first, *between, *second, *end], np.int32)

    def cut(self, ids: np.ndarray, limit: int) -> np.ndarray:
        """At most limit tokens of a text: its first ones, and the special token at its end."""
        if len(ids) <= limit:
            return ids
        closing = self.tokenizer.encode("", add_special=True)
        keeps_end = bool(closing) and ids[-1] == closing[-1] and limit > 1
        return np.append(ids[: limit - 1], ids[-1]) if keeps_end else ids[:limit]

    def run(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """One pass: the vectors as pooled, (texts, width) f32; or scores (texts, labels).

        texts: ids (tokens,) i32 of each, at least one, in all at most ``columns``. Raises
        ProgramError, PassCancelled.
        """
        lengths = [len(ids) for ids in texts]
        offsets = np.zeros(len(texts) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        positions = np.arange(offsets[-1], dtype=np.int32) - np.repeat(offsets[:-1], lengths)
        inputs = {
            "tokens": np.concatenate(texts),
            "positions": positions,
            "offsets": offsets,
            **self.network.inputs(offsets),
        }
        known = self.network.program.inputs
        inputs = {name: array for name, array in inputs.items() if name in known}
        return self.network.pooled(self.executor.run(inputs, self.network.wanted), offsets)

    def close(self) -> None:
        """Frees the executor's memory and, where it is its own, the map of the file."""
        self.executor.close()
        if self.owned:
            self.file.close()


def embeds(path: str | Path, plugins: Plugins | None = None) -> bool:
    """Whether a file is made for vectors: an encoder, or a decoder that says how to pool."""
    with GGUF.open(path) as file:
        known = (load_plugins() if plugins is None else plugins).embedders()
        architecture = file.metadata.get("general.architecture")
        pooling = file.metadata.get(f"{architecture}.pooling_type", 0)
        return architecture in known or (isinstance(pooling, int) and pooling > 0)


def open_embedder(
    path: str | Path,
    *,
    threads: int | None = None,
    executor: str = "cpu",
    progress: Callable[[float], None] | None = None,
    mapped: bool = True,
    plugins: Plugins | None = None,
    limit: int | None = None,
) -> Embedder:
    """Opens a GGUF model that makes vectors: an encoder, or a decoder trained to.

    Args:
        threads: cores to compute on; None = the physical ones this process may use.
        executor: "cpu", or "reference".
        progress: called with 0 … 1 while weights are prepared.
        mapped: False reads the file into memory instead of mapping it.
        plugins: where the model class is looked up; None = the installed plugins.
        limit: bytes the model may take; None = the machine's or the control group's.

    Raises:
        ModelError, FormatError: one line each (both ValueError).
        OSError: the file cannot be read.
    """
    started = time.perf_counter()
    if executor not in EXECUTORS:
        raise ModelError(f"executor {executor!r}: it is one of {', '.join(EXECUTORS)}")
    file = GGUF.open(path, mapped=mapped)
    try:
        made = _open(file, load_plugins() if plugins is None else plugins)
        _check_memory(file, limit)
        made.executor = _executor(executor, made, threads, progress)
    except (ProgramError, WeightError, UnknownArchitecture, TokenizerError) as error:
        file.close()
        raise ModelError(f"{path}: {error}") from error
    except BaseException:
        file.close()
        raise
    made.seconds = time.perf_counter() - started
    return made


def of_decoder(model: Any) -> Embedder:
    """Vectors by an open chat model, whose weights it shares; it must be closed first.

    model: what ``open_decoder`` returned. Raises CannotEmbed.
    """
    from golem_core.cpu import CpuExecutor

    decoder: Decoder = model.decoder
    try:
        pooling = read_pooling(decoder.hyper, "last")
        context = min(model.context, LONGEST)
        made = _of_decoder(decoder, "last" if pooling == "none" else pooling, context)
    except (ProgramError, WeightError, ModelError) as error:
        raise CannotEmbed(
            f"{model.name} ({model.architecture}) gives no vectors: {error}"
        ) from None
    made.tokenizer, made.owned = model.tokenizer, False
    if isinstance(model.executor, ReferenceExecutor):
        made.executor = ReferenceExecutor(made.network.program, maxima=made.network.program.axes)
    else:
        made.executor = CpuExecutor(
            made.network.program,
            threads=model.executor.threads,
            weights=model.executor.weights,
        )
    return made


def why_no_vectors(file: GGUF, plugins: Plugins | None = None) -> str | None:
    """Why an open file of an encoder cannot be given to ``-embed``, in one line; "" when it can.

    None for other architectures.
    """
    plugins = load_plugins() if plugins is None else plugins
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in plugins.embedders():
        return None
    try:
        _open(file, plugins)
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def _open(file: GGUF, plugins: Plugins) -> Embedder:
    """Everything but the executor."""
    refuse_other_kinds(file, encoders=True)
    found = plugins.embedders().get(file.architecture)
    if found is None:
        decoder = plugins.architecture(file.architecture)(file)
        pooling = read_pooling(decoder.hyper, "last")
        context = min(decoder.context_length, LONGEST)
        return _of_decoder(decoder, "last" if pooling == "none" else pooling, context)
    encoder: Encoder = found(file)
    context = min(encoder.context_length, LONGEST)
    columns = max(COLUMNS, context)
    network = _Encoded(encoder, columns, min(TEXTS, columns))
    return _embedder(file, encoder, network, context, columns, encoder.pooling)


def _of_decoder(decoder: Decoder, pooling: str, context: int) -> Embedder:
    columns = max(COLUMNS, context)
    network = _Decoded(decoder, pooling, columns, min(TEXTS, columns))
    return _embedder(decoder.file, decoder, network, context, columns, pooling)


def _embedder(
    file: GGUF,
    model: Encoder | Decoder,
    network: _Network,
    context: int,
    columns: int,
    pooling: str,
) -> Embedder:
    tokenizer = load_tokenizer(file.metadata)
    if tokenizer.n_vocab > model.vocabulary:
        raise ModelError(
            f"{file.path}: the vocabulary has {tokenizer.n_vocab} tokens and token_embd.weight "
            f"{model.vocabulary} rows"
        )
    prompt = file.metadata.get("tokenizer.chat_template.rerank", "")
    return Embedder(
        path=Path(file.path),
        file=file,
        architecture=file.architecture,
        tokenizer=tokenizer,
        executor=None,
        network=network,
        width=model.width,
        blocks=model.blocks,
        context=context,
        columns=columns,
        texts=min(TEXTS, columns),
        pooling=pooling,
        rerank_prompt=prompt if isinstance(prompt, str) else "",
    )


def _check_memory(file: GGUF, asked: int | None) -> None:
    limit = memory_limit() if asked is None else asked
    if file.size_bytes > limit:
        gib = 1 << 30
        raise ModelError(
            f"{file.path}: its weights take {file.size_bytes / gib:.1f} GiB and "
            f"{told_limit(limit, asked is not None)}; a smaller model or quantisation may fit"
        )


def _executor(
    kind: str,
    made: Embedder,
    threads: int | None,
    progress: Callable[[float], None] | None,
) -> Any:
    program = made.network.program
    if kind == "reference":
        return ReferenceExecutor(program)
    from golem_core.cpu import CpuExecutor  # compiled; a checkout that only reads files lacks it

    return CpuExecutor(program, threads=threads, wanted=(made.network.wanted,), progress=progress)
