"""An open Laya checkpoint: requests in, replies out, rows of everybody's questions in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.safetensors import Safetensors
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import WeightError
from golem_core.model import ModelError
from golem_core.model.checkpoint import checkpoint_tensors
from golem_core.reference import ReferenceExecutor
from golem_core.schedule.batcher import Batcher, BatchStats
from golem_core.schedule.durations import go_duration
from golem_core.text.errors import TokenizerError
from golem_core.text.tokenizer_json import JsonTokenizer
from golem_plugins.laya import answers
from golem_plugins.laya.checkpoint import (
    LONGEST_ROW,
    TYPES,
    WEIGHTS,
    Agent,
    read_agent,
    read_encoder,
    read_special_texts,
)
from golem_plugins.laya.model import ActHead, Network
from golem_plugins.laya.questions import (
    Refused,
    check_batch,
    check_batch_controls,
    check_body,
    check_languages,
    check_questions,
    read_length,
    read_min_confidence,
)
from golem_plugins.laya.rows import DoesNotFit, Row, RowBuilder, Specials

COLUMNS = LONGEST_ROW  # tokens of a pass
ROWS = 512  # of a pass

Gone = Callable[[], bool]


class Left(Exception):
    """Whoever asked has hung up."""


@dataclass(frozen=True)
class Limits:
    """What a request may be at most."""

    body: int = 1 << 20  # bytes
    questions: int = 64


class Decider:
    """Answers requests from any thread. Close it when done."""

    def __init__(
        self,
        folder: Path,
        checkpoint: Safetensors,
        executor: Any,
        agent: Agent,
        builder: RowBuilder,
        act: ActHead,
        *,
        queue: int,
        limits: Limits,
        seconds: float = 0.0,
    ):
        self.folder = folder
        self.limits = limits
        self.agent = agent
        self.builder = builder
        self._act = act
        self._checkpoint = checkpoint
        self._executor = executor
        self._seconds = seconds
        self._batcher = Batcher(
            self._run, name="laya", cap=COLUMNS, most=ROWS, queue=queue, wait=0.0
        )

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def line(self) -> str:
        """For the start-up log."""
        took = go_duration(self._seconds, round_to=0.001)
        return (
            f"laya from {self.folder}, rows of {self.agent.max_len} tokens, on cpu, "
            f"loaded in {took} on {getattr(self._executor, 'threads', 1)} cores"
        )

    @property
    def health(self) -> dict[str, Any]:
        """What laya-serve's /health tells of a checkpoint that is loaded."""
        return {
            "loaded": [self.name],
            "revisions": {self.name: None},
            "device": "cpu",
            "device_is_preference": False,
            "checkpoint_devices": {self.name: "cpu"},
            "cpu_fallbacks": {self.name: {"count": 0, "last_reason": None}},
        }

    @property
    def stats(self) -> BatchStats:
        """Passes, rows and tokens so far."""
        return self._batcher.stats

    def close(self) -> None:
        """Fails what waits and frees the model. Idempotent."""
        self._batcher.close()
        self._executor.close()
        self._checkpoint.close()

    def decide(self, body: Any, gone: Gone = lambda: False) -> dict[str, Any]:
        """The reply to a request. Raises Refused, Left, QueueFull, EngineClosed, PassFailed."""
        state, questions = check_body(body, self.limits.questions)
        controls = self._controls(body)
        check_questions(questions)
        (reply,) = self._answer([state], questions, controls, gone)
        return reply

    def decide_batch(self, body: Any, gone: Gone = lambda: False) -> dict[str, Any]:
        """The reply to a batch: one set of questions on several states. Raises as ``decide``."""
        states, questions = check_batch(body, self.limits.questions)
        controls = self._controls(body)
        check_batch_controls(body)
        check_questions(questions)
        results = self._answer(states, questions, controls, gone)
        used = sum(result["usage"]["input_tokens"] for result in results)
        return {"results": results, "total_usage": {"input_tokens": used, "output_tokens": 0}}

    def _controls(self, body: Mapping[str, Any]) -> tuple[int, int, Any]:
        """max_len, head_max_len and min_confidence of a request."""
        max_len = read_length(body, "max_len")
        head = read_length(body, "head_max_len")
        check_languages(body)
        threshold = read_min_confidence(body.get("min_confidence"))
        return max_len or self.agent.max_len, head or self.agent.head_max_len, threshold

    def _answer(
        self,
        states: Sequence[Any],
        questions: Mapping[str, Any],
        controls: tuple[int, int, Any],
        gone: Gone,
    ) -> list[dict[str, Any]]:
        rows = [self.rows(state, questions, *controls[:2]) for state in states]
        flat = [row for part in rows for row in part]
        job = self._batcher.submit(flat, [len(row.tokens) for row in flat])
        made = job.all(gone)
        if made is None:
            raise Left
        found, results = iter(made), []
        for part in rows:
            answered = {}
            for (name, question), _ in zip(questions.items(), part, strict=True):
                logits, first = next(found)
                acts = self._act(first, logits)
                answered[name] = answers.decode(self.agent, question, logits, acts)
            results.append(answers.reply(answered, part, controls[2], self._routing))
        return results

    @property
    def _routing(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "repo": str(self.folder),
            "reason": "single checkpoint",
            "detection": None,
            "workflow": None,
        }

    def rows(
        self, state: Any, questions: Mapping[str, Any], max_len: int, head_max_len: int
    ) -> list[Row]:
        """The rows of checked questions on a state. Raises Refused where one does not fit."""
        if not questions:
            return []
        ids = self.builder.encode(answers.as_text(state))
        newest = isinstance(state, list)
        try:
            return [
                self.builder.row(name, question, ids, newest, max_len, head_max_len)
                for name, question in questions.items()
            ]
        except DoesNotFit as error:
            raise Refused(422, str(error)) from None

    # ---- on the batcher's thread

    def _run(self, rows: list[Row]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every row the logits of its options and its first token's hidden values."""
        lengths = [len(row.tokens) for row in rows]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        starts = offsets[:-1]
        positions = np.arange(offsets[-1], dtype=np.int32) - np.repeat(starts, lengths)
        chosen = [np.append(a, a + row.markers) for a, row in zip(starts, rows, strict=True)]
        inputs = {
            "tokens": np.concatenate([row.tokens for row in rows]),
            "positions": positions,
            "offsets": offsets,
            "types": np.repeat([row.kind for row in rows], lengths).astype(np.int32),
            "outputs": np.concatenate(chosen).astype(np.int32),
        }
        made = self._executor.run(inputs, ("hidden", "logits"))
        at, found = 0, []
        for wanted in chosen:
            logits = made["logits"][at + 1 : at + len(wanted), 0].copy()
            found.append((logits, made["hidden"][at].copy()))
            at += len(wanted)
        return found


def open_decider(
    folder: str | Path,
    *,
    threads: int | None = None,
    executor: str = "cpu",
    progress: Callable[[float], None] | None = None,
    queue: int = 16,
    limits: tuple[int, int] = (1 << 20, 64),
) -> Decider:
    """Opens a checkpoint directory.

    Raises ModelError, FormatError (one line each), OSError.
    """
    started = time.perf_counter()
    folder = Path(folder)
    agent, encoder = read_agent(folder), read_encoder(folder)
    builder = RowBuilder(*_tokenizer(folder, encoder.vocabulary), TYPES)
    checkpoint = Safetensors.open(folder / WEIGHTS)
    try:
        tensors = checkpoint_tensors(checkpoint, widen=True)
        network = Network(tensors, encoder, agent, str(folder / WEIGHTS))
        act = ActHead(tensors, encoder, agent)
        program = network.program(COLUMNS, ROWS)
        if executor == "reference":
            made: Any = ReferenceExecutor(program)
        else:
            from golem_core.cpu import CpuExecutor

            wanted = (("hidden", "logits"),)
            made = CpuExecutor(program, threads=threads, wanted=wanted, progress=progress)
    except (ProgramError, WeightError) as error:
        checkpoint.close()
        raise ModelError(f"{folder / WEIGHTS}: {error}") from error
    except BaseException:
        checkpoint.close()
        raise
    return Decider(
        folder,
        checkpoint,
        made,
        agent,
        builder,
        act,
        queue=queue,
        limits=Limits(*limits),
        seconds=time.perf_counter() - started,
    )


def _tokenizer(folder: Path, vocabulary: int) -> tuple[JsonTokenizer, Specials]:
    """The tokenizer, and the ids that tokenizer_config.json names.

    vocabulary: ids that the encoder has rows for.
    """
    path = folder / "tokenizer" / "tokenizer.json"
    try:
        tokenizer = JsonTokenizer(path)
    except TokenizerError as error:
        raise ModelError(str(error)) from error
    if tokenizer.n_vocab > vocabulary:
        raise ModelError(
            f"{path}: has the id {tokenizer.n_vocab - 1}, but vocab_size of encoder/config.json is "
            f"{vocabulary}"
        )
    texts = read_special_texts(folder)
    ids = {name: tokenizer.find(text) for name, text in texts.items()}
    for name, number in ids.items():
        if number is None:
            raise ModelError(f"{path}: has no token {texts[name]!r}, the config's {name}_token")
    return tokenizer, Specials(ids["cls"], ids["sep"], ids["mask"], texts["mask"])
