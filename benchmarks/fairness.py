"""Does who draws notice that somebody else's long prompt is being read?

    python -m benchmarks.fairness [--random qwen3-0.6b:q4_0 | -m FILE] [--prompt 4096] [--rounds 3]

One conversation (or ``--drawing`` of them) draws while another one's prompt is read, alternating
in one run with the same conversation alone. Printed are the gaps between tokens, alone and beside
the reader, the worst gap as a multiple of the worst one alone, and what the reader pays for it:
the time its prompt takes beside them over the time it takes alone. Wanted: a worst gap of 500 ms
at most, and three times the one alone.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from benchmarks.models import add_model, model
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Job, Request
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

WORST, TIMES = 0.5, 3.0


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    add_model(parser, "qwen3-0.6b:q4_0")
    parser.add_argument(
        "--prompt", type=kinds.whole(), default=4096, help="positions that are read (4096)"
    )
    parser.add_argument(
        "--drawing", type=kinds.whole(), default=1, help="conversations that draw (1)"
    )
    parser.add_argument("--rounds", type=kinds.whole(), default=3)
    arguments = parser.parse_args()
    slots = arguments.drawing + 1
    context = slots * (arguments.prompt + 2048)
    with model(arguments, context=context, parallel=slots) as opened, Engine(opened) as engine:
        bench = Bench(engine, arguments.drawing, arguments.prompt)
        for _ in range(arguments.rounds):
            bench.round()
        print(bench.report(opened.name))


class Bench:
    """Rounds of an engine: alone, reading alone, and both."""

    def __init__(self, engine: Engine, drawing: int, prompt: int):
        self._engine = engine
        self._drawing = drawing
        self._prompt = prompt
        self._rng = np.random.default_rng(0)
        self._alone: list[float] = []  # seconds between tokens
        self._beside: list[float] = []
        self._read_alone: list[float] = []  # seconds of the prompt
        self._read_beside: list[float] = []

    def round(self) -> None:
        """One of each."""
        self._read_alone.append(self._read())
        talks = self._talk()
        self._alone += gaps(talks, lambda: time.sleep(2.0))
        talks = self._talk()
        self._beside += gaps(talks, lambda: self._read_beside.append(self._read()))

    def _submit(self, count: int, length: int) -> Job:
        params = SamplerParams(temperature=1, ignore_eos=True)
        tokens = self._rng.integers(3, self._engine.model.n_vocab, count)
        request = Request(tokens, max_tokens=length, params=params, cache_prompt=False)
        return self._engine.submit(request)

    def _talk(self) -> list[Job]:
        """Conversations that have begun to draw."""
        talks = [self._submit(16, -1) for _ in range(self._drawing)]
        for job in talks:
            job.steps()
        return talks

    def _read(self) -> float:
        result = self._submit(self._prompt, 1).wait()
        return result.prompt_ms / 1e3

    def report(self, name: str) -> str:
        alone, beside = max(self._alone), max(self._beside)
        reading, slowed = median(self._read_alone), median(self._read_beside)
        met = beside <= WORST and beside <= TIMES * alone
        lines = [
            f"{name}: {self._drawing} drawing, a prompt of {self._prompt} read beside",
            "| gaps between tokens, ms | median | 99th of 100 | worst |",
            "|---|---|---|---|",
            row("alone", self._alone),
            row("beside the reader", self._beside),
            f"worst gap: {1e3 * beside:.0f} ms, {beside / alone:.2f} times the one alone, "
            f"{beside / median(self._alone):.2f} times a usual one: {'kept' if met else 'MISSED'}",
            f"prompt: {reading:.2f} s alone, {slowed:.2f} s beside ({slowed / reading:.2f} times)",
        ]
        return "\n".join(lines)


def gaps(talks: list[Job], meanwhile) -> list[float]:
    """Seconds between the tokens that these draw while something else happens; they end then."""
    before = [job.steps()[-1].ms for job in talks]
    meanwhile()
    for job in talks:
        job.cancel()
    found = []
    for job, last in zip(talks, before, strict=True):
        for step in job:
            found.append((step.ms - last) / 1e3)
            last = step.ms
    return found


def row(name: str, seconds: list[float]) -> str:
    shown = (median(seconds), float(np.percentile(seconds, 99)), max(seconds))
    return f"| {name} | {' | '.join(f'{1e3 * s:.0f}' for s in shown)} |"


if __name__ == "__main__":
    main()
