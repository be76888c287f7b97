"""Ops along a conversation: the same bits alone, in a batch, cut anywhere, drawn or read."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, features
from golem_core.graph.builder import Builder
from golem_core.graph.program import Program

SETS = features()["available"]


def depthwise() -> Program:
    p, rng = Builder("depthwise"), np.random.default_rng(1)
    x = p.input("x", (p.axis("n", 256), 100))
    y = p.conv1d(x, rng.standard_normal((100, 1, 4)), window="past", groups=100)
    p.output("y", p.unary(y, "silu"))
    return p.build()


def mixing() -> Program:
    """Two rows a column, one left of each pair, the first of them repeated before the start."""
    p, rng = Builder("mixing"), np.random.default_rng(2)
    x = p.input("x", (p.axis("n", 256) * 2, 20))
    kernel, bias = rng.standard_normal((70, 20, 7)), rng.standard_normal(70)
    p.output("y", p.conv1d(x, kernel, bias, window="past", stride=2, start="first"))
    return p.build()


def delta() -> Program:
    p = Builder("delta")
    n = p.axis("n", 256)
    q, k = (p.mul(p.rms_norm(p.input(s, (n, 2, 128)), None, 1e-6), 128**-0.5) for s in "qk")
    v, decay, beta = p.input("v", (n, 6, 70)), p.input("decay", (n, 6)), p.input("beta", (n, 6))
    decay = p.mul(p.unary(decay, "softplus"), -1.0)
    made = p.delta_rule(q, k, v, decay, p.unary(beta, "sigmoid"), "matrix", scale=128**-0.5)
    p.output("y", made)
    return p.build()


PROGRAMS = {"depthwise": depthwise, "mixing": mixing, "delta": delta}
KINDS = pytest.mark.parametrize("kind", PROGRAMS)


class Fed:
    """A program whose slots are fed pieces of sequences of their own."""

    def __init__(self, program: Program, **options):
        self.executor = CpuExecutor(program, slots=3, context=512, **options)
        self.inputs = {
            name: value for name, value in program.inputs.items() if name not in ("runs", "index")
        }
        self.made: dict[int, list[np.ndarray]] = {}

    def feed(self, *runs: tuple[int, int, int, int]) -> None:
        """(slot, count, first index, role) of every run of one pass."""
        rows, first = [], 0
        arrays: dict[str, list[np.ndarray]] = {name: [] for name in self.inputs}
        for slot, count, index, role in runs:
            rows.append((slot, first, count, index, role))
            first += count
            for number, (name, value) in enumerate(self.inputs.items()):
                rate = value.rows.terms[0][1]
                rng = np.random.default_rng((slot, number))
                whole = rng.standard_normal((512 * rate, *value.inner))
                arrays[name].append(whole[index * rate : (index + count) * rate])
        joined = {name: np.concatenate(parts) for name, parts in arrays.items()}
        runs_array = np.array(rows, np.int32)
        y = self.executor.run({"runs": runs_array, **joined}, ("y",))["y"]
        for slot, at, count, _, _ in rows:
            self.made.setdefault(slot, []).append(y[at : at + count].copy())

    def of(self, slot: int) -> np.ndarray:
        return np.concatenate(self.made[slot])


@KINDS
@pytest.mark.parametrize("isa", SETS)
def test_columns_have_the_same_bits_alone_and_in_a_batch(kind, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    batch = Fed(PROGRAMS[kind](), threads=2)
    batch.feed((2, 30, 0, 1), (0, 7, 0, 1))
    batch.feed((0, 1, 7, 0), (2, 1, 30, 0), (1, 90, 0, 1))
    batch.feed((0, 1, 8, 0), (1, 100, 90, 1))
    for slot, pieces in {0: (7, 1, 1), 1: (90, 100), 2: (30, 1)}.items():
        alone, at = Fed(PROGRAMS[kind](), threads=2), 0
        for count in pieces:
            alone.feed((slot, count, at, 0 if count == 1 else 1))
            at += count
        np.testing.assert_array_equal(alone.of(slot), batch.of(slot))


@KINDS
def test_any_number_of_threads_gives_the_same_bits(kind):
    made = []
    for threads in (1, 2, 7):
        fed = Fed(PROGRAMS[kind](), threads=threads)
        fed.feed((1, 1, 0, 1), (0, 150, 0, 1))
        fed.feed((0, 1, 150, 0))
        made.append(fed.of(0))
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


@KINDS
def test_prompts_have_the_same_bits_however_they_are_cut(kind):
    whole = Fed(PROGRAMS[kind]())
    whole.feed((0, 200, 0, 1))
    for pieces in ((1, 199), (64, 136), (3,) * 66 + (2,)):
        cut, at = Fed(PROGRAMS[kind]()), 0
        for count in pieces:
            cut.feed((0, count, at, 1))
            at += count
        np.testing.assert_array_equal(whole.of(0), cut.of(0))


@KINDS
@pytest.mark.parametrize("isa", SETS)
def test_columns_have_the_same_bits_drawn_and_read(kind, isa, monkeypatch):
    monkeypatch.setenv("GOLEM_CPU", isa)
    read, drawn = Fed(PROGRAMS[kind]()), Fed(PROGRAMS[kind]())
    read.feed((0, 40, 0, 1))
    for at in range(40):
        drawn.feed((0, 1, at, 0))
    np.testing.assert_array_equal(read.of(0), drawn.of(0))


@KINDS
def test_unfused_plans_give_the_same_bits(kind, monkeypatch):
    fused = Fed(PROGRAMS[kind]())
    monkeypatch.setenv("GOLEM_PLAN", "plain")
    plain = Fed(PROGRAMS[kind]())
    for fed in (fused, plain):
        fed.feed((0, 70, 0, 1))
        fed.feed((0, 1, 70, 0))
    np.testing.assert_array_equal(fused.of(0), plain.of(0))


@KINDS
def test_a_conversation_goes_on_where_it_was_copied_from_another_slot(kind):
    """What take_recurrent gives is all that these ops remember."""
    fed = Fed(PROGRAMS[kind]())
    fed.feed((0, 40, 0, 1))
    taken = fed.executor.states.take_recurrent(0)
    fed.feed((0, 20, 40, 1))
    fed.executor.states.put_recurrent(0, taken)
    fed.feed((0, 20, 40, 1))
    np.testing.assert_array_equal(fed.made[0][1], fed.made[0][2])
