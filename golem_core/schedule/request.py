"""What goes into the engine and what comes out: Request, Job, Step, Result.

A Job is where threads meet: the submitting thread reads steps and may cancel, the runner thread
writes. Everything else of a job (its slot, what was fed) belongs to the runner alone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from golem_core.sample import Probs, SamplerParams
from golem_core.sample.grammar import Grammar
from golem_core.schedule.media import Span
from golem_core.schedule.thought import Thinking


@dataclass
class Request:
    """One answer to be drawn.

    tokens: the prompt's ids. max_tokens: most tokens drawn; None = the engine's default length,
    -1 = until the slot is full. stop: texts that end the answer. cache_prompt: reuse what the
    slot holds. id_slot: a slot that must be taken, -1 = any. n_probs: best tokens to report with
    each drawn one, 0 = none. post_sampling_probs: of what the sampler left instead of the raw
    logits. shown: control tokens whose texts are part of the answer's. thinking: how the answer
    thinks, when somebody bounds that or waits for its end. grammar: what the answer is held to,
    whatever ``params`` say of a grammar or a schema. indent, limit_ms: see Lines. reports: list the
    prompt's progress in the job's ``reports``. note: the caller's own, which the engine leaves
    alone. media: the rows of pictures and recordings in the prompt, whose tokens there are padding.
    scores_prompt: report ``n_probs`` best tokens, 1 at least, with each of the prompt's tokens too,
    in the job's ``prompt_probs``; it is then read anew from its beginning. only_reads: the answer
    is over when its prompt is read, whatever ``max_tokens`` says. ending: tokens at the prompt's
    end that the next one is likely to have others for; None = nobody knows. It only says where a
    memory that cannot be rewound is kept.
    """

    tokens: Sequence[int]
    max_tokens: int | None = None
    params: SamplerParams = field(default_factory=SamplerParams)
    stop: Sequence[str] = ()
    cache_prompt: bool = True
    id_slot: int = -1
    n_probs: int = 0
    post_sampling_probs: bool = False
    shown: frozenset[int] = frozenset()
    thinking: Thinking | None = None
    grammar: Grammar | None = None
    indent: int = 0
    limit_ms: float = -1
    reports: bool = False
    note: Any = None
    media: Sequence[Span] = ()
    scores_prompt: bool = False
    only_reads: bool = False
    ending: int | None = None


class Step(NamedTuple):
    """One drawn token. ``text`` is what it released: "" while a character or a possible stop text
    is held back, more than its own piece when one is let go."""

    token: int
    text: str
    count: int  # tokens drawn so far, this one included
    whole: bool  # the drawn bytes end on a whole character
    probs: Probs | None
    end: bool  # nothing follows
    ms: float = 0.0  # since the first token was drawn


class State(Enum):
    """Where a job is."""

    QUEUED = "queued"
    READING = "reading"
    DRAWING = "drawing"
    DONE = "done"


class Progress(NamedTuple):
    """How far a prompt has been read (``return_progress``)."""

    total: int
    cached: int
    processed: int  # cached ones included
    ms: float  # since the slot was taken


@dataclass(frozen=True, slots=True)
class Result:
    """How an answer ended. Set on every job that ended, failed and cancelled ones too."""

    text: str
    tokens: tuple[int, ...]  # drawn ones, an end token included
    prompt_tokens: int
    cached_tokens: int  # of the prompt, found in the slot
    fed_tokens: int  # of the prompt, read for this answer
    finish_reason: str  # "stop" | "length" | "cancelled" | "error"
    stop_type: str  # "eos" | "word" | "limit" | "none"
    stopping_word: str
    truncated: bool  # the slot was full
    slot: int  # -1: none was ever taken
    slot_tokens: int  # what the slot holds now
    seed: int
    queue_ms: float  # from submit until a slot was taken
    prompt_ms: float  # from there until the first token was drawn
    draw_ms: float  # from there until the last one
    first_ms: float | None  # from submit until the first step was handed over
    has_new_line: bool = False
    grammar_ms: float = 0.0  # that its grammar took
    resampled: int = 0  # tokens drawn again because the grammar refused them
    energy_j: float | None = None  # joules used by the machine meanwhile; None = not measured
    drafts: int = 0  # passes that tokens were guessed for
    drafted_tokens: int = 0  # guessed and fed before they were drawn
    accepted_tokens: int = 0  # of those, the ones that were then drawn
    media_tokens: Mapping[str, int] = field(default_factory=dict)  # of the prompt, rows by kind

    @property
    def drawn_tokens(self) -> int:
        return len(self.tokens)

    def timings(self) -> dict[str, float | int | None]:
        """llama-server's ``timings`` object, and what golem measures besides.

        ``draft_n`` and ``draft_n_accepted`` are there when something was drafted.
        """
        shape = timings(
            self.cached_tokens,
            self.fed_tokens,
            self.prompt_ms,
            self.drawn_tokens,
            max(self.draw_ms, 0.001),
        )
        shape |= {
            "ttft_ms": self.first_ms,
            "grammar_ms": self.grammar_ms,
            "resampled": self.resampled,
        }
        if self.drafted_tokens:
            drafts = self.drafted_tokens, self.accepted_tokens
            shape |= dict(zip(("draft_n", "draft_n_accepted"), drafts, strict=True))
        return shape if self.energy_j is None else shape | {"energy_j": self.energy_j}


def timings(
    cached: int, fed: int, prompt_ms: float, drawn: int, draw_ms: float
) -> dict[str, float | int]:
    """llama-server's ``timings`` object; a rate that is undefined is 0."""
    gaps = drawn - 1
    return {
        "cache_n": cached,
        "prompt_n": fed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / fed if fed else 0.0,
        "prompt_per_second": 1e3 * fed / prompt_ms if fed and prompt_ms else 0.0,
        "predicted_n": drawn,
        "predicted_ms": draw_ms,
        "predicted_per_token_ms": draw_ms / gaps if gaps > 0 else 0.0,
        "predicted_per_second": 1e3 * gaps / draw_ms if gaps > 0 and draw_ms else 0.0,
    }


class Job:
    """A submitted request. Attributes are read-only outside the engine.

    state: QUEUED, READING, DRAWING, DONE. progress: how far the prompt is read. slot: -1 until
    one is taken. reports: where the request asks for them, the progress at its slot's taking and
    after every pass that read of the prompt. prompt_probs: where the request asks for them, one
    for each of the prompt's tokens, None for the first; all are there before the first step, or
    before the end where nothing is drawn. result: set when the job is done. error: why it
    failed, None otherwise.
    Everything may be used from any thread.
    """

    def __init__(self, request: Request, number: int, cancel: Callable[[Job], None]):
        self.request = request
        self.number = number  # counts submitted jobs from 1
        self.state = State.QUEUED
        self.progress = Progress(len(request.tokens), 0, 0, 0.0)
        self.reports: list[Progress] = []
        self.prompt_probs: list[Probs | None] = []
        self.slot = -1
        self.result: Result | None = None
        self.error: Exception | None = None
        self.cancelled = False
        self._handed: queue.SimpleQueue[tuple[list[Step], bool]] = queue.SimpleQueue()
        self._done = threading.Event()
        self._cancel = cancel

    def steps(self, timeout: float | None = None) -> list[Step] | None:
        """The steps drawn since the last call, in order; waits until there is one.

        None: nothing came within ``timeout`` seconds, or a report did. An empty list: the answer
        has ended, also by cancelling; ``result`` says how. Raises the job's error once all steps
        before it are read. Of several threads that read, each gets steps no other gets, and
        all see the end.
        """
        try:
            steps, last = self._handed.get(timeout=timeout)
        except queue.Empty:
            return None
        while not last:
            try:
                more, last = self._handed.get_nowait()
            except queue.Empty:
                break
            steps += more
        if last:
            self._handed.put(([], True))  # whoever asks again, or beside us, sees the end too
        if steps:
            return steps
        if not last:
            return None
        if self.error is not None:
            raise self.error
        return []

    def __iter__(self) -> Iterator[Step]:
        """Every step until the end. Leaving the loop early does not cancel."""
        while (steps := self.steps()) != []:
            yield from steps or ()

    def wait(self, timeout: float | None = None) -> Result | None:
        """The result, or None after ``timeout`` seconds. Raises the job's error."""
        if not self._done.wait(timeout):
            return None
        if self.error is not None:
            raise self.error
        return self.result

    def cancel(self) -> None:
        """Gives the answer up, wherever it is; no pass starts with its columns after this.

        Harmless when it has ended. What was computed stays in the slot for the next prompt.
        """
        self._cancel(self)

    def abandon(self) -> None:
        """``cancel`` for finalizers: takes no lock, and is noticed between passes."""
        self.cancelled = True

    # The methods below are the runner's.

    def hand(self, steps: list[Step]) -> None:
        """Passes on what one pass released."""
        self._handed.put((steps, False))

    def report(self, progress: Progress) -> None:
        """Tells how far the prompt is read."""
        self.progress = progress
        if self.request.reports:
            self.reports.append(progress)
            self._handed.put(([], False))

    def finish(self, result: Result, error: Exception | None, steps: list[Step]) -> None:
        """The last word: nothing is handed over after it."""
        self.result = result
        self.error = error
        self.state = State.DONE
        self._handed.put((steps, True))
        self._done.set()
