"""Runs programs in C: plans on first use, one call without Python a pass."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from golem_core.cpu import _executor
from golem_core.cpu.compile import CompiledPlan
from golem_core.cpu.cores import physical_cores, usable_cpus
from golem_core.cpu.weights import WeightStore
from golem_core.graph.binding import bind
from golem_core.graph.program import Program
from golem_core.graph.values import extent_at
from golem_core.state import States

SPIN = 4000  # looks at a changing word before a thread sleeps: some 50 microseconds


@dataclass
class Stats:
    """Of the last pass. seconds: inside C. weight_bytes: weights read, each once."""

    passes: int = 0
    seconds: float = 0.0
    weight_bytes: int = 0


def features() -> dict[str, object]:
    """Instruction sets: those this processor has, and the one in use (``GOLEM_CPU`` lowers it)."""
    return {"set": instruction_set(), "available": _executor.supported()}


def instruction_set() -> str:
    """The set of kernels executors use. Raises ValueError for a GOLEM_CPU that cannot be."""
    available = _executor.supported()
    asked = os.environ.get("GOLEM_CPU", available[-1])
    if asked not in available:
        raise ValueError(f"GOLEM_CPU={asked}: this processor and build have {', '.join(available)}")
    return asked


class CpuExecutor:
    """Executes a program on the processor.

    slots, context: conversations and positions of each. maxima: the most each symbol is bound to.
    threads: workers, the caller's among them; None: the physical cores this process may use.
    wanted: sets of outputs to plan at once; others are planned on first use. weights: a store to
    share with other executors. progress: called with the share of weights repacked, 0 to 1.

    Arrays that ``run`` returns are valid until the next run. One pass runs at a time.
    """

    def __init__(
        self,
        program: Program,
        *,
        slots: int = 1,
        context: int = 4096,
        maxima: Mapping[str, int] | None = None,
        threads: int | None = None,
        wanted: Iterable[Sequence[str]] = (),
        weights: WeightStore | None = None,
        progress: Callable[[float], None] | None = None,
    ):
        self.program = program
        self.slots = slots
        self.context = context
        self.maxima = {**program.axes, **(maxima or {})}
        self.threads = physical_cores() if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"{threads} threads; at least 1")
        self.isa = instruction_set()
        self.states = States(program.states.values(), slots, context, self.maxima.get("n", 1))
        self.weights = WeightStore() if weights is None else weights
        self.stats = Stats()
        self._mode = os.environ.get("GOLEM_PLAN", "")
        if self._mode not in ("", "plain", "show"):
            raise ValueError(f"GOLEM_PLAN={self._mode}: it is plain, show or unset")
        self._plans: dict[tuple[str, ...], CompiledPlan] = {}
        self._lock = threading.Lock()
        self._pool = _executor.Pool(self.threads, SPIN if self.threads <= usable_cpus() else 0)
        self.weights.add(program, self._pool, progress)
        for names in wanted:
            self._plan(names)

    def _plan(self, wanted: Sequence[str]) -> CompiledPlan:
        key = tuple(wanted)
        if key not in self._plans:
            made = CompiledPlan(
                self.program,
                key,
                pool=self._pool,
                isa=self.isa,
                states=self.states,
                weights=self.weights,
                maxima=self.maxima,
                fuse=self._mode != "plain",
            )
            if self._mode == "show":
                print(f"plan of {self.program.name}:\n{made.describe()}", file=sys.stderr)
            self._plans[key] = made
        return self._plans[key]

    def describe(self, wanted: Sequence[str] = ("logits",)) -> str:
        """The records of a plan, one a line; a bar marks where the workers meet."""
        return self._plan(wanted).describe()

    def run(
        self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str] = ("logits",)
    ) -> dict[str, np.ndarray]:
        """One pass. inputs: see golem_core.graph.binding. -> the wanted outputs, f32 or i32.

        Outputs without rows (nothing is scored) cost nothing. Raises ProgramError for inputs that
        do not fit the program, RuntimeError after close() or in a forked process.
        """
        with self._lock:
            binding = bind(
                self.program, inputs, slots=self.slots, context=self.context, maxima=self.maxima
            )
            outputs = self.program.outputs
            rows = {
                name: extent_at(outputs[name].rows, binding.sizes)
                for name in wanted
                if name in outputs
            }
            plan = self._plan([name for name in wanted if rows.get(name, 1)])
            made = plan.run(binding.sizes, binding.arrays, binding.runs)
            for name, count in rows.items():
                if not count:
                    made[name] = np.zeros((0, *outputs[name].inner), np.float32)
            self.stats.passes += 1
            self.stats.seconds = plan.code.seconds
            self.stats.weight_bytes = plan.weight_bytes(binding.sizes)
            return made

    def close(self) -> None:
        """Stops the threads and lets go of the weights."""
        with self._lock:
            self._pool.close()
            self._plans.clear()
            self.weights = WeightStore()

    def __enter__(self) -> CpuExecutor:
        return self

    def __exit__(self, *error) -> None:
        self.close()
