"""Timing passes of a model: prompts, draws, several conversations drawing, and a plain read."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import fmean, median, stdev

import numpy as np

from golem_core.cpu import _linear
from golem_core.model import Model
from golem_server.bench.profile import by_op
from golem_server.bench.served import SPARE, served

DRAWN, PROMPT = 0, 1
_READ_BYTES = 1 << 30  # a plain read's buffer: far more than any cache keeps


@dataclass(frozen=True)
class Case:
    """A line of the report: n_prompt tokens read or n_gen drawn at depth, batch at once."""

    n_prompt: int
    n_gen: int
    depth: int = 0
    batch: int = 1

    @property
    def name(self) -> str:
        """As llama-bench spells it: "pp512", "tg64 @ d1024"; "4x" for conversations at once."""
        what = f"pp{self.n_prompt}" if self.n_prompt else f"tg{self.n_gen}"
        several = f"{self.batch}x " if self.batch > 1 else ""
        return several + what + (f" @ d{self.depth}" if self.depth else "")

    @property
    def positions(self) -> int:
        """Positions a slot needs; an answer has a prompt, of one token at least."""
        return max(self.depth, 1) + self.n_gen + SPARE if self.n_gen else self.depth + self.n_prompt

    @property
    def tokens(self) -> int:
        """Tokens of one repeat."""
        return self.batch * (self.n_prompt + self.n_gen)


@dataclass
class Result:
    """What a case measured.

    seconds: of each repeat. outside: microseconds a drawn token that its pass spends around the C.
    served: microseconds a drawn token around the C where the engine draws, see ``served``.
    read_share: rate of reading weights in the best pass over a plain read; past 1 caches hold a
    part. read_spread: how much the plain reads of this case varied; past 0.15 the share says
    nothing. pass_bytes: of weights that a pass read, the median, as the executor's Stats count
    them. profile: seconds of a repeat by op, where they were asked for.
    """

    case: Case
    seconds: list[float] = field(default_factory=list)
    outside: float | None = None
    served: float | None = None
    read_share: float | None = None
    read_spread: float | None = None
    pass_bytes: int | None = None
    profile: dict[str, float] | None = None

    @property
    def rates(self) -> list[float]:
        """Tokens a second of each repeat."""
        return [self.case.tokens / s for s in self.seconds]

    @property
    def rate(self) -> float:
        return fmean(self.rates)

    @property
    def spread(self) -> float:
        return stdev(self.rates) if len(self.seconds) > 1 else 0.0


@dataclass(frozen=True)
class Pass:
    """One pass that drew. seconds: by the clock. inside: in C. weight_bytes: read by it."""

    seconds: float
    inside: float
    weight_bytes: int

    @property
    def outside(self) -> float:
        """Seconds of Python around the C."""
        return self.seconds - self.inside

    @property
    def read_rate(self) -> float:
        """Bytes of weights a second."""
        return self.weight_bytes / self.seconds


class Bench:
    """Runs cases on a loaded model, drawing random tokens as llama-bench does."""

    def __init__(self, model: Model, seed: int = 0):
        self.model = model
        self.threads = getattr(model.executor, "threads", 1)
        settle = getattr(model.executor, "settle", None)
        while settle is not None and settle():
            pass
        self._depths: dict[int, int] = {}  # what was read into a slot last, before it drew
        self._rng = np.random.default_rng(seed)
        self._reader = PlainRead(self.threads, model.estimate.weights)

    def run(
        self,
        case: Case,
        repeats: int,
        warm: bool = True,
        profile: bool = False,
        engine: bool = False,
    ) -> Result:
        """The case ``repeats`` times, plain reads in between; ``warm``: after one not measured.

        engine: draw once more, through the engine; it reads the depth anew.
        """
        result = Result(case)
        passes: list[Pass] = []
        reads: list[float] = []
        for slot in range(case.batch):
            self._reach(slot, case.depth)
        before: Counter[str] = Counter()
        for repeat in range(not warm, repeats + 1):
            if profile and repeat == 1:
                before = self._spent()
            if case.n_gen and repeat:
                reads.append(self._reader.rate())
            started = time.perf_counter()
            drawn = self._draw(case)
            if case.n_prompt:
                self._feed(0, case.depth, case.n_prompt, score=True)
            if repeat:
                result.seconds.append(time.perf_counter() - started)
                passes += drawn
        if profile:
            result.profile = {
                what: (seconds - before[what]) / repeats for what, seconds in self._spent().items()
            }
        if passes and hasattr(self.model.executor, "stats"):
            result.outside = 1e6 * median(p.outside for p in passes) / case.batch
            result.read_share = max(p.read_rate for p in passes) / max(reads)
            result.read_spread = 1.0 - min(reads) / max(reads)
            result.pass_bytes = int(median(p.weight_bytes for p in passes))
            if engine:
                prompts = [self._tokens(max(case.depth, 1)) for _ in range(case.batch)]
                result.served = served(self.model, prompts, case.n_gen)
        return result

    def close(self) -> None:
        self._reader.close()

    def _spent(self) -> Counter[str]:
        """Seconds by op since it was first asked, of passes that score and of those that do not."""
        executor = self.model.executor
        if not hasattr(executor, "profile"):
            raise ValueError("this executor keeps no account of where its time goes")
        return by_op(executor.profile(())) + by_op(executor.profile())

    def _tokens(self, count: int) -> np.ndarray:
        return self._rng.integers(0, self.model.n_vocab, count, dtype=np.int32)

    def _reach(self, slot: int, depth: int) -> None:
        """Reads a slot's first positions, unless the last case began at that depth too.

        What was drawn behind them is then written over by the next case. Where it has pushed keys
        out of a sliding window, the next attends to as many others, in the same time.
        """
        if self._depths.get(slot) != depth:
            self._feed(slot, 0, depth)
            self._depths[slot] = depth

    def _feed(self, slot: int, index: int, count: int, score: bool = False) -> None:
        """Reads count random tokens of a slot, the last of them scored where asked."""
        end = index + count
        while index < end:
            n = min(self.model.pass_width, end - index)
            scored = [n - 1] if score and index + n == end else []
            self.model.executor.run(
                {
                    "runs": np.array([[slot, 0, n, index, PROMPT]], np.int32),
                    "tokens": self._tokens(n),
                    "outputs": np.array(scored, np.int32),
                },
                ("logits",) if scored else (),
            )
            index += n

    def _draw(self, case: Case) -> list[Pass]:
        """Draws n_gen tokens in every conversation."""
        columns = np.arange(case.batch, dtype=np.int32)
        runs = np.zeros((case.batch, 5), np.int32)
        runs[:, 0] = runs[:, 1] = columns
        runs[:, 2] = 1
        executor, passes = self.model.executor, []
        for step in range(case.n_gen):
            tokens = self._tokens(case.batch)
            started = time.perf_counter()
            runs[:, 3] = case.depth + step
            executor.run({"runs": runs, "tokens": tokens, "outputs": columns})
            seconds = time.perf_counter() - started
            stats = getattr(executor, "stats", None)
            if stats is not None:
                passes.append(Pass(seconds, stats.seconds, stats.weight_bytes))
        return passes


class PlainRead:
    """Sums memory with as many threads, to know what the machine gives at that moment."""

    def __init__(self, threads: int, size: int):
        self._bytes = max(1 << 20, min(size, _READ_BYTES))
        self._parts = np.array_split(np.ones(self._bytes, np.uint8), threads)
        self._pool = ThreadPoolExecutor(threads)

    def close(self) -> None:
        self._pool.shutdown()

    def rate(self, tries: int = 3) -> float:
        """Bytes a second, the best of a few."""
        best = float("inf")
        for _ in range(tries):
            started = time.perf_counter()
            list(self._pool.map(_linear.read, self._parts))
            best = min(best, time.perf_counter() - started)
        return self._bytes / best
