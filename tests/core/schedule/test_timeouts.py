"""Answers that wait or run for too long: they end by name, and cost nobody anything."""

import pytest

from golem_core.schedule import Engine, QueueTimeout, RequestTimeout
from tests.core.schedule.fakes import WAIT, FakeClock, FakeModel, Gate, ask


@pytest.fixture
def clock():
    return FakeClock()


def endless(**fields):
    model = FakeModel(**fields)
    model.executor.script = lambda history: ord("z")
    return model


def test_who_waits_too_long_leaves_the_queue_without_having_touched_a_slot(clock):
    model = endless()
    gate = Gate(model.executor)
    with Engine(model, queue_timeout=5, clock=clock) as engine:
        runs = engine.submit(ask("one", max_tokens=9))
        gate.wait_for_pass()
        early = engine.submit(ask("two"))
        clock.now += 4
        late = engine.submit(ask("three", max_tokens=1))
        gate.let_one_go()
        gate.wait_for_pass()
        assert early.result is None
        clock.now += 1
        gate.let_one_go()
        with pytest.raises(QueueTimeout, match=r"within 5 s.*-queue-timeout") as refused:
            early.wait(WAIT)
        assert refused.value.seconds == 5
        assert (early.result.slot, early.result.finish_reason) == (-1, "error")
        assert early.result.queue_ms == 5000
        gate.wait_for_pass()
        assert engine.stats.waiting == 1 and engine.stats.timed_out == 1
        gate.open()
        assert runs.wait(WAIT).drawn_tokens == 9  # it runs for longer than anyone may wait
        assert late.wait(WAIT).drawn_tokens == 1
    assert bytes(t for seen in model.executor.seen for t in seen.tokens) == b"onezzzzzzzzthree"


def test_an_answer_that_runs_too_long_ends_within_a_pass_and_keeps_its_cache(clock):
    model = endless()
    gate = Gate(model.executor)
    with Engine(model, request_timeout=10, clock=clock) as engine:
        job = engine.submit(ask("long", max_tokens=-1))
        for _ in range(3):
            gate.step()
        gate.wait_for_pass()
        clock.now += 10
        passes = len(model.executor.seen)
        gate.let_one_go()
        with pytest.raises(RequestTimeout, match=r"within 10 s.*-request-timeout"):
            while job.steps(WAIT):
                pass
        assert len(model.executor.seen) == passes
        assert job.result.text == "zzzz" and job.result.finish_reason == "error"
        gate.open()
        turn = engine.submit(ask("longzzz!", max_tokens=1)).wait(WAIT)
        assert turn.cached_tokens == len("longzzz")


@pytest.mark.parametrize("most", [0, 10])
def test_what_comes_before_a_request_is_bounded_alike(most, clock):
    engine = Engine(endless(), request_timeout=most, clock=clock)
    look = engine.timer()
    clock.now += 9.5
    look()
    clock.now += 0.5
    if most:
        with pytest.raises(RequestTimeout, match="within 10 s"):
            look()
    else:
        look()
    assert engine.stats.timed_out == (most > 0)


def test_waiting_counts_as_part_of_a_request(clock):
    model = endless()
    gate = Gate(model.executor)
    with Engine(model, request_timeout=10, clock=clock) as engine:
        runs = engine.submit(ask("one", max_tokens=2))
        gate.wait_for_pass()
        waits = engine.submit(ask("two"))
        clock.now += 10
        gate.let_one_go()
        for job, slot in ((runs, 0), (waits, -1)):
            with pytest.raises(RequestTimeout):
                job.wait(WAIT)
            assert job.result.slot == slot
        assert engine.busy == 0
