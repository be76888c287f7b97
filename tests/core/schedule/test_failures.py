"""A pass that fails takes its own requests with it and clears their slots; the runner serves on."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from golem_core.sample import NonFiniteLogits
from golem_core.schedule import (
    ContextExceeded,
    Engine,
    ModelChanged,
    PassFailed,
    QueueFull,
    QueueTimeout,
    RequestTimeout,
)
from golem_core.schedule.runner import FILE_CHECK
from tests.core.schedule.fakes import WAIT, FakeClock, FakeModel, Gate, ask, together


def explode(seen, logits):
    raise RuntimeError("the kernel tripped")


def poison(seen, logits):
    logits[-1, 7] = np.nan
    return logits


@pytest.mark.parametrize(
    ("fault", "cause", "text"),
    [(explode, RuntimeError, "the kernel tripped"), (poison, NonFiniteLogits, "NaN or infinity")],
)
def test_a_failed_pass_fails_its_requests_and_no_others(fault, cause, text):
    model = FakeModel(slots=2)
    model.executor.script = lambda history: ord("z")
    gate = Gate(model.executor)
    with Engine(model) as engine:
        jobs = together(engine, gate, [ask(t, max_tokens=20) for t in ("one", "two")])
        gate.step()
        gate.wait_for_pass()
        waiting = engine.submit(ask("three", max_tokens=2))
        model.executor.after = fault
        gate.let_one_go()
        for job in jobs:
            with pytest.raises(PassFailed, match=text) as error:
                job.wait(WAIT)
            assert isinstance(error.value.__cause__, cause)
            assert job.result.finish_reason == "error"
            assert job.result.drawn_tokens == 1
            assert [s.text for s in job.steps()] == ["z"]  # drawn before the failure
            with pytest.raises(PassFailed):
                job.steps()
        assert jobs[0].error is not jobs[1].error
        gate.wait_for_pass()
        model.executor.after = lambda seen, logits: logits
        gate.open()
        assert waiting.wait(WAIT).text == "zz"
        # Their slots were cleared: the same prompt is fed whole.
        assert engine.submit(ask("one", max_tokens=1)).wait(WAIT).cached_tokens == 0
        assert engine.stats.failed == 2


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_every_kind_of_unsound_logit_is_found(value):
    model = FakeModel()
    model.executor.after = lambda seen, logits: logits * np.float32(value)
    with Engine(model) as engine, pytest.raises(PassFailed, match="NonFiniteLogits"):
        engine.submit(ask("a")).wait(WAIT)


def test_a_token_that_has_no_text_fails_its_own_request_only():
    model = FakeModel(slots=2)
    model.executor.script = lambda history: ord("z")
    tokenizer = model.tokenizer
    whole = tokenizer.stream
    gate = Gate(model.executor)
    with Engine(model) as engine:
        broken = tokenizer.stream()
        broken.push = lambda token: 1 / 0
        tokenizer.stream = lambda shown: broken
        bad = engine.submit(ask("bad"))
        tokenizer.stream = whole
        good = engine.submit(ask("good", max_tokens=3))
        gate.open()
        with pytest.raises(PassFailed, match="could not be turned into text"):
            bad.wait(WAIT)
        assert good.wait(WAIT).text == "zzz"


def test_a_model_file_that_changes_fails_the_requests_by_name():
    clock = FakeClock()
    model = FakeModel()
    gate = Gate(model.executor)
    with Engine(model, clock=clock) as engine:
        running = engine.submit(ask("a", max_tokens=20))
        gate.wait_for_pass()
        model.file.is_changed = True
        clock.now += 2 * FILE_CHECK
        gate.open()
        for job in (running, engine.submit(ask("b"))):
            with pytest.raises(ModelChanged) as error:
                job.wait(WAIT)
            assert str(error.value) == str(ModelChanged(model.path))
    assert str(error.value).startswith("/models/fake.gguf changed on disk")
    assert str(error.value).count("changed on disk") == 1
    assert len(model.executor.seen) == 1


@pytest.mark.parametrize(
    "error",
    [
        ModelChanged(Path("/m.gguf")),
        QueueFull(7),
        QueueTimeout(1.5),
        RequestTimeout(2.5),
        ContextExceeded(9, 8, counted=False),
    ],
)
def test_a_copied_error_says_and_knows_the_same(error):
    for own in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(own) is type(error) and own is not error
        assert (str(own), vars(own)) == (str(error), vars(error))


def test_a_pass_that_read_what_the_file_no_longer_has_fails():
    clock = FakeClock()  # stands still: the file itself is not looked at again
    model = FakeModel()
    model.executor.script = lambda history: ord("z")
    gate = Gate(model.executor)
    with Engine(model, clock=clock) as engine:
        running = engine.submit(ask("a", max_tokens=20))
        gate.step()
        gate.wait_for_pass()
        model.file.lost = True
        gate.open()
        with pytest.raises(ModelChanged, match="changed on disk"):
            running.wait(WAIT)
        assert running.result.drawn_tokens == 1


def test_the_file_is_looked_at_ten_times_a_second_at_most():
    clock = FakeClock()
    model = FakeModel()
    model.executor.before = lambda seen: setattr(clock, "now", clock.now + 0.01)
    model.executor.script = lambda history: ord("z")
    with Engine(model, clock=clock) as engine:
        engine.submit(ask("a", max_tokens=101)).wait(WAIT)
    assert 9 <= model.file.looks <= 11


def test_a_fault_of_the_runner_itself_fails_the_requests_and_it_serves_on(monkeypatch):
    model = FakeModel()
    with Engine(model) as engine:
        with monkeypatch.context() as patch:
            patch.setattr("golem_core.schedule.runner.form", lambda *_: 1 / 0)
            with pytest.raises(PassFailed, match="the runner failed"):
                engine.submit(ask("a")).wait(WAIT)
        assert engine.submit(ask("a", max_tokens=1)).wait(WAIT).drawn_tokens == 1
