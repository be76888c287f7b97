"""One conversation's turn as the runner sees it: what to feed next, what was drawn, when to stop.

Nothing here knows of other conversations or of threads.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from golem_core.sample import Probs, Sampler
from golem_core.schedule.energy import Energy
from golem_core.schedule.lines import Lines
from golem_core.schedule.media import Media
from golem_core.schedule.request import Job, Progress, Result, State, Step
from golem_core.schedule.slots import Kept, Slot
from golem_core.schedule.stops import StopFilter
from golem_core.schedule.thought import Thought


class Answer:
    """A job in its slot. The runner's own; made when the job is submitted, before it has a slot.

    job: whose ``state``, ``slot`` and ``progress`` this keeps up to date. sampler: primed with
    the prompt. stream: the tokenizer's incremental detokeniser. limit: most tokens, -1 = none.
    submitted: seconds of the engine's clock. energy: what the machine's use is read from.
    """

    def __init__(
        self,
        job: Job,
        ids: np.ndarray,
        sampler: Sampler,
        stream: Any,
        eog: frozenset[int],
        limit: int,
        submitted: float,
        energy: Energy,
        drafter: Any = None,
        media: Media | None = None,
    ):
        self.job = job
        self.ids = ids  # (n,) i32, the prompt; below 0 where it has rows of media
        self.media = media
        self.sampler = sampler
        self.slot: Slot | None = None
        self._stream = stream
        self._filter = StopFilter(job.request.stop)
        self._lines = Lines(job.request.indent, job.request.limit_ms)
        self._energy = energy
        self._joules = None  # the machine's counters when the slot was taken
        self._eog = eog
        self._limit = limit
        self.submitted = submitted
        self._entered = self._first = self._last = submitted  # seconds
        self._handed: float | None = None
        self._cached = 0
        self._at = 0  # prompt positions in the cache
        self._stops: list[int] = []  # prompt positions where a run must end, rising
        self._saves: frozenset[int] = frozenset()  # those where the recurrent state is kept
        self.leader: Answer | None = None  # reads the beginning of this prompt; wait for it
        self.target = 0  # until it has read so many tokens
        self.tokens: list[int] = []  # drawn
        self.drafter = drafter
        self.draft: list[int] = []  # fed with the last drawn token in the next pass
        self.replay: list[int] = []  # last tokens held that a recurrent state has yet to read
        self._before: list[int] = []  # fed in the last pass in front of the draft
        self._drafts = self._drafted = self._accepted = 0
        self.forced: deque[int] = deque()  # what must be drawn next, whatever the model scores
        self._texts: list[str] = []
        self._stop_type = "none"
        self._stopping_word = ""
        self._truncated = False
        thinking = job.request.thinking
        self._thought = None if thinking is None else Thought(thinking)
        if self._thought is not None:
            self.forced += self._thought.overdue()

    def enter(self, slot: Slot, kept: Kept, now: float) -> None:
        """Takes a slot, which keeps that much of the prompt."""
        self.slot = slot
        slot.free = False
        slot.job = self.job
        slot.last = now
        self._entered = self._first = self._last = now
        self._joules = self._energy.read()
        self.job.slot = slot.index
        self.job.state = State.READING
        self.resume(kept, now)

    def resume(self, kept: Kept, now: float) -> None:
        """The slot holds that much of the prompt now: reading starts, or goes on, behind it."""
        self._cached = self._at = kept.at
        if self.slot.checkpoints is not None:
            places = self.slot.checkpoints.wanted(
                kept.at, kept.shared, len(self.ids), self.job.request.ending
            )
            self._stops, self._saves = places, frozenset(places)
        self._report(now)

    def stop_at(self, position: int) -> None:
        """No run of this prompt may cross that position."""
        self._stops = sorted({*self._stops, position})

    def cut(self, count: int, room: int) -> int:
        """Of the next ``count`` columns, those up to where a run must end; more of them, up to
        ``room``, where it may not end there."""
        for stop in self._stops:
            if stop > self._at:
                count = min(count, stop - self._at)
                break
        return count if self.media is None else self.media.cut(self._at, count, room)

    @property
    def picture(self) -> int:
        """Columns that come next and must be fed in one pass, 0 for none."""
        return 0 if self.media is None or self.tokens else self.media.ahead(self._at)

    @property
    def at(self) -> int:
        """Prompt positions in the cache."""
        return self._at

    @property
    def scoring(self) -> bool:
        """Whether what comes next is a prompt whose every token's probability is asked for."""
        return self.job.request.scores_prompt and not self.tokens

    @property
    def silent(self) -> bool:
        """Whether it is over when its prompt is read."""
        return self.job.request.only_reads

    @property
    def reuses(self) -> bool:
        """Whether it takes what a slot holds of its prompt."""
        return self.job.request.cache_prompt and not self.job.request.scores_prompt

    @property
    def saves(self) -> bool:
        """Whether a checkpoint is to be kept of what has been read by now."""
        return not self.tokens and self._at in self._saves

    @property
    def drawing(self) -> bool:
        return bool(self.tokens)

    @property
    def unread(self) -> int:
        """Prompt tokens still to be fed."""
        return len(self.ids) - self._at

    @property
    def start(self) -> int:
        """Index of the next column in the conversation."""
        return self.slot.count - len(self.replay)

    @property
    def width(self) -> int:
        """Columns of the next drawn run."""
        return len(self.replay) + 1 + len(self.draft)

    @property
    def draftable(self) -> int:
        """Most tokens that may be drafted now."""
        if self.forced:
            return 0
        room = self.slot.context - self.slot.count - 1
        return room if self._limit < 0 else min(room, self._limit - len(self.tokens) - 1)

    def without_end(self, tokens: list[int]) -> list[int]:
        """Those before the first that would end the answer."""
        for place, token in enumerate(tokens):
            if token in self._eog:
                return tokens[:place]
        return tokens

    @property
    def remaining(self) -> int:
        """Tokens that may still be drawn, -1 = until the slot is full."""
        return self._limit if self._limit < 0 else max(0, self._limit - len(self.tokens))

    def columns(self, count: int) -> np.ndarray | list[int]:
        """The tokens of the next ``count`` columns: part of the prompt, or what was drawn and
        drafted."""
        if self.tokens:
            return [*self.replay, self.tokens[-1], *self.draft]
        tokens = self.ids if self.media is None else self.media.tokens
        return tokens[self._at : self._at + count]

    def fed(self, count: int, now: float) -> None:
        """The next ``count`` columns went through the model."""
        if self.tokens:
            self.slot.fed(self.tokens[-1])
            if self.draft:
                self.slot.drafted(len(self.draft))
                self._drafts += 1
                self._drafted += len(self.draft)
                self._before = [*self.replay, self.tokens[-1]]
            self.replay = []
        else:
            self.slot.fed(self.ids[self._at : self._at + count], count)
            self._at += count
            self._report(now)

    def scored(self, probs: list[Probs]) -> None:
        """The prompt's next tokens, of which those before were told, had these probabilities."""
        self.job.prompt_probs += probs if self.job.prompt_probs else [None, *probs]

    def is_read(self) -> None:
        """The prompt is read and nothing is to be drawn."""
        self._stop_type = "limit"

    def accepts(self, token: int, place: int) -> bool:
        """Whether a token just drawn is the one drafted in that place, and so is fed already."""
        if place >= len(self.draft) or self.draft[place] != token:
            return False
        self.slot.fed(token)
        self._accepted += 1
        return True

    def take_back(self, accepted: int) -> None:
        """The recurrent state is again what it was before the last pass, of whose draft so many
        tokens stay: they, and what came before them in that pass, must be fed again."""
        self.replay = self._before + self.draft[:accepted]

    def take(self, token: int, probs: Probs | None, now: float) -> Step:
        """Takes a drawn token: its text, and whether the answer ends with it.

        The order of the checks is llama-server's: stop text, full slot, length; an end token
        counts as one even where the length ends too.
        """
        if not self.tokens:
            self._first = now
            self.job.state = State.DRAWING
        self._last = now
        self.tokens.append(token)
        ends = token in self._eog
        fresh = "" if ends else self._stream.push(token)
        shown, word = self._filter.push(fresh) if fresh else ("", "")
        whole = ends or not self._stream.held
        ms = 1e3 * (now - self._first)
        kept, last_line = self._lines.push(shown, ms)
        cut, shown = kept != shown, kept
        if word:
            self._stop_type, self._stopping_word = "word", word
        elif ends:
            self._stop_type = "eos"
        elif self.slot.count + 1 >= self.slot.context:
            self._stop_type, self._truncated = "limit", True
        elif last_line or 0 <= self._limit <= len(self.tokens):
            self._stop_type = "limit"
        if self._thought is not None and not ends:
            self._think(fresh, whole)
        over = self._stop_type != "none"
        if over and not word and not cut:
            shown += self._filter.flush()
        if shown:
            self._texts.append(shown)
        if self._handed is None:
            self._handed = now
        return Step(token, shown, len(self.tokens), whole, probs, over, ms)

    def _think(self, fresh: str, whole: bool) -> None:
        """Follows the thought; one that is too long is closed, but not inside a character."""
        self._thought.push(fresh)
        if whole and not self.forced:
            self.forced += self._thought.overdue()

    def result(self, now: float, failure: str = "") -> Result:
        """How it went. failure: "cancelled" or "error" when the answer did not end by itself."""
        reason = failure or ("length" if self._stop_type == "limit" else "stop")
        entered = now if self.slot is None else self._entered
        first = self._first if self.tokens else now
        ms = 1e3
        return Result(
            text="".join(self._texts),
            tokens=tuple(self.tokens),
            prompt_tokens=len(self.ids),
            cached_tokens=self._cached,
            fed_tokens=self._at - self._cached,
            finish_reason=reason,
            stop_type="none" if failure else self._stop_type,
            stopping_word=self._stopping_word,
            truncated=self._truncated,
            slot=-1 if self.slot is None else self.slot.index,
            slot_tokens=0 if self.slot is None else self.slot.count,
            seed=self.sampler.seed,
            queue_ms=ms * (entered - self.submitted),
            prompt_ms=ms * (first - entered),
            draw_ms=ms * (self._last - self._first) if self.tokens else 0.0,
            first_ms=None if self._handed is None else ms * (self._handed - self.submitted),
            has_new_line=self._lines.seen,
            grammar_ms=self.sampler.constraint_ms,
            resampled=self.sampler.redrawn,
            energy_j=self._energy.since(self._joules),
            media_tokens={} if self.media is None else dict(self.media.counts),
            drafts=self._drafts,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
        )

    def _report(self, now: float) -> None:
        ms = 1e3 * (now - self._entered)
        self.job.report(Progress(len(self.ids), self._cached, self._at, ms))
