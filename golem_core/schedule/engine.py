"""The runner: one thread that owns a model's executor and draws every conversation's tokens.

Threads meet in one place, the ``_door``: submitting, cancelling, looking. The runner takes it
between passes only, never while the model computes, so nobody waits for a pass to be let in.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core.sample import ParamError, Probs, Sampler, Workspace, dry_heads, refusal
from golem_core.sample.grammar import GrammarError
from golem_core.schedule.answer import Answer
from golem_core.schedule.constraints import Constraints
from golem_core.schedule.durations import go_duration
from golem_core.schedule.energy import Energy
from golem_core.schedule.errors import (
    ContextExceeded,
    DeadEnd,
    EngineClosed,
    ModelChanged,
    PassFailed,
    QueueFull,
    QueueTimeout,
    RequestTimeout,
)
from golem_core.schedule.passes import Pace, Pass, form
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.records import Records
from golem_core.schedule.request import Job, Request, Step
from golem_core.schedule.slots import Slot, SlotState, choose

GATHER = 0.002  # seconds a pass waits for company at most
FILE_CHECK = 0.1  # seconds between two looks at the model's file


@dataclass
class Stats:
    """Counters since the start; plain numbers, written by the runner, read by anyone."""

    submitted: int = 0
    refused: int = 0  # the queue was full
    finished: int = 0
    cancelled: int = 0
    timed_out: int = 0  # while waiting or running; these count as failed too
    failed: int = 0
    passes: int = 0
    columns: int = 0
    prompt_columns: int = 0  # prompt tokens fed
    drawn_columns: int = 0  # drawn tokens fed
    drawn: int = 0  # tokens drawn
    probs: int = 0  # tokens drawn whose probabilities were computed
    cached: int = 0  # prompt tokens found in a slot
    busy_slots: int = 0  # summed over passes
    longest: int = 0  # most tokens a slot has held
    prompt_seconds: float = 0.0  # from slot to first token, summed over answers
    draw_seconds: float = 0.0  # from first to last token, summed over answers
    pass_seconds: float = 0.0
    vocabularies: int = 0  # read for grammars: 0 until somebody asks for one
    waiting: int = 0  # now: requests without a slot
    running: int = 0  # now: requests with one


class Engine:
    """Serves a model to many threads. See the package's docstring for the whole interface.

    model: as ``golem_core.model.open_decoder`` returns it. slots: conversations at once, as many
    as the executor was made for when None. queue: requests that may wait for a slot. cache_ttl:
    seconds after which an idle slot forgets, 0 = never. default_length: most tokens of an answer
    that names no length, -1 = until the slot is full. queue_timeout: seconds a request may wait for
    a slot, 0 = any time. request_timeout: seconds from submitting to the last token, waiting
    included, 0 = any time. records: where answers are taken down when
    they end, a ring of the engine's own when None. energy: what the machine's use is read from.
    clock: seconds, monotonic. gather: seconds a pass waits at most for requests on their way.
    """

    def __init__(
        self,
        model: Any,
        *,
        slots: int | None = None,
        queue: int = 256,
        cache_ttl: float = 0.0,
        default_length: int = 1024,
        queue_timeout: float = 0.0,
        request_timeout: float = 0.0,
        records: Records | None = None,
        energy: Energy | None = None,
        clock: Callable[[], float] = time.monotonic,
        gather: float = GATHER,
    ):
        states = model.executor.states
        slots = states.slots if slots is None else slots
        if not 1 <= slots <= states.slots:
            raise ValueError(f"{slots} slots; the executor was made for 1 to {states.slots}")
        if slots > model.pass_width:
            raise ValueError(
                f"{slots} slots and passes of {model.pass_width} columns: every slot that draws "
                "takes one; raise -pass-width or lower -parallel"
            )
        self.model = model
        self.context = states.context  # positions of a slot
        self.stats = Stats()
        self.records = Records() if records is None else records
        self._energy = Energy() if energy is None else energy
        self._bound = queue
        self._cache_ttl = cache_ttl
        self._default_length = default_length
        self._queue_timeout = queue_timeout
        self._request_timeout = request_timeout
        self._clock = clock
        self._gather_most = gather
        rings = [(r.declaration, r.capacity) for r in states.rings.values()]
        sliding = [(d.window, capacity // d.rate) for d, capacity in rings if d.window]
        self._slots = [
            Slot(i, states.context, RingOwners(sliding), states.recurrent) for i in range(slots)
        ]
        self._eog = frozenset(model.eog)
        self._workspace = Workspace(model.n_vocab)
        self._constraints = Constraints(model.tokenizer, self._eog)
        self._heads: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._door = threading.Condition()
        self._waiting: deque[Answer] = deque()
        self._active: list[Answer] = []  # hold slots, oldest first
        self._entering = 0
        self._serving = False
        self._thread: threading.Thread | None = None
        self._process = 0  # that the runner lives in
        self._pace = Pace()
        self._looked = -FILE_CHECK  # when the model's file was last looked at
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))

    # ---- any thread ----

    def start(self) -> None:
        """Starts the runner. Not at import or construction: a thread does not survive a fork."""
        if self._thread is not None:
            raise RuntimeError("this engine was started before")
        self._serving = True
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="golem-runner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the runner after the pass it is in; whoever runs or waits fails. Idempotent."""
        with self._door:
            self._serving = False
            self._door.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """Announces a request that is being prepared, for as long as the block runs."""
        with self._door:
            self._entering += 1
        try:
            yield
        finally:
            with self._door:
                self._entering -= 1
                self._door.notify_all()

    def submit(self, request: Request) -> Job:
        """Queues a request; the answer is read from the Job.

        Raises ParamError (an unusable field), ContextExceeded, QueueFull or EngineClosed, all
        before a slot is waited for.
        """
        if self._serving and os.getpid() != self._process:
            raise EngineClosed(
                f"the engine was started in process {self._process} and this is a fork of it, "
                "where its threads do not exist: open the model after the fork"
            )
        ids = self._checked(request)
        params = request.params
        sampler = Sampler(
            params,
            self.model.n_vocab,
            eog=sorted(self._eog),
            suppress=self.model.tokenizer.suppress,
            heads=self._dry_heads(params.dry_sequence_breakers) if params.dries else None,
            prompt=ids,
            n_probs=request.n_probs,
            post_sampling=request.post_sampling_probs,
            matcher=self._constraints.matcher(params, request.grammar),
        )
        self.stats.vocabularies = self._constraints.vocabularies
        limit = self._default_length if request.max_tokens is None else request.max_tokens
        with self._door:
            if not self._serving:
                raise EngineClosed("the engine is not running: it is closing or was never started")
            # Slots are given out between passes: as many as are free wait for that alone.
            idle = sum(slot.free for slot in self._slots)
            if len(self._waiting) >= self._bound + idle:
                self.stats.refused += 1
                raise QueueFull(self._bound)
            self.stats.submitted += 1
            job = Job(request, self.stats.submitted, self._cancel)
            stream = self.model.tokenizer.stream(shown=request.shown)
            now = self._clock()
            self._waiting.append(
                Answer(job, ids, sampler, stream, self._eog, limit, now, self._energy)
            )
            self.stats.waiting += 1
            self._door.notify_all()
        return job

    def give_up(self, index: int) -> None:
        """Cancels the answer that holds a slot; the slot is free before the next pass."""
        with self._door:
            job = self._slots[index].job
        if job is not None:
            job.cancel()

    def erase(self, index: int) -> int | None:
        """Forgets what an idle slot holds; returns how many tokens, None when it is busy."""
        with self._door:
            slot = self._slots[index]
            if not slot.free:
                return None
            count = len(slot.held)
            slot.clear()
            return count

    @property
    def slots(self) -> list[SlotState]:
        """A snapshot of every slot."""
        with self._door:
            running = {a.slot.index: a for a in self._active}
            states = []
            for slot in self._slots:
                answer = running.get(slot.index)
                drawn, left = (len(answer.tokens), answer.remaining) if answer else (0, -1)
                states.append(
                    SlotState(
                        slot.index,
                        slot.context,
                        answer is not None,
                        slot.job,
                        len(slot.held),
                        drawn,
                        left,
                    )
                )
            return states

    @property
    def busy(self) -> int:
        """Requests that run or wait."""
        with self._door:
            return len(self._active) + len(self._waiting)

    def _checked(self, request: Request) -> np.ndarray:
        """The prompt's ids as (n,) i32, or the reason why it cannot be answered."""
        if not len(request.tokens):
            raise ParamError("prompt", "an empty prompt: there is nothing to continue")
        ids = np.array(request.tokens)
        whole = ids.dtype.kind in "iu" and ids.ndim == 1
        if not whole or ids.min() < 0 or ids.max() >= self.model.n_vocab:
            raise ParamError("prompt", "Prompt contains invalid tokens")
        if len(ids) >= self.context:
            raise ContextExceeded(len(ids), self.context)
        if not -1 <= request.id_slot < len(self._slots):
            raise ParamError("id_slot", "Invalid slot ID")
        return ids.astype(np.int32)

    def _dry_heads(self, breakers: tuple[str, ...]) -> Any:
        """The vocabulary's tokens that end a repetition; a scan of it, so some are kept."""
        with self._door:
            heads = self._heads.get(breakers)
        if heads is None:
            heads = dry_heads(self.model.tokenizer, breakers)
            with self._door:
                self._heads[breakers] = heads
                while len(self._heads) > 16:
                    self._heads.popitem(last=False)
        return heads

    def _cancel(self, job: Job) -> None:
        with self._door:
            if job.result is not None or job.cancelled:
                return
            job.cancelled = True
            for answer in self._waiting:
                if answer.job is job:
                    self._waiting.remove(answer)
                    self._end(answer, "cancelled")
                    return
            self._door.notify_all()

    # ---- the runner thread ----

    def _serve(self) -> None:
        while self._ready():
            try:
                if self._file_is_unchanged():
                    self._pass()
            except Exception as error:  # a fault of ours: nobody may wait for ever because of it
                with self._door:
                    self._fail(self._active, PassFailed, f"the runner failed: {error!r}", error)
        with self._door:
            everybody = [*self._active, *self._waiting]
            self._waiting.clear()
            self._fail(everybody, EngineClosed, "the engine closed before the answer ended")

    def _ready(self) -> bool:
        """Waits until there is a pass to run; False when the engine closes."""
        with self._door:
            while self._serving:
                self._admit()
                if self._active:
                    self._gather()
                if self._active:
                    return self._serving
                self._door.wait()
            return False

    def _admit(self) -> None:
        """Lets go of cancelled answers and gives free slots to those that wait, in order."""
        for answer in [a for a in self._active if a.job.cancelled]:
            self._end(answer, "cancelled")
        for answer in [a for a in self._waiting if a.job.cancelled]:
            self._waiting.remove(answer)
            self._end(answer, "cancelled")
        now = self._clock()
        if self._queue_timeout or self._request_timeout:
            self._time_out(now)
        if self._cache_ttl:
            for slot in self._slots:
                if slot.free and len(slot.held) and now - slot.last >= self._cache_ttl:
                    slot.clear()
        for answer in list(self._waiting):
            if not any(slot.free for slot in self._slots):
                break
            request = answer.job.request
            wanted = request.id_slot
            among = self._slots if wanted < 0 else self._slots[wanted : wanted + 1]
            slot = choose(among, answer.ids, request.cache_prompt)
            if slot is not None:
                self._waiting.remove(answer)
                answer.enter(slot, now)
                self._active.append(answer)
                self.stats.cached += answer.job.progress.cached
        self._count()

    def _time_out(self, now: float) -> None:
        """Ends the answers that wait or run for too long; their slots keep what they hold."""
        for answer in [*self._active, *self._waiting]:
            age = now - answer.submitted
            if self._request_timeout and age >= self._request_timeout:
                error = RequestTimeout(self._request_timeout)
            elif answer.slot is None and self._queue_timeout and age >= self._queue_timeout:
                error = QueueTimeout(self._queue_timeout)
            else:
                continue
            if answer.slot is None:
                self._waiting.remove(answer)
            self.stats.timed_out += 1
            self._end(answer, "error", error)

    def _gather(self) -> None:
        """Waits a little for requests on their way that could share the pass about to start."""
        until = self._clock() + self._window()
        while self._entering and len(self._active) + self._entering > 1:
            columns = sum(1 if a.drawing else a.unread for a in self._active)
            left = until - self._clock()
            free = any(slot.free for slot in self._slots)
            if left <= 0 or columns >= self.model.pass_width or not free or not self._serving:
                break
            self._door.wait(left)
            self._admit()

    def _window(self) -> float:
        """Seconds a pass waits for company: an eighth of the last one."""
        return min(self._pace.last / 8, self._gather_most)

    def _file_is_unchanged(self) -> bool:
        """False, and everybody fails by name, when the mapped file is no longer what it was."""
        now = self._clock()
        if now - self._looked < FILE_CHECK:
            return True
        if not self.model.file.changed():
            self._looked = now
            return True
        self._model_changed(self._active)
        return False

    def _model_changed(self, answers: Sequence[Answer]) -> None:
        text = (
            f"{self.model.path} changed on disk while it was being served: restart the server; "
            "replace a model file by renaming a new one over it"
        )
        with self._door:
            self._fail(answers, ModelChanged, text)

    def _pass(self) -> None:
        """One pass: the model, the draws, the texts."""
        batch = form(self._active, self.model.pass_width, self.model.quantum, self._pace)
        if self._debug:
            self._describe(batch)
        scored = batch.scored
        start = self._clock()
        try:
            logits = self.model.executor.run(batch.inputs, wanted=("logits",))["logits"]
            drawn = self._draw([run.answer for run in scored], logits)
        except Exception as error:
            text = f"the pass failed: {type(error).__name__}: {error}"
            with self._door:
                self._fail([run.answer for run in batch.runs], PassFailed, text, error)
            return
        if self.model.file.lost:  # the pass read zeros where the file had weights
            self._model_changed([run.answer for run in batch.runs])
            return
        now = self._clock()
        for run in batch.runs:
            run.answer.fed(run.count, now)
        self._account(batch, len(scored), now - start)
        for run, (token, probs) in zip(scored, drawn, strict=True):
            if isinstance(token, GrammarError):
                with self._door:
                    self._fail([run.answer], DeadEnd, str(token), token)
            else:
                self._hand_out(run.answer, token, probs, now)

    def _draw(
        self, answers: list[Answer], logits: np.ndarray
    ) -> list[tuple[int | GrammarError, Probs | None]]:
        """The next token of each answer, whose logits are a row, and what it competed with; or
        why its grammar lets none follow.

        A token that is forced is not drawn: it competed with none and costs no random number.
        """
        free = [i for i, answer in enumerate(answers) if not answer.forced]
        samplers = [answers[i].sampler for i in free]
        rows = logits if len(free) == len(answers) else logits[free]
        drawn = self._workspace.pick_many(samplers, rows)
        taken: list[tuple[int | GrammarError, Probs | None]] = [(0, None)] * len(answers)
        for i, sampler, token in zip(free, samplers, drawn, strict=True):
            taken[i] = (refusal(token), None) if token < 0 else (token, sampler.probs())
            self.stats.probs += taken[i][1] is not None
        for i, answer in enumerate(answers):
            if answer.forced:
                token = answer.forced.popleft()
                try:
                    answer.sampler.accept(token)
                    taken[i] = (token, None)
                except GrammarError as error:
                    taken[i] = (error, None)
        return taken

    def _hand_out(self, answer: Answer, token: int, probs: Probs | None, now: float) -> None:
        """Gives one drawn token to its job, unless it was cancelled meanwhile."""
        if answer.job.cancelled:
            return
        try:
            step = answer.take(token, probs, now)
        except Exception as error:
            text = f"token {token} could not be turned into text: {error!r}"
            with self._door:
                self._fail([answer], PassFailed, text, error)
            return
        if step.end:
            with self._door:
                self._end(answer, steps=[step])
        else:
            answer.job.hand([step])

    def _end(
        self,
        answer: Answer,
        failure: str = "",
        error: Exception | None = None,
        steps: Sequence[Step] = (),
    ) -> None:
        """The answer is over: its slot is free and its job done. Whoever calls holds the door."""
        now = self._clock()
        if answer.slot is not None:
            answer.slot.free = True
            answer.slot.last = now
            self._active.remove(answer)
        result = answer.result(now, failure)
        stats = self.stats
        stats.finished += not failure
        stats.cancelled += failure == "cancelled"
        stats.failed += failure == "error"
        stats.prompt_seconds += result.prompt_ms / 1e3
        stats.draw_seconds += result.draw_ms / 1e3
        stats.longest = max(stats.longest, result.slot_tokens)
        self._count()
        self.records.add(self.model.name, result)
        answer.job.finish(result, error, list(steps))

    def _fail(
        self,
        answers: Sequence[Answer],
        kind: type[Exception],
        text: str,
        cause: Exception | None = None,
    ) -> None:
        """Every answer fails with an error of its own, its slot forgets. Holds the door."""
        for answer in list(answers):
            if answer.slot is not None:
                answer.slot.clear()
            error = kind(text)
            error.__cause__ = cause
            self._end(answer, "error", error)

    def _count(self) -> None:
        self.stats.waiting, self.stats.running = len(self._waiting), len(self._active)

    def _account(self, batch: Pass, scored: int, seconds: float) -> None:
        prompt = batch.columns - batch.drawn
        self._pace.saw(batch.drawn, prompt, seconds)
        stats = self.stats
        stats.passes += 1
        stats.columns += batch.columns
        stats.prompt_columns += prompt
        stats.drawn_columns += batch.drawn
        stats.drawn += scored
        stats.busy_slots += len(self._active)
        stats.pass_seconds += seconds

    def _describe(self, batch: Pass) -> None:
        """The line of ``GOLEM_DEBUG_BATCHES``."""
        print(
            f"pass: {batch.columns} tokens from {len(batch.runs)} conversation(s), "
            f"last took {go_duration(self._pace.last, 1e-3)}, window {go_duration(self._window())}",
            file=sys.stderr,
        )
