"""Every op on the CPU executor equals the reference, on every instruction set this machine has."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golem_core.cpu import CpuExecutor, features
from golem_core.reference import ReferenceExecutor
from tests.core.ops.strategies import CASES, Case

SETS = features()["available"] + features()["emulated"]
RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def outputs(case: Case, kind=CpuExecutor, **options) -> list[dict[str, np.ndarray]]:
    """The outputs of every pass of a case."""
    executor = kind(
        case.program, slots=case.slots, context=case.context, maxima=case.maxima, **options
    )
    made = [
        {k: v.copy() for k, v in executor.run(inputs, case.outputs).items()}
        for inputs in case.passes
    ]
    executor.close()
    return made


def least(case: Case) -> float:
    """What an error is relative to at least: results of operands about 1 may all be near 0.

    A product's rounding is relative to its operands, and a lone sum of them may cancel.
    """
    sums = ("linear", "delta_rule")
    return 1.0 if any(node.op.startswith(sums) for node in case.program.nodes) else 1e-2


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("op", sorted(CASES))
def test_op_equals_the_reference(op, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)

    @settings(max_examples=25, **RELAXED)
    @given(CASES[op]())
    def check(case):
        truth = outputs(case, ReferenceExecutor)
        for mine, theirs in zip(outputs(case, threads=2), truth, strict=True):
            for name in case.outputs:
                assert mine[name].shape == theirs[name].shape
                assert mine[name].dtype == theirs[name].dtype
                most = max(float(np.abs(theirs[name]).max(initial=0)), least(case))
                error = np.abs(mine[name] - theirs[name]).max(initial=0) / most
                assert error <= case.tolerance, f"{name}: {error}"

    check()


def poisoned(case: Case, seed: int) -> Case:
    """The same passes with NaN and infinities among their numbers."""
    rng = np.random.default_rng(seed)
    for inputs in case.passes:
        for array in inputs.values():
            if array.dtype == np.float32 and array.size:
                at = rng.integers(0, array.size, 1 + array.size // 7)
                array.reshape(-1)[at] = rng.choice([np.nan, np.inf, -np.inf, 3e38], at.size)
    return case


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("op", sorted(CASES))
def test_no_number_hangs_or_crashes_an_op(op, isa, monkeypatch):
    """NaN, infinities and numbers that overflow: what is chosen stays in range."""
    monkeypatch.setenv("GOLEM_CPU", isa)

    @settings(max_examples=5, **RELAXED)
    @given(CASES[op](), st.integers(0, 1000))
    def check(case, seed):
        for made in outputs(poisoned(case, seed), threads=2):
            for name in case.outputs:
                value = case.program.outputs[name]
                if value.dtype == "i32":
                    width = case.program.nodes[-1].inputs[0].width
                    assert ((made[name] >= 0) & (made[name] < width)).all()

    check()
