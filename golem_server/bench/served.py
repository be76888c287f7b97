"""What a drawn token costs around the C when the engine draws it, as golem-server has it drawn.

A pass alone says little of that: between two of them tokens are sampled, made text and handed to
whoever reads them, ends and stop texts are looked for, and the next pass is put together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from golem_core.model import Model
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request

SPARE = 2  # positions a slot needs beyond its prompt and the passes that are measured


class Begun(NamedTuple):
    """One pass. at: when it was asked for, seconds. inside: seconds in C."""

    at: float
    inside: float
    conversations: int
    columns: int


class Clocked:
    """An executor that takes down its passes; else what the one it is made of is."""

    def __init__(self, executor: Any, clock: Callable[[], float]):
        self.passes: list[Begun] = []
        self._executor = executor
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(
        self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str] = ("logits",)
    ) -> dict[str, np.ndarray]:
        at = self._clock()
        made = self._executor.run(inputs, wanted)
        inside = self._executor.stats.seconds
        self.passes.append(Begun(at, inside, len(inputs["runs"]), len(inputs["tokens"])))
        return made


def served(
    model: Model,
    prompts: Sequence[np.ndarray],
    drawn: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Microseconds a drawn token outside of C, while conversations go on from these prompts.

    All draw at once, ``drawn`` passes long, nobody drafts, the sampler is the one of a request that
    says nothing of it, and a thread reads each answer's steps. What HTTP takes comes on top. None:
    they never drew together.
    """
    executor = Clocked(model.executor, clock)
    params = [
        SamplerParams.resolve(
            model.sampling, {"seed": seed, "ignore_eos": True}, tokenizer=model.tokenizer
        )
        for seed in range(len(prompts))
    ]
    requests = [
        Request(tokens, max_tokens=drawn + SPARE, params=own)
        for tokens, own in zip(prompts, params, strict=True)
    ]
    with (
        ThreadPoolExecutor(len(prompts)) as readers,
        Engine(replace(model, executor=executor), slots=len(prompts), draft="off") as engine,
    ):
        list(readers.map(list, engine.submit_all(requests)))
    return outside(executor.passes, len(prompts))


def outside(passes: Sequence[Begun], conversations: int) -> float | None:
    """Microseconds a token, the median from one pass to the next where all conversations draw."""
    together = [one.conversations == one.columns == conversations for one in passes]
    gaps = [
        after.at - one.at - one.inside
        for (one, after), both in zip(pairwise(passes), pairwise(together), strict=True)
        if all(both)
    ]
    return 1e6 * median(gaps) / conversations if gaps else None
