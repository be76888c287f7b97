"""What threads have of a model: requests are checked, queued and answered here.

The passes that draw the answers run in a thread of their own (see runner.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.media import MediaError
from golem_core.model.errors import ModelError
from golem_core.model.projector import Rows, no_tower
from golem_core.sample import ParamError, Sampler, dry_heads
from golem_core.schedule.answer import Answer
from golem_core.schedule.beside import Aside
from golem_core.schedule.checkpoints import Checkpoints, granted
from golem_core.schedule.constraints import Constraints
from golem_core.schedule.energy import Energy
from golem_core.schedule.errors import (
    ContextExceeded,
    EngineClosed,
    ModelChanged,
    QueueFull,
    RequestTimeout,
)
from golem_core.schedule.media import Media
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.records import Records
from golem_core.schedule.request import Job, Request
from golem_core.schedule.runner import GATHER, Runner
from golem_core.schedule.seats import Seats
from golem_core.schedule.slots import Slot, SlotState
from golem_core.schedule.stats import Stats
from golem_core.schedule.storing import bring_back, put_away
from golem_core.state.hostcache import HostCache
from golem_core.state.slotfile import Fit, read_slot, write_slot

NO_PROJECTOR = "without a projector that can"


class Engine:
    """Serves a model to many threads. See the package's docstring for the whole interface.

    model: as ``golem_core.model.open_decoder`` returns it. slots: conversations at once, as many
    as the executor was made for when None. queue: requests that may wait for a slot. cache_ttl:
    seconds after which an idle slot forgets, 0 = never. default_length: most tokens of an answer
    that names no length, -1 = until the slot is full. queue_timeout: seconds a request may wait for
    a slot, 0 = any time. request_timeout: seconds from submitting to the last token, waiting
    included, 0 = any time. draft: how the next tokens are guessed, "auto", "ngram", "mtp" (a model
    that was opened so) or "off". draft_n: tokens of a draft at most, 0 = as many as pay.
    checkpoints: copies of a recurrent state a slot keeps, fewer when ``checkpoint_memory`` bytes
    do not hold them. cache_ram: bytes for conversations that had to leave their slot, 0 = they are
    forgotten. records: where answers are taken down when they end, a ring of the engine's own when
    None. energy: what the machine's use is read from. name: of the model in records, its own when
    empty. clock: seconds, monotonic. gather: seconds a pass waits at most for requests that are on
    their way.
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
        self._energy = Energy() if energy is None else energy
        self.queue = queue
        self.default_length = default_length
        self._request_timeout = request_timeout
        self._clock = clock
        self._states = states
        self.checkpoint_bytes = states.recurrent_bytes  # of one
        # One more is of the end of the last prompt.
        self._copies = granted(
            checkpoints and checkpoints + 1, slots, self.checkpoint_bytes, checkpoint_memory
        )
        self.checkpoints = min(checkpoints, self._copies)
        self._seats = Seats(
            [self._slot(i) for i in range(slots)],
            self.stats,
            states,
            HostCache(cache_ram, states.context, clock),
        )
        self._runner = Runner(
            model,
            self._seats,
            self.stats,
            self.records,
            name=name or model.name,
            draft=draft,
            draft_n=draft_n,
            cache_ttl=cache_ttl,
            queue_timeout=queue_timeout,
            request_timeout=request_timeout,
            clock=clock,
            gather=gather,
        )
        self._door = self._runner.door
        self._announced = threading.local()  # count: of the thread's requests on their way
        self._eog = frozenset(model.eog)
        self._constraints = Constraints(model.tokenizer, self._eog)
        self._heads: OrderedDict[tuple[str, ...], Any] = OrderedDict()

    def _slot(self, index: int) -> Slot:
        states = self._states
        rings = [(r.declaration, r.capacity) for r in states.rings.values()]
        sliding = [(d.window, capacity // d.rate) for d, capacity in rings if d.window]
        kept = Checkpoints(self._copies) if states.recurrent else None
        return Slot(index, states.context, RingOwners(sliding), kept)

    # ---- any thread ----

    def start(self) -> None:
        """Starts the runner. Not at import or construction: a thread does not survive a fork."""
        self._runner.start()

    def close(self) -> None:
        """Ends the runner after the pass it is in; whoever runs or waits fails. Idempotent."""
        self._runner.close()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """Announces a request that is being prepared, for as long as the block runs.

        Passes wait a moment for it, but not while its media are looked at (``rows``, on the same
        thread): that may take many of them.
        """
        self._announce(1)
        try:
            yield
        finally:
            self._announce(-1)

    def _announce(self, count: int) -> None:
        """So many more requests of this thread are on their way."""
        self._announced.count = self._here() + count
        with self._door:
            self._runner.entering += count
            self._door.notify_all()

    def _here(self) -> int:
        return getattr(self._announced, "count", 0)

    def submit(self, request: Request) -> Job:
        """Queues a request; the answer is read from the Job.

        Raises ParamError (an unusable field), ContextExceeded, QueueFull or EngineClosed, all
        before a slot is waited for.
        """
        return self.submit_all([request])[0]

    def submit_all(self, requests: Sequence[Request]) -> list[Job]:
        """Queues several at once, all or none: those to one prompt are sure to read it once.

        Raises as ``submit`` does.
        """
        home = self._runner.process
        if self._runner.serving and os.getpid() != home:
            raise EngineClosed(
                f"the engine was started in process {home} and this is a fork of it, "
                "where its threads do not exist: open the model after the fork"
            )
        prepared = [self._prepared(request) for request in requests]
        jobs = []
        with self._door:
            if not self._runner.serving:
                raise EngineClosed("the engine is not running: it is closing or was never started")
            self._refuse_full(len(requests))
            now = self._clock()
            for request, parts in zip(requests, prepared, strict=True):
                self.stats.submitted += 1
                job = Job(request, self.stats.submitted, self._cancel)
                self._seats.wait(Answer(job, submitted=now, **parts))
                jobs.append(job)
            self._door.notify_all()
        return jobs

    def _refuse_full(self, count: int) -> None:
        """Refuses so many more requests where they cannot wait. Whoever calls holds the door."""
        # Slots are given out between passes: as many as are free wait for that alone.
        if len(self._seats.waiting) + count > self.queue + self._seats.idle:
            self.stats.refused += count
            raise QueueFull(self.queue)

    def _prepared(self, request: Request) -> dict[str, Any]:
        """What an Answer is made of, computed on the thread that asks."""
        model, params = self.model, request.params
        tokens = self._checked(request)
        media = Media(tokens, request.media, model.embedding_length) if request.media else None
        sampler = Sampler(
            params,
            model.n_vocab,
            eog=sorted(self._eog),
            suppress=model.tokenizer.suppress,
            heads=self._dry_heads(params.dry_sequence_breakers) if params.dries else None,
            prompt=tokens,
            n_probs=request.n_probs,
            post_sampling=request.post_sampling_probs,
            matcher=self._constraints.matcher(params, request.grammar),
        )
        self.stats.vocabularies = self._constraints.vocabularies
        makes = self._runner.drafting.make
        return {
            "ids": tokens if media is None else media.ids,
            "sampler": sampler,
            "stream": model.tokenizer.stream(shown=request.shown),
            "eog": self._eog,
            "limit": self.default_length if request.max_tokens is None else request.max_tokens,
            "energy": self._energy,
            "drafter": makes and makes(tokens),
            "media": media,
        }

    def rows(
        self, kind: str, data: bytes | np.ndarray, waiting: Callable[[], None] = lambda: None
    ) -> Rows:
        """What the model reads of a picture or a recording: ``kind`` is "image" or "audio".

        data: of a file, or decoded, as Projector.rows takes them.

        Its tower runs on the runner's thread, in pieces between passes. waiting: called now and
        then; what it raises gives the work up. Raises MediaError for what cannot be taken,
        ContextExceeded as soon as it has filled a slot, QueueFull where the request it belongs to
        could not wait for one, before any work; ModelChanged, EngineClosed.
        """
        projector = self.model.projector
        if projector is None:
            raise MediaError(no_tower(kind, NO_PROJECTOR))
        with self._door:
            self._refuse_full(1)

        counts: list[int] = []  # rows of the pieces so far

        def run(executor: Any, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            aside = Aside(executor, inputs, ("rows",))
            with self._door:
                if not self._runner.serving:
                    raise EngineClosed("the engine is not running: it is closing")
                self._runner.asides.append(aside)
                self._door.notify_all()
            made = aside.wait(waiting)
            counts.append(len(made["rows"]))
            if sum(counts) >= self.context:
                raise ContextExceeded(sum(counts), self.context, counted=False)
            return made

        announced = self._here()
        self._announce(-announced)
        try:
            return projector.rows(kind, data, run, waiting)
        except ModelError:
            raise ModelChanged(projector.path) from None
        finally:
            self._announce(announced)

    def timer(self) -> Callable[[], None]:
        """A look at the clock from now on: it raises RequestTimeout once the time is over that a
        request may take. For what a request waits for before it is submitted."""
        began, most = self._clock(), self._request_timeout

        def look() -> None:
            if most and self._clock() - began >= most:
                with self._door:
                    self.stats.timed_out += 1
                raise RequestTimeout(most)

        return look

    def give_up(self, index: int) -> None:
        """Cancels the answer that holds a slot, which is free when the pass it is in is over."""
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
                self._door.wait_for(lambda: slot.free or not self._runner.serving)
            if not self._runner.serving:
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
        if request.media and request.scores_prompt:
            raise ParamError("scores_prompt", "a prompt with media has no probabilities to tell")
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
                    self._runner.end(answer, "cancelled")
                    return
            self._door.notify_all()
