"""Timing passes of a model: prompts, draws, several conversations drawing, and a plain read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np

from golem_core.model import Model

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
        """Positions a slot needs."""
        return self.depth + self.n_prompt + self.n_gen

    @property
    def tokens(self) -> int:
        """Tokens of one repeat."""
        return self.batch * (self.n_prompt + self.n_gen)


@dataclass
class Result:
    """What a case measured. seconds: of each repeat. outside: microseconds a pass around its C."""

    case: Case
    seconds: list[float] = field(default_factory=list)
    outside: float | None = None
    read_share: float | None = None  # weight bytes / time over a plain read, of the best pass
    read_spread: float | None = None  # how much the plain reads of this case varied

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


class Bench:
    """Runs cases on a loaded model. read: bytes a second of a plain read by as many threads."""

    def __init__(self, model: Model, threads: int, seed: int = 0):
        self.model = model
        self.threads = threads
        self._rng = np.random.default_rng(seed)
        self._reader = PlainRead(threads, model.estimate.weights)

    def run(self, case: Case, repeats: int) -> Result:
        """The case, once unmeasured and then ``repeats`` times."""
        result = Result(case)
        outside: list[float] = []
        reads: list[float] = []
        best_pass = float("inf")
        for repeat in range(repeats + 1):
            for slot in range(case.batch):
                self._feed(slot, 0, case.depth)
            if case.n_gen and repeat:
                reads.append(self._reader.rate())
            started = time.perf_counter()
            if case.n_prompt:
                for slot in range(case.batch):
                    self._feed(slot, case.depth, case.n_prompt, score=True)
                took = []
            else:
                took = self._draw(case, outside if repeat else [])
            seconds = time.perf_counter() - started
            if repeat:
                result.seconds.append(seconds)
                best_pass = min([best_pass, *took])
        if outside:
            result.outside = 1e6 * fmean(outside)
        if reads:
            result.read_share = weight_bytes_of_a_pass(self.model, case.batch) / best_pass
            result.read_share /= max(reads)
            result.read_spread = 1.0 - min(reads) / max(reads)
        return result

    def _tokens(self, count: int) -> np.ndarray:
        return self._rng.integers(0, self.model.n_vocab, count, dtype=np.int32)

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

    def _draw(self, case: Case, outside: list[float]) -> list[float]:
        """Draws n_gen tokens in every conversation. -> seconds of each pass."""
        columns = np.arange(case.batch, dtype=np.int32)
        runs = np.zeros((case.batch, 5), np.int32)
        runs[:, 0] = runs[:, 1] = columns
        runs[:, 2] = 1
        executor, passes = self.model.executor, []
        for step in range(case.n_gen):
            started = time.perf_counter()
            runs[:, 3] = case.depth + step
            executor.run({"runs": runs, "tokens": self._tokens(case.batch), "outputs": columns})
            passes.append(time.perf_counter() - started)
            inside = getattr(executor, "seconds", None)
            if inside is not None:
                outside.append(passes[-1] - inside)
        return passes


def weight_bytes_of_a_pass(model: Model, batch: int) -> float:
    """Bytes of weights that drawing ``batch`` columns reads once: of experts only those used."""
    total = 0.0
    for weight in {w.data.ctypes.data: w for w in model.program.weights.values()}.values():
        total += weight.nbytes * _share_read(model, weight.name, weight.shape, batch)
    return total


def _share_read(model: Model, name: str, shape: tuple[int, ...], batch: int) -> float:
    if len(shape) == 3:  # the expected share of experts that somebody chose
        return 1.0 - (1.0 - model.decoder.experts_used / shape[0]) ** batch
    is_table = name == "token_embd.weight" and "output.weight" in model.program.weights
    return batch / shape[0] if is_table else 1.0


class PlainRead:
    """Sums memory with as many threads, to know what the machine gives at that moment."""

    def __init__(self, threads: int, size: int):
        words = max(1 << 16, min(size, _READ_BYTES) // 8)
        self._parts = np.array_split(np.ones(words, np.uint64), threads)
        self._pool = ThreadPoolExecutor(threads)
        self._bytes = words * 8

    def rate(self, tries: int = 3) -> float:
        """Bytes a second, the best of a few."""
        best = float("inf")
        for _ in range(tries):
            started = time.perf_counter()
            list(self._pool.map(np.add.reduce, self._parts))
            best = min(best, time.perf_counter() - started)
        return self._bytes / best
