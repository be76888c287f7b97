"""The runner: one thread that owns a model's executor and draws every conversation's tokens.

Threads meet in one place, the ``door``: submitting, cancelling, looking. The runner takes it
between passes only, never while the model computes, so nobody waits for a pass to be let in.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from golem_core.model.outputs import drawn_from
from golem_core.sample import Workspace
from golem_core.schedule.answer import Answer
from golem_core.schedule.beside import Aside
from golem_core.schedule.dealer import Dealer, Hand
from golem_core.schedule.draft import Drafting
from golem_core.schedule.durations import go_duration
from golem_core.schedule.errors import (
    EngineClosed,
    ModelChanged,
    PassFailed,
    QueueTimeout,
    RequestTimeout,
)
from golem_core.schedule.foresight import Foresight
from golem_core.schedule.pace import Pace
from golem_core.schedule.passes import PROMPT, Pass, form, repeated
from golem_core.schedule.reading import Reading, in_pieces
from golem_core.schedule.records import Records
from golem_core.schedule.request import Step
from golem_core.schedule.seats import Seats
from golem_core.schedule.stats import Stats

GATHER = 0.002  # seconds a pass waits for company at most
FILE_CHECK = 0.1  # seconds between two looks at the model's file
ASIDE = 0.05  # seconds of a tower's pass between two passes of the model, at least
ALONE = 0.25  # the same while no conversation runs: one that comes waits so long


class Runner:
    """Runs passes for whoever has a seat.

    door: held by whoever changes ``seats``, ``entering`` (requests on their way) or ``asides``
    (passes of towers); notified when there is something to do. name: of the model in records. The
    other arguments are Engine's.
    """

    def __init__(
        self,
        model: Any,
        seats: Seats,
        stats: Stats,
        records: Records,
        *,
        name: str,
        draft: str,
        draft_n: int,
        cache_ttl: float = 0.0,
        queue_timeout: float = 0.0,
        request_timeout: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        gather: float = GATHER,
    ):
        self.seats = seats
        self.door = threading.Condition()
        self.entering = 0
        self.asides: deque[Aside] = deque()
        self.serving = False
        self.process = 0  # that the thread lives in
        self.pace = Pace()
        columns = min(model.scored, model.pass_width)
        self._model = model
        self._states = model.executor.states
        foresight = None
        foreseen = model.prediction is not None and draft in ("auto", "mtp")
        program = getattr(model.executor, "program", None)
        self._wanted = drawn_from(program.outputs if program else (), hidden=foreseen)
        if foreseen:
            rewinds = not self._states.recurrent
            foresight = Foresight(model.prediction, rewinds, self.pace.prices, clock)
        self.drafting = Drafting(draft, draft_n, columns, self.pace.prices, foresight)
        self._twin: Any = None  # runs passes of those that draw between pieces of prompts
        self._reading: Reading | None = None  # a pass of prompts that is not over
        self._drew: Pass | None = None  # the last pass, where it only drew
        self._stats = stats
        self._records = records
        self._name = name
        self._dealer = Dealer(Workspace(model.n_vocab), self._states, stats)
        self._cache_ttl = cache_ttl
        self._queue_timeout = queue_timeout
        self._request_timeout = request_timeout
        self._looks_at_clock = bool(cache_ttl or queue_timeout or request_timeout)
        self._clock = clock
        self._gather_most = gather
        # What an executor does while nobody waits: pieces of some milliseconds, until it is done.
        self._settle: Callable[[], bool] | None = getattr(model.executor, "settle", None)
        self._thread: threading.Thread | None = None
        self._looked = -FILE_CHECK  # when the model's file was last looked at
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))

    def start(self) -> None:
        """Starts the thread. Not at import or construction: a thread does not survive a fork."""
        if self._thread is not None:
            raise RuntimeError("this engine was started before")
        if len(self.seats.slots) > 1 and hasattr(self._model.executor, "twin"):
            self._twin = self._model.executor.twin(self.drafting.columns, self._wanted)
        self.serving = True
        self.process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="golem-runner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends after the pass it is in; whoever runs or waits fails. Idempotent."""
        with self.door:
            self.serving = False
            self.door.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # ---- its thread ----

    def _serve(self) -> None:
        while self._nothing_new() or self._ready():
            try:
                self._look_aside()
                if self.seats.active and self._file_is_unchanged():
                    self._go_on()
                if self._settle is not None and not (self.seats.active or self.asides):
                    self._settle = self._settle if self._settle() else None
            except Exception as error:  # a fault of ours: nobody may wait for ever because of it
                self._end_reading()
                with self.door:
                    text = f"the runner failed: {error!r}"
                    self._fail(self.seats.active, PassFailed(text), error)
        self._end_reading()
        with self.door:
            everybody = [*self.seats.active, *self.seats.waiting]
            self._fail(everybody, EngineClosed("the engine closed before the answer ended"))
            for aside in self.asides:
                aside.fail(EngineClosed("the engine closed before the picture was seen"))
            self.asides.clear()

    def _look_aside(self) -> None:
        """A piece of a tower's pass: as long as the last pass of conversations that wait for it."""
        if not self.asides:
            return
        aside = self.asides[0]
        aside.step(max(ASIDE, self.pace.last) if self.seats.active else ALONE)
        if aside.over:
            with self.door:
                self.asides.popleft()

    def _nothing_new(self) -> bool:
        """Whether the next pass is of those that drew in the last one, and of nobody else: most
        are, so it is found out without the door. What is missed now is seen a pass later."""
        seats = self.seats
        if not self.serving or seats.waiting or self.entering or self._looks_at_clock:
            return False
        if self._drew is None or len(seats.active) != len(self._drew.runs):
            return False
        return not any(answer.job.cancelled for answer in seats.active)

    def _ready(self) -> bool:
        """Waits until there is a pass to run; False when the engine closes."""
        with self.door:
            while self.serving:
                self._admit()
                if self.seats.active:
                    self._gather()
                if self.seats.active or self.asides or self._settle is not None:
                    return self.serving
                self.door.wait()
            return False

    def _admit(self) -> None:
        """Lets go of answers nobody wants or that take too long, and fills free slots.

        Those in the middle of a pass go when it is over, and who comes waits for that: nothing
        could be read before.
        """
        seats = self.seats
        for answers in (seats.active, seats.waiting):
            for answer in [a for a in answers if a.job.cancelled and not self._reads(a)]:
                self.end(answer, "cancelled")
        now = self._clock()
        if self._queue_timeout or self._request_timeout:
            self._time_out(now)
        if self._reading is not None:
            return
        if self._cache_ttl:
            seats.expire(now - self._cache_ttl)
        seats.admit(now)

    def _time_out(self, now: float) -> None:
        """Ends the answers that wait or run for too long; their slots keep what they hold."""
        for answer in [*self.seats.active, *self.seats.waiting]:
            if self._reads(answer):
                continue
            age = now - answer.submitted
            if self._request_timeout and age >= self._request_timeout:
                error = RequestTimeout(self._request_timeout)
            elif answer.slot is None and self._queue_timeout and age >= self._queue_timeout:
                error = QueueTimeout(self._queue_timeout)
            else:
                continue
            self._stats.timed_out += 1
            self.end(answer, "error", error)

    def _gather(self) -> None:
        """Waits a little for requests on their way that could share the pass about to start."""
        active = self.seats.active
        until = self._clock() + self._window()
        while self._reading is None and self.entering and len(active) + self.entering > 1:
            columns = sum(1 if a.drawing else a.unread for a in active)
            left = until - self._clock()
            full = columns >= self._model.pass_width or not self.seats.idle
            if left <= 0 or full or not self.serving:
                break
            self.door.wait(left)
            self._admit()

    def _window(self) -> float:
        """Seconds a pass waits for company: an eighth of the last one."""
        return min(self.pace.last / 8, self._gather_most)

    def _file_is_unchanged(self) -> bool:
        """False, and everybody fails by name, when the mapped file is no longer what it was."""
        now = self._clock()
        if now - self._looked < FILE_CHECK:
            return True
        if not self._model.file.changed():
            self._looked = now
            return True
        self._end_reading()
        self._model_changed(self.seats.active)
        return False

    def _model_changed(self, answers: Sequence[Answer]) -> None:
        with self.door:
            self._fail(answers, ModelChanged(self._model.path))

    def _go_on(self) -> None:
        """A pass; or, while prompts are read in pieces, one of those that draw and a piece."""
        model, active = self._model, self.seats.active
        if self.seats.copies:
            with self.door:  # nobody else is in the middle of moving
                moves, self.seats.copies = self.seats.copies, []
            for move in moves:
                move.run(self._states)
        if self.drafting.make is not None and not self._plan_drafts(active):
            return
        drew, self._drew = self._drew, None
        if drew is not None and repeated(drew, active):
            self._pass(drew, model.executor)
            return
        if self._reading is None:
            batch = form(
                active, model.pass_width, model.quantum, self.pace, model.widest, model.scored
            )
            if self._twin is None or not in_pieces(batch, active):
                self._pass(batch, model.executor)
                return
            self._begin_reading(batch.drawn)
        drawing = [answer for answer in active if answer.drawing]
        beside = sum(answer.width for answer in drawing) <= self.drafting.columns
        if drawing and beside:
            batch = form(drawing, model.pass_width, model.quantum, self.pace)
            self._pass(batch, self._twin)
        if self._reading is not None:
            drawn = sum(answer.width for answer in active if answer.drawing)
            self._read_on(drawn if beside else 0)

    def _begin_reading(self, drawn: int) -> None:
        """Starts a pass of prompts to be read in pieces beside so many drawn columns."""
        model, active = self._model, self.seats.active
        width = min(self.pace.reading_columns(drawn), model.pass_width)
        reading = [answer for answer in active if not answer.drawing]
        batch = form(reading, width, model.quantum, self.pace, model.widest, model.scored)
        self._describe(batch)
        try:
            self._reading = Reading(model.executor, batch, self._wanted)
        except Exception as error:
            self._pass_failed(batch, error)

    def _pass(self, batch: Pass, executor: Any) -> None:
        """One pass: the model, the draws, the texts."""
        self._describe(batch)
        start = self._clock()
        try:
            self._dealer.prepare(batch)
            made = executor.run(batch.inputs, wanted=self._wanted)
        except Exception as error:
            self._pass_failed(batch, error)
            return
        self._deal(batch, made, start)

    def _read_on(self, drawn: int) -> None:
        """A piece of the pass of prompts, as long as so many drawn columns can wait; 0: all."""
        reading = self._reading
        seconds = self.pace.piece(drawn) if drawn else 0.0
        before = reading.seconds
        try:
            made = reading.advance(seconds, self._clock)
        except Exception as error:
            self._end_reading()
            self._pass_failed(reading.batch, error)
            return
        took = reading.seconds - before
        if made is None:
            self.pace.stopped(seconds, took)
            return
        self._reading = None
        try:
            self._deal(reading.batch, made, self._clock() - reading.seconds)
        finally:
            reading.close()
        self.pace.last = took  # what the others waited for it, not the whole pass

    def _reads(self, answer: Answer) -> bool:
        """Whether it is in the middle of a pass."""
        return self._reading is not None and self._reading.holds(answer)

    def _end_reading(self) -> None:
        """Gives up a pass that is read in pieces; its answers are about to fail."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _deal(self, batch: Pass, made: dict[str, Any], start: float) -> None:
        """The rest of a pass that has its outputs: it took the time since ``start``."""
        model, running, logits = self._model, len(self.seats.active), made["logits"]
        hands, silent, peaks = self._hands(batch), [], made.get("peaks")
        try:
            if batch.columns > batch.drawn:
                silent = [hand.answer for hand in hands if hand.answer.silent]
                hands = [hand for hand in hands if not hand.answer.silent]
                self._dealer.score(batch, logits)
            self._dealer.deal(hands, logits, peaks)
        except Exception as error:
            self._pass_failed(batch, error)
            return
        if model.file.lost:  # the pass read zeros where the file had weights
            self._model_changed([run.answer for run in batch.runs])
            return
        now = self._clock()
        self._fed(batch, now)
        self.pace.saw(batch.drawn, batch.columns - batch.drawn, now - start)
        self._stats.passed(batch, running, now - start)
        try:
            self._dealer.play(hands, logits, now, peaks)
        except Exception as error:
            self._pass_failed(batch, error)
            return
        for hand in hands:
            self._hand_out(hand, made.get("hidden"))
        for answer in silent:
            answer.is_read()
            with self.door:
                self.end(answer)
        if batch.columns == batch.drawn and self._reading is None:
            self._drew = batch

    def _plan_drafts(self, active: Sequence[Answer]) -> bool:
        """Sets what is drafted; False, and everybody fails, where that failed."""
        try:
            self.drafting.plan(active)
        except Exception as error:
            self._end_reading()
            text = f"the guessing pass failed: {type(error).__name__}: {error}"
            with self.door:
                self._fail(active, PassFailed(text), error)
            return False
        return True

    def _hands(self, batch: Pass) -> list[Hand]:
        """Who draws from which row: those scored, and whoever waits for the same prompt."""
        hands = []
        for run in batch.runs:
            if run.role != PROMPT:
                hands.append(Hand(run.answer, run.row))
            elif run.count == run.answer.unread:
                row = run.row + run.scored - 1
                readers = [run.answer, *self.seats.siblings(run.answer)]
                hands += [Hand(reader, row) for reader in readers]
        return hands

    def _fed(self, batch: Pass, now: float) -> None:
        """The columns of a pass are in the cache: checkpoints and siblings get theirs."""
        for run in batch.runs:
            answer = run.answer
            answer.fed(run.count, now)
            if answer.saves:
                slot = answer.slot
                room = slot.checkpoints.room(slot.count, self._states.recurrent_bytes)
                if room is not None:
                    self._states.take_recurrent(slot.index, room)
            if run.role == PROMPT and not answer.unread:
                for sibling in self.seats.siblings(answer):
                    with self.door:
                        self.seats.adopt(sibling, answer, now)

    def _hand_out(self, hand: Hand, hidden: np.ndarray | None) -> None:
        """Gives an answer what it drew."""
        answer = hand.answer
        self._dealer.finish(hand, hidden)
        if hand.error is not None:
            if hand.steps:
                answer.job.hand(hand.steps)
            with self.door:
                self._fail([answer], hand.error)
        elif hand.ended:
            with self.door:
                self.end(answer, steps=hand.steps)
        elif hand.steps:
            answer.job.hand(hand.steps)

    def _pass_failed(self, batch: Pass, error: Exception) -> None:
        text = f"the pass failed: {type(error).__name__}: {error}"
        with self.door:
            self._fail([run.answer for run in batch.runs], PassFailed(text), error)

    def end(
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
        self.seats.leave(answer, now)
        self.door.notify_all()  # somebody may wait for the slot to be idle
        result = answer.result(now, failure)
        self._stats.ended(result)
        self._records.add(self._name, result)
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
            self.end(answer, "error", own)

    def _describe(self, batch: Pass) -> None:
        """The line of ``GOLEM_DEBUG_BATCHES``."""
        if not self._debug:
            return
        print(
            f"pass: {batch.columns} tokens from {len(batch.runs)} conversation(s), "
            f"last took {go_duration(self.pace.last, 1e-3)}, window {go_duration(self._window())}",
            file=sys.stderr,
        )
