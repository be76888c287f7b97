"""Runs programs in C: plans on first use, one call without Python a pass."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from golem_core.cpu import _executor
from golem_core.cpu.compile import DTYPES, CompiledPlan, Spent
from golem_core.cpu.cores import core_numbers, physical_cores, usable_cpus
from golem_core.cpu.weights import WeightStore
from golem_core.graph.binding import bind
from golem_core.graph.program import Program
from golem_core.graph.values import Value, extent_at
from golem_core.state import States

SPIN = 4000  # looks at a changing word before a thread sleeps: some 50 microseconds


class PassCancelled(Exception):
    """The pass was ended by ``CpuExecutor.cancel``; its outputs do not exist."""


_DECODER = {"runs", "tokens", "outputs"}  # the inputs of a pass that C checks by itself
_FOLLOWING = {"index", "positions", "until", "place", "embeddings"}  # by the runs, or empty


class Stats(NamedTuple):
    """passes: so far. Of the last one, seconds: inside C. weight_bytes: weights that kernels of
    products were given to read, once for every block of columns. A few conversations
    that draw are one block (up to half of GOLEM_PROMPT_COLUMNS); a prompt's further blocks find
    the weights in the caches."""

    passes: int = 0
    seconds: float = 0.0
    weight_bytes: int = 0


def features() -> dict[str, object]:
    """Instruction sets: those this processor has, and the one in use (``GOLEM_CPU`` lowers it).

    emulated: sets that run here without their instructions, slowly; tests ask for them.
    """
    return {
        "set": instruction_set(),
        "available": _executor.supported(),
        "emulated": _executor.emulated(),
    }


def instruction_set() -> str:
    """The set of kernels executors use. Raises ValueError for a GOLEM_CPU that cannot be."""
    available = _executor.supported()
    asked = os.environ.get("GOLEM_CPU", available[-1])
    if asked not in available and asked not in _executor.emulated():
        raise ValueError(f"GOLEM_CPU={asked}: this processor and build have {', '.join(available)}")
    return asked


def told_set() -> str:
    """The set in use, for a person; and when AMX was tried and failed, that."""
    wrong = ", for AMX is offered here but does not compute what it should"
    return instruction_set() + (wrong if _executor.amx_wrong() else "")


class CpuExecutor:
    """Executes a program on the processor.

    slots, context: conversations and positions of each. maxima: the most each symbol is bound to.
    threads: workers, the caller's among them; None: the physical cores this process may use.
    wanted: sets of outputs to plan at once; others are planned on first use. weights: a store to
    share with other executors. progress: called with the share of weights repacked, 0 to 1.
    beside: an executor whose threads this one uses; their passes must not run at the same time.
    cache: what keys and values are kept as, keys of golem_core.state.kinds.CACHE_TYPES. states:
    another executor's, which this program's are among.

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
        beside: CpuExecutor | None = None,
        cache: tuple[str, str] = ("f16", "f16"),
        states: States | None = None,
    ):
        self.program = program
        self.slots = slots if states is None else states.slots
        self.context = context if states is None else states.context
        self.maxima = {**program.axes, **(maxima or {})}
        self.threads = physical_cores() if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"{threads} threads; at least 1")
        self.isa = instruction_set()
        if states is None:
            width = self.maxima.get("n", 1)
            states = States(program.states.values(), slots, context, width, *cache)
        self.states = states
        self.weights = WeightStore() if weights is None else weights
        self._passes = 0
        self._last: CompiledPlan | None = None
        self._mode = os.environ.get("GOLEM_PLAN", "")
        if self._mode not in ("", "plain", "show"):
            raise ValueError(f"GOLEM_PLAN={self._mode}: it is plain, show or unset")
        self._plans: dict[tuple[str, ...], CompiledPlan] = {}
        self._decoders: dict[tuple, tuple[CompiledPlan, dict[str, np.ndarray]]] = {}
        vocabulary = _vocabulary(program)
        self._vocabulary = vocabulary and (vocabulary, self.maxima["n"], self.maxima["m"])
        self._cancel = np.zeros(1, np.int32)
        self._lock = threading.Lock()
        self._twin: CpuExecutor | None = None
        spin = SPIN if self.threads <= usable_cpus() else 0
        self._own_pool = beside is None
        if beside is None:
            self._pool = _executor.Pool(self.threads, spin, np.array(core_numbers(), np.int32))
        else:
            self._pool, self.threads = beside._pool, beside.threads
        self._load(wanted, progress)

    def _load(self, wanted, progress) -> None:
        """Repacks weights, and makes plans beside it; where those fail, both end."""
        stop = threading.Event()

        def report(share: float) -> None:
            if stop.is_set():
                raise CancelledError("loading was given up")
            if progress is not None:
                progress(share)

        with ThreadPoolExecutor(1, "golem-repack") as beside:
            repacked = beside.submit(self.weights.add(self.program, self._pool, report))
            try:
                for names in wanted:
                    self._plan(names)
                repacked.result()
            except BaseException:
                stop.set()
                raise

    def _plan(self, wanted: Sequence[str]) -> CompiledPlan:
        key = tuple(wanted)
        if key not in self._plans:
            self._pool.check()
            made = CompiledPlan(
                self.program,
                key,
                pool=self._pool,
                isa=self.isa,
                states=self.states,
                weights=self.weights,
                maxima=self.maxima,
                fuse=self._mode != "plain",
                # A pass that writes states runs to its end: half a pass would leave half a state.
                cancel=None if self.program.states else self._cancel,
            )
            if self._mode == "show":
                print(f"plan of {self.program.name}:\n{made.describe()}", file=sys.stderr)
            self._plans[key] = made
        return self._plans[key]

    def describe(self, wanted: Sequence[str] = ("logits",)) -> str:
        """The records of a plan, one a line.

        ``|`` where the workers meet, ``:`` where they meet above two rows; indented: run in one
        chain with the line before; ``*`` after a weight whose results are quantised in the store.
        """
        return self._plan(wanted).describe()

    def profile(self, wanted: Sequence[str] = ("logits",)) -> list[Spent]:
        """What the first worker has spent on every chain of a plan since the first call, with its
        waiting for the others."""
        plan = self._plan(wanted)
        plan.code.start_profile()
        return plan.profiled()

    def run(
        self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str] = ("logits",)
    ) -> dict[str, np.ndarray]:
        """One pass. inputs: see golem_core.graph.binding. -> the wanted outputs, f32 or i32.

        Outputs without rows (nothing is scored) cost nothing. Raises ProgramError for inputs that
        do not fit the program, RuntimeError after close() or in a forked process.
        """
        with self._lock:
            made = self._run_decoder(inputs, tuple(wanted))
            return self._run_checked(inputs, wanted) if made is None else made

    def begin(self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str]) -> Pieces:
        """A pass to be run in pieces; close it in the end.

        Where a program keeps states, those of the slots it feeds are nobody's until it is over:
        one that is given up leaves half of its columns in them.
        """
        return Pieces(self, inputs, wanted)

    def twin(self, columns: int, wanted: Sequence[str] = ("logits",)) -> CpuExecutor:
        """An executor of the same program, states, weights and threads whose passes, of so many
        columns at most, may run between the pieces of one of this executor's.

        Made and planned on the first call, which says how wide it is; closed with this one.
        """
        if self._twin is None:
            narrow = {s: min(most, columns) for s, most in self.maxima.items() if s in "nm"}
            self._twin = CpuExecutor(
                self.program,
                slots=self.slots,
                context=self.context,
                maxima=self.maxima | narrow,
                weights=self.weights,
                wanted=(wanted,),
                beside=self,
                states=self.states,
            )
        return self._twin

    def _run_checked(self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str]):
        self._pool.check()
        bound = bind(
            self.program, inputs, slots=self.slots, context=self.context, maxima=self.maxima
        )
        sizes = bound.sizes
        plan, empty = self._needed(wanted, sizes)
        self._cancel[0] = 0
        made = plan.run(sizes, bound.arrays, bound.runs)
        if made is None:
            raise PassCancelled(f"a pass of {self.program.name} was cancelled")
        self._passes += 1
        self._last = plan
        return made | empty

    def _needed(self, wanted: Sequence[str], sizes: Mapping[str, int]):
        """The plan for the outputs that have rows, and the empty ones."""
        outputs = self.program.outputs
        empty = {
            name: np.zeros((0, *outputs[name].inner), DTYPES[outputs[name].dtype])
            for name in wanted
            if name in outputs and not extent_at(outputs[name].rows, sizes)
        }
        return self._plan([name for name in wanted if name not in empty]), empty

    def _run_decoder(self, inputs: Mapping[str, np.ndarray], wanted: tuple[str, ...]):
        """The pass of a plain decoder, checked in C; there may be 100 microseconds between passes.

        None: take the long way, which says what is wrong with inputs that are refused here.
        """
        if self._vocabulary is None or inputs.keys() != _DECODER:
            return None
        runs, tokens, outputs = inputs["runs"], inputs["tokens"], inputs["outputs"]
        try:
            sizes = _executor.decoder_sizes(
                runs, tokens, outputs, self.slots, self.context, *self._vocabulary
            )
        except (TypeError, ValueError):
            return None
        if sizes is None:
            return None
        n, m = sizes
        key = wanted, m > 0
        found = self._decoders.get(key)
        if found is None:
            found = self._decoders[key] = self._needed(wanted, {"n": n, "m": m})
        plan, empty = found
        made = plan.run_decoder(n, m, runs, tokens, outputs)
        self._passes += 1
        self._last = plan
        return made | empty if empty else made

    @property
    def stats(self) -> Stats:
        """Of the last pass."""
        if self._last is None:
            return Stats()
        return Stats(self._passes, self._last.code.seconds, self._last.code.weight_bytes)

    def cancel(self) -> None:
        """Has the pass that is running end soon with PassCancelled, where the program is stateless.

        May be called from any thread. A pass that starts later is not affected.
        """
        self._cancel[0] = 1

    def settle(self) -> bool:
        """Some milliseconds' work that makes passes quicker, for when none waits; False: all done.

        Where memory came slowly, weights are at first read a tenth slower than they could be.
        """
        with self._lock:
            return self.weights.settle()

    def close(self) -> None:
        """Stops the threads and lets go of the weights."""
        with self._lock:
            if self._twin is not None:
                self._twin.close()
            if self._own_pool:
                self._pool.close()
            self._plans.clear()
            self._decoders.clear()
            self._last = None
            self.weights = WeightStore()

    def __enter__(self) -> CpuExecutor:
        return self

    def __exit__(self, *error) -> None:
        self.close()


class Pieces:
    """A pass that its caller runs in pieces, with other work between them.

    Until it is closed no other pass of the executor runs, and its outputs stay valid.
    """

    def __init__(
        self, executor: CpuExecutor, inputs: Mapping[str, np.ndarray], wanted: Sequence[str]
    ):
        executor._pool.check()
        bound = bind(
            executor.program,
            inputs,
            slots=executor.slots,
            context=executor.context,
            maxima=executor.maxima,
        )
        self._executor = executor
        executor._lock.acquire()
        try:
            plan, self._empty = executor._needed(wanted, bound.sizes)
            self._begun = plan.begin(bound.sizes, bound.arrays, bound.runs)
        except BaseException:
            executor._lock.release()
            raise
        self._held = True

    def advance(self, seconds: float = 0.0) -> bool:
        """Runs on for about so many seconds, 0: to the end. True when the pass is over."""
        return self._begun.advance(seconds)

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Of a pass that is over; valid until it is closed."""
        return self._begun.outputs | self._empty

    def close(self) -> None:
        """Lets the executor run other passes, whether this one is over or not. Idempotent."""
        held, self._held = self._held, False
        if held:
            self._executor._lock.release()

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *error) -> None:
        self.close()


def _vocabulary(program: Program) -> int | None:
    """Tokens there are, where a program has a plain decoder's inputs and uses them as such."""
    inputs = program.inputs
    if set(inputs) - _FOLLOWING != {"tokens", "outputs"} or set(program.axes) - {"e"} != {"n", "m"}:
        return None
    if any(len(inputs[name].shape) != 1 for name in ("tokens", "outputs")):
        return None
    sizes = []
    for node in program.nodes:
        for place, value in enumerate(node.inputs):
            root = value.root if isinstance(value, Value) else None
            if root is inputs["tokens"]:
                if node.op != "rows" or value.shape != root.shape:
                    return None
                sizes += [w.shape[0] for w in node.weights]
            elif root is inputs["outputs"] and (
                node.op != "pick" or place != 1 or node.inputs[0].rows != inputs["tokens"].rows
            ):
                return None
    return min(sizes, default=None)
