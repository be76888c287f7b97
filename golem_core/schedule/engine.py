"""The runner: one thread that owns a model's executor and draws every conversation's tokens.

Threads meet in one place, the ``_door``: submitting, cancelling, looking. The runner takes it
between passes only, never while the model computes, so nobody waits for a pass to be let in.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.media import MediaError
from golem_core.model.projector import Rows, no_tower
from golem_core.sample import ParamError, Sampler, Workspace, dry_heads
from golem_core.schedule.answer import Answer
from golem_core.schedule.beside import Aside
from golem_core.schedule.checkpoints import Checkpoints, granted
from golem_core.schedule.constraints import Constraints
from golem_core.schedule.dealer import Dealer, Hand
from golem_core.schedule.draft import Drafting
from golem_core.schedule.durations import go_duration
from golem_core.schedule.energy import Energy
from golem_core.schedule.errors import (
    ContextExceeded,
    EngineClosed,
    ModelChanged,
    PassFailed,
    QueueFull,
    QueueTimeout,
    RequestTimeout,
)
from golem_core.schedule.media import Media
from golem_core.schedule.pace import Pace
from golem_core.schedule.passes import PROMPT, Pass, form
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.records import Records
from golem_core.schedule.request import Job, Request, Step
from golem_core.schedule.seats import Seats
from golem_core.schedule.slots import Slot, SlotState
from golem_core.schedule.stats import Stats
from golem_core.schedule.storing import bring_back, put_away
from golem_core.state.hostcache import HostCache
from golem_core.state.slotfile import Fit, read_slot, write_slot

GATHER = 0.002  # seconds a pass waits for company at most
FILE_CHECK = 0.1  # seconds between two looks at the model's file
NO_PROJECTOR = "without a projector that can"
ASIDE = 0.05  # seconds of a tower's pass between two passes of the model, at least
ALONE = 0.25  # the same while no conversation runs: one that comes waits so long


class Engine:
    """Serves a model to many threads. See the package's docstring for the whole interface.

    model: as ``golem_core.model.open_decoder`` returns it. slots: conversations at once, as many
    as the executor was made for when None. queue: requests that may wait for a slot. cache_ttl:
    seconds after which an idle slot forgets, 0 = never. default_length: most tokens of an answer
    that names no length, -1 = until the slot is full. queue_timeout: seconds a request may wait for
    a slot, 0 = any time. request_timeout: seconds from submitting to the last token, waiting
    included, 0 = any time. draft: how the next tokens are guessed, "auto", "ngram" or "off".
    draft_n: tokens of a draft at most, 0 = as many as pay. checkpoints: copies of a recurrent
    state a slot keeps, fewer when ``checkpoint_memory`` bytes do not hold them. cache_ram: bytes
    for conversations that had to leave their slot, 0 = they are forgotten. records: where
    answers are taken down when they end, a ring of the engine's own when None. energy: what the
    machine's use is read from. name: of the model in records, its own when empty. clock: seconds,
    monotonic. gather: seconds a pass waits at most for requests that are on their way.
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
        draft: str = "off",
        draft_n: int = 0,
        checkpoints: int = 3,
        checkpoint_memory: int = 1 << 30,
        cache_ram: int = 0,
        records: Records | None = None,
        energy: Energy | None = None,
        name: str = "",
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
        self._name = name or model.name
        self._energy = Energy() if energy is None else energy
        self.queue = queue
        self._cache_ttl = cache_ttl
        self._default_length = default_length
        self._queue_timeout = queue_timeout
        self._request_timeout = request_timeout
        self._clock = clock
        self._gather_most = gather
        self._states = states
        self._pace = Pace()
        columns = min(model.scored, model.pass_width)
        self._drafting = Drafting(draft, draft_n, columns, self._pace.prices)
        self.checkpoint_bytes = states.recurrent_bytes  # of one
        self.checkpoints = granted(checkpoints, slots, self.checkpoint_bytes, checkpoint_memory)
        self._seats = Seats(
            [self._slot(i) for i in range(slots)],
            self.stats,
            states,
            HostCache(cache_ram, states.context, clock),
        )
        self._eog = frozenset(model.eog)
        self._dealer = Dealer(Workspace(model.n_vocab), states, self.stats)
        self._constraints = Constraints(model.tokenizer, self._eog)
        self._heads: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._asides: deque[Aside] = deque()
        self._door = threading.Condition()
        self._entering = 0
        self._serving = False
        self._thread: threading.Thread | None = None
        self._process = 0  # that the runner lives in
        self._looked = -FILE_CHECK  # when the model's file was last looked at
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))

    def _slot(self, index: int) -> Slot:
        states = self._states
        rings = [(r.declaration, r.capacity) for r in states.rings.values()]
        sliding = [(d.window, capacity // d.rate) for d, capacity in rings if d.window]
        kept = Checkpoints(self.checkpoints) if states.recurrent else None
        return Slot(index, states.context, RingOwners(sliding), kept)

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
        tokens = self._checked(request)
        media = Media(tokens, request.media, self.model.embedding_length) if request.media else None
        ids = tokens if media is None else media.ids
        params = request.params
        sampler = Sampler(
            params,
            self.model.n_vocab,
            eog=sorted(self._eog),
            suppress=self.model.tokenizer.suppress,
            heads=self._dry_heads(params.dry_sequence_breakers) if params.dries else None,
            prompt=tokens,
            n_probs=request.n_probs,
            post_sampling=request.post_sampling_probs,
            matcher=self._constraints.matcher(params, request.grammar),
        )
        self.stats.vocabularies = self._constraints.vocabularies
        limit = self._default_length if request.max_tokens is None else request.max_tokens
        stream = self.model.tokenizer.stream(shown=request.shown)
        drafter = self._drafting.make and self._drafting.make(tokens)
        with self._door:
            if not self._serving:
                raise EngineClosed("the engine is not running: it is closing or was never started")
            # Slots are given out between passes: as many as are free wait for that alone.
            if len(self._seats.waiting) >= self.queue + self._seats.idle:
                self.stats.refused += 1
                raise QueueFull(self.queue)
            self.stats.submitted += 1
            job = Job(request, self.stats.submitted, self._cancel)
            answer = Answer(
                job,
                ids,
                sampler,
                stream,
                self._eog,
                limit,
                self._clock(),
                self._energy,
                drafter,
                media,
            )
            self._seats.wait(answer)
            self._door.notify_all()
        return job

    def rows(self, kind: str, data: bytes, waiting: Callable[[], None] = lambda: None) -> Rows:
        """What the model reads of a picture or a recording: ``kind`` is "image" or "audio".

        Its tower runs on the runner's thread, in pieces between passes. waiting: called now and
        then; what it raises gives the work up. Raises MediaError for what cannot be taken,
        EngineClosed.
        """
        projector = self.model.projector
        if projector is None:
            raise MediaError(no_tower(kind, NO_PROJECTOR))

        def run(executor: Any, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            aside = Aside(executor, inputs, ("rows",))
            with self._door:
                if not self._serving:
                    raise EngineClosed("the engine is not running: it is closing")
                self._asides.append(aside)
                self._door.notify_all()
            return aside.wait(waiting)

        return projector.rows(kind, data, run, waiting)

    def give_up(self, index: int) -> None:
        """Cancels the answer that holds a slot; the slot is free before the next pass."""
        with self._door:
            job = self._seats.slots[index].job
        if job is not None:
            job.cancel()

    def erase(self, index: int) -> int | None:
        """Forgets what an idle slot holds; returns how many tokens, None when it is busy."""
        with self._door:
            slot = self._seats.slots[index]
            if not slot.free:
                return None
            count = slot.count
            slot.clear()
            return count

    def save(self, index: int, path: Path, *, wait: bool = True) -> tuple[int, int] | None:
        """Writes what a slot holds to a file; returns tokens and bytes.

        wait: until the slot is idle; otherwise a busy one gives None. Raises OSError where it
        cannot be written (what was there stays), EngineClosed.
        """
        with self._idle(index, wait) as slot:
            if slot is None:
                return None
            away = put_away(slot, self._states)
            away.run(self._states)
        return len(away.stored.tokens), write_slot(path, away.stored, self._fit())

    def restore(self, index: int, path: Path, *, wait: bool = True) -> tuple[int, int] | None:
        """Makes a slot hold what a file does; returns tokens and bytes.

        wait: as for ``save``. Raises SlotFileError or OSError, and then the slot is empty;
        EngineClosed.
        """
        with self._idle(index, wait) as slot:
            if slot is None:
                return None
            with self._door:
                slot.clear()
            stored, size = read_slot(path, self._fit())
            with self._door:
                back = bring_back(slot, stored)
                slot.cut(slot.count)  # nobody may copy from it until the memory is there
            back.run(self._states)
            with self._door:
                slot.assign(stored.tokens)
        return len(stored.tokens), size

    def _fit(self) -> Fit:
        model, owners = self.model, self._seats.slots[0].owners
        return Fit(model.file.fingerprint, model.n_vocab, self._states, owners.capacities)

    @contextlib.contextmanager
    def _idle(self, index: int, wait: bool) -> Iterator[Slot | None]:
        """A slot that no answer has, and none is given while the block runs; None where one has
        it and is not waited for."""
        slot = self._seats.slots[index]
        with self._door:
            if wait:
                self._door.wait_for(lambda: slot.free or not self._serving)
            if not self._serving:
                raise EngineClosed("the engine is not running: it is closing or was never started")
            taken = slot.free
            if taken:
                moves, self._seats.copies = self._seats.copies, []
                for move in moves:  # what was noted down for the slot before it became idle
                    move.run(self._states)
                slot.free = False
        if not taken:
            yield None
            return
        try:
            yield slot
        finally:
            with self._door:
                slot.free = True
                self._door.notify_all()

    @property
    def slots(self) -> list[SlotState]:
        """A snapshot of every slot."""
        with self._door:
            running = {a.slot.index: a for a in self._seats.active}
            states = []
            for slot in self._seats.slots:
                answer = running.get(slot.index)
                drawn, left = (len(answer.tokens), answer.remaining) if answer else (0, -1)
                states.append(
                    SlotState(
                        slot.index,
                        slot.context,
                        answer is not None,
                        slot.job,
                        slot.count,
                        drawn,
                        left,
                    )
                )
            return states

    @property
    def changed(self) -> ModelChanged | None:
        """Why every request fails from now on; None while the model's file is what it was."""
        file = self.model.file
        return ModelChanged(self.model.path) if file.lost or file.changed() else None

    @property
    def busy(self) -> int:
        """Requests that run or wait."""
        with self._door:
            return len(self._seats.active) + len(self._seats.waiting)

    def _checked(self, request: Request) -> np.ndarray:
        """The prompt's ids as (n,) i32, or the reason why it cannot be answered."""
        if not len(request.tokens):
            raise ParamError("prompt", "an empty prompt: there is nothing to continue")
        ids = np.array(request.tokens)
        whole = ids.dtype.kind in "iu" and ids.ndim == 1
        if not whole or ids.min() < 0 or ids.max() >= self.model.n_vocab:
            raise ParamError("prompt", "Prompt contains invalid tokens")
        if request.media and self.model.projector is None:
            raise ParamError("media", no_tower(request.media[0].rows.kind, NO_PROJECTOR))
        if len(ids) >= self.context:
            raise ContextExceeded(len(ids), self.context)
        if not -1 <= request.id_slot < len(self._seats.slots):
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
            for answer in self._seats.waiting:
                if answer.job is job:
                    self._end(answer, "cancelled")
                    return
            self._door.notify_all()

    # ---- the runner thread ----

    def _serve(self) -> None:
        while self._ready():
            try:
                self._look_aside()
                if self._seats.active and self._file_is_unchanged():
                    self._pass()
            except Exception as error:  # a fault of ours: nobody may wait for ever because of it
                with self._door:
                    text = f"the runner failed: {error!r}"
                    self._fail(self._seats.active, PassFailed(text), error)
        with self._door:
            everybody = [*self._seats.active, *self._seats.waiting]
            self._fail(everybody, EngineClosed("the engine closed before the answer ended"))
            for aside in self._asides:
                aside.fail(EngineClosed("the engine closed before the picture was seen"))
            self._asides.clear()

    def _look_aside(self) -> None:
        """A piece of a tower's pass: as long as the last pass of conversations that wait for it."""
        if not self._asides:
            return
        aside = self._asides[0]
        aside.step(max(ASIDE, self._pace.last) if self._seats.active else ALONE)
        if aside.over:
            with self._door:
                self._asides.popleft()

    def _ready(self) -> bool:
        """Waits until there is a pass to run; False when the engine closes."""
        with self._door:
            while self._serving:
                self._admit()
                if self._seats.active:
                    self._gather()
                if self._seats.active or self._asides:
                    return self._serving
                self._door.wait()
            return False

    def _admit(self) -> None:
        """Lets go of answers nobody wants or that take too long, and fills free slots."""
        seats = self._seats
        for answers in (seats.active, seats.waiting):
            for answer in [a for a in answers if a.job.cancelled]:
                self._end(answer, "cancelled")
        now = self._clock()
        if self._queue_timeout or self._request_timeout:
            self._time_out(now)
        if self._cache_ttl:
            seats.expire(now - self._cache_ttl)
        seats.admit(now)

    def _time_out(self, now: float) -> None:
        """Ends the answers that wait or run for too long; their slots keep what they hold."""
        for answer in [*self._seats.active, *self._seats.waiting]:
            age = now - answer.submitted
            if self._request_timeout and age >= self._request_timeout:
                error = RequestTimeout(self._request_timeout)
            elif answer.slot is None and self._queue_timeout and age >= self._queue_timeout:
                error = QueueTimeout(self._queue_timeout)
            else:
                continue
            self.stats.timed_out += 1
            self._end(answer, "error", error)

    def _gather(self) -> None:
        """Waits a little for requests on their way that could share the pass about to start."""
        active = self._seats.active
        until = self._clock() + self._window()
        while self._entering and len(active) + self._entering > 1:
            columns = sum(1 if a.drawing else a.unread for a in active)
            left = until - self._clock()
            full = columns >= self.model.pass_width or not self._seats.idle
            if left <= 0 or full or not self._serving:
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
        self._model_changed(self._seats.active)
        return False

    def _model_changed(self, answers: Sequence[Answer]) -> None:
        with self._door:
            self._fail(answers, ModelChanged(self.model.path))

    def _pass(self) -> None:
        """One pass: the model, the draws, the texts."""
        model, active = self.model, self._seats.active
        with self._door:  # nobody else is in the middle of moving
            moves, self._seats.copies = self._seats.copies, []
        for move in moves:
            move.run(self._states)
        if self._drafting.make is not None:
            self._drafting.plan(active)
        batch = form(active, model.pass_width, model.quantum, self._pace, model.widest)
        if self._debug:
            self._describe(batch)
        start = self._clock()
        hands = self._hands(batch)
        try:
            self._dealer.prepare(batch)
            logits = model.executor.run(batch.inputs, wanted=("logits",))["logits"]
            self._dealer.deal(hands, logits)
        except Exception as error:
            self._pass_failed(batch, error)
            return
        if model.file.lost:  # the pass read zeros where the file had weights
            self._model_changed([run.answer for run in batch.runs])
            return
        now = self._clock()
        self._fed(batch, now)
        self._pace.saw(batch.drawn, batch.columns - batch.drawn, now - start)
        self.stats.passed(batch, len(active), now - start)
        try:
            self._dealer.play(hands, logits, now)
        except Exception as error:
            self._pass_failed(batch, error)
            return
        for hand in hands:
            self._hand_out(hand)

    def _hands(self, batch: Pass) -> list[Hand]:
        """Who draws from which row: those scored, and whoever waits for the same prompt."""
        hands = []
        for run in batch.runs:
            if run.scored:
                hands.append(Hand(run.answer, run.row))
                if run.role == PROMPT:
                    siblings = self._seats.siblings(run.answer)
                    hands += [Hand(sibling, run.row) for sibling in siblings]
        return hands

    def _fed(self, batch: Pass, now: float) -> None:
        """The columns of a pass are in the cache: checkpoints and siblings get theirs."""
        for run in batch.runs:
            answer = run.answer
            answer.fed(run.count, now)
            if answer.saves:
                slot = answer.slot
                room = slot.checkpoints.room(slot.count, self.checkpoint_bytes)
                if room is not None:
                    self._states.take_recurrent(slot.index, room)
            if run.scored and run.role == PROMPT:
                for sibling in self._seats.siblings(answer):
                    with self._door:
                        self._seats.adopt(sibling, answer, now)

    def _hand_out(self, hand: Hand) -> None:
        """Gives an answer what it drew."""
        answer = hand.answer
        self._dealer.finish(hand)
        if hand.error is not None:
            if hand.steps:
                answer.job.hand(hand.steps)
            with self._door:
                self._fail([answer], hand.error)
        elif hand.ended:
            with self._door:
                self._end(answer, steps=hand.steps)
        elif hand.steps:
            answer.job.hand(hand.steps)

    def _pass_failed(self, batch: Pass, error: Exception) -> None:
        text = f"the pass failed: {type(error).__name__}: {error}"
        with self._door:
            self._fail([run.answer for run in batch.runs], PassFailed(text), error)

    def _end(
        self,
        answer: Answer,
        failure: str = "",
        error: Exception | None = None,
        steps: Sequence[Step] = (),
    ) -> None:
        """The answer is over: its slot is free and its job done. Whoever calls holds the door."""
        now = self._clock()
        if answer.replay:  # not read by the recurrent state: the next turn reads them
            answer.slot.cut(len(answer.replay))
        self._seats.leave(answer, now)
        self._door.notify_all()  # somebody may wait for the slot to be idle
        result = answer.result(now, failure)
        self.stats.ended(result)
        self.records.add(self._name, result)
        answer.job.finish(result, error, list(steps))

    def _fail(
        self, answers: Sequence[Answer], error: Exception, cause: Exception | None = None
    ) -> None:
        """Every answer fails with an error of its own, its slot forgets. Holds the door."""
        for answer in list(answers):
            if answer.slot is not None:
                answer.slot.clear()
                answer.replay = []
            own = copy.copy(error)
            own.__cause__ = cause or error.__cause__
            self._end(answer, "error", own)

    def _describe(self, batch: Pass) -> None:
        """The line of ``GOLEM_DEBUG_BATCHES``."""
        print(
            f"pass: {batch.columns} tokens from {len(batch.runs)} conversation(s), "
            f"last took {go_duration(self._pace.last, 1e-3)}, window {go_duration(self._window())}",
            file=sys.stderr,
        )
