"""Every op on the CPU executor equals the reference, on every instruction set this machine has."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from golem_core.cpu import CpuExecutor, features
from golem_core.reference import ReferenceExecutor
from tests.core.ops.strategies import CASES, EIGHT_BITS, Case

SETS = features()["available"]
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
    """What an error is relative to at least: results of operands about 1 may all be near 0."""
    return 0.3 if case.tolerance == EIGHT_BITS else 1e-2


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
