"""What is taken down of answers, and what a step and a job tell while one is drawn."""

from pathlib import Path

import pytest

from golem_core.sample import SamplerParams
from golem_core.schedule import Energy, Engine, Records
from golem_core.schedule.records import KEPT
from tests.core.schedule.fakes import EOG, GREEDY, WAIT, FakeClock, FakeModel, Gate, ask
from tests.core.schedule.test_energy import zone


def test_an_answer_leaves_its_numbers_and_none_of_its_text():
    model = FakeModel()
    model.answers({"abc": "secret"})
    records = Records(clock=lambda: 12.5)
    with Engine(model, records=records) as engine:
        result = engine.submit(ask("abc")).wait(WAIT)
        engine.submit(ask("abcd", max_tokens=2)).wait(WAIT)
    first, second = records.last
    assert (first.at, first.model, first.finish) == (12.5, "fake", "stop")
    assert (first.prompt_tokens, first.cached_tokens, first.completion_tokens) == (3, 0, 7)
    assert (second.cached_tokens, second.completion_tokens, second.finish) == (3, 2, "length")
    assert (first.ttft_ms, first.eval_ms) == (result.first_ms, result.draw_ms)
    assert records.totals[:3] == (2, 7, 9)
    assert "secret" not in repr(records.last)


def test_a_record_is_there_before_the_answer_is():
    """Whoever has read an answer finds its record."""
    with Engine(FakeModel()) as engine:
        for count in range(1, 20):
            engine.submit(ask("a", max_tokens=1)).wait(WAIT)
            assert len(engine.records.last) == count


def test_unmeasured_values_are_none_and_cancelled_answers_count():
    model = FakeModel()
    gate = Gate(model.executor)
    with Engine(model, energy=Energy(Path("/nowhere"))) as engine:
        job = engine.submit(ask("ab"))
        gate.wait_for_pass()
        job.cancel()
        gate.open()
        job.wait(WAIT)
        (record,) = engine.records.last
    assert record.finish == "cancelled"
    assert record.energy_j is record.joules_per_token is record.eval_per_second is None
    assert record.ttft_ms is None


def test_only_the_latest_are_kept_and_all_are_summed():
    model = FakeModel()
    model.executor.script = lambda history: EOG
    with Engine(model) as engine:
        for _ in range(KEPT + 3):
            engine.submit(ask("ab")).wait(WAIT)
        assert len(engine.records.last) == KEPT
        assert engine.records.totals.answers == KEPT + 3


def test_energy_is_what_the_machine_used_from_slot_to_end(tmp_path):
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    model = FakeModel()
    model.executor.before = lambda seen: counter.write_text("4000000")
    model.executor.script = lambda history: EOG
    with Engine(model, energy=Energy(tmp_path)) as engine:
        result = engine.submit(ask("ab")).wait(WAIT)
    assert result.energy_j == 3.0
    assert result.timings()["energy_j"] == 3.0
    assert engine.records.last[0].joules_per_token == 3.0
    assert engine.records.totals.energy_j == 3.0


def test_steps_tell_when_they_were_drawn():
    clock = FakeClock()
    model = FakeModel()
    model.executor.before = lambda seen: setattr(clock, "now", clock.now + 2)
    with Engine(model, clock=clock) as engine:
        job = engine.submit(ask("ab", max_tokens=3))
        assert [step.ms for step in job] == [0, 2000, 4000]
        assert job.progress.ms == job.result.prompt_ms == 2000


def test_reports_follow_the_prompt_pass_by_pass():
    model = FakeModel(pass_width=32)
    with Engine(model) as engine:
        engine.submit(ask("x" * 10, max_tokens=1)).wait(WAIT)
        job = engine.submit(ask("x" * 80, max_tokens=2, reports=True))
        assert len(list(job)) == 2
        quiet = engine.submit(ask("y", max_tokens=1))
        quiet.wait(WAIT)
    assert [(r.total, r.cached, r.processed) for r in job.reports] == [
        (80, 10, 10),
        (80, 10, 42),
        (80, 10, 74),
        (80, 10, 80),
    ]
    assert quiet.reports == []


def test_lines_end_an_answer_with_length():
    model = FakeModel()
    model.answers({"a": "f:\n  x\ny"})
    with Engine(model) as engine:
        result = engine.submit(ask("a", indent=1)).wait(WAIT)
        free = engine.submit(ask("a")).wait(WAIT)
    assert (result.text, result.finish_reason, result.has_new_line) == ("f:\n  x\n", "length", True)
    assert (free.text, free.finish_reason) == ("f:\n  x\ny", "stop")


@pytest.mark.parametrize("written, redrawn", [('root ::= "q"', 1), ("root ::= .*", 0)])
def test_a_grammar_that_refuses_is_counted(written, redrawn):
    model = FakeModel()
    model.executor.script = lambda history: ord("z") if len(history) == 1 else EOG
    params = SamplerParams(temperature=0, grammar=written)
    with Engine(model) as engine:
        result = engine.submit(ask("a", params=params)).wait(WAIT)
        assert result.resampled == redrawn
        assert result.grammar_ms > 0
        assert engine.submit(ask("a", params=GREEDY)).wait(WAIT).grammar_ms == 0
