"""One reading for several answers: siblings of one prompt, and prompts with one beginning."""

import pytest

from golem_core.sample import SamplerParams
from golem_core.schedule import ContextExceeded, Engine, PassFailed, QueueFull
from tests.core.schedule.fakes import WAIT, FakeModel, Gate, ask, together

PROMPT = "a prompt that several answers are drawn for, " * 3


def seeded(seed):
    return SamplerParams(seed=seed, temperature=1.5)


def siblings(engine, count, **fields):
    """Answers to one prompt with seeds 1, 2 …, all waiting before the first pass."""
    gate = Gate(engine.model.executor)
    requests = [ask(PROMPT, params=seeded(1 + i), max_tokens=20, **fields) for i in range(count)]
    jobs = together(engine, gate, requests)
    gate.open()
    return [job.wait(WAIT) for job in jobs]


def fed(model):
    """Prompt tokens that were fed, without the one of ``together``'s own request."""
    return sum(run[2] for seen in model.executor.seen for run in seen.runs if run[4]) - 1


@pytest.mark.parametrize("options", [{}, {"window": 16}, {"recurrent": True}])
@pytest.mark.parametrize("cache_prompt", [True, False])
def test_one_prompt_is_read_once_for_several_answers(options, cache_prompt):
    model = FakeModel(slots=4, context=512, **options)
    with Engine(model) as engine:
        results = siblings(engine, 4, cache_prompt=cache_prompt)
        assert fed(model) == len(PROMPT)
    assert [r.fed_tokens for r in results] == [len(PROMPT), 0, 0, 0]
    assert [r.prompt_tokens for r in results] == [len(PROMPT)] * 4
    with Engine(FakeModel(slots=1, context=512, **options)) as alone:
        cold = [
            alone.submit(ask(PROMPT, params=seeded(1 + i), max_tokens=20)).wait(WAIT).tokens
            for i in range(4)
        ]
    assert [r.tokens for r in results] == cold
    assert len({r.tokens for r in results}) == 4


def test_more_answers_than_slots_wait_and_reuse_all_the_same():
    model = FakeModel(slots=2, context=512)
    with Engine(model) as engine:
        results = siblings(engine, 5)
        assert fed(model) == sum(r.fed_tokens for r in results)
    *others, reader = sorted(r.fed_tokens for r in results)
    assert reader == len(PROMPT)
    assert max(others) == 1  # those that waited feed the last token again, or share who does


@pytest.mark.parametrize("recurrent", [False, True])
def test_prompts_with_one_beginning_wait_for_whoever_reads_it(recurrent):
    model = FakeModel(slots=3, context=1024, pass_width=32, recurrent=recurrent)
    sheet = "what everybody begins with. " * 12
    ends = ["first", "second one", "the third"]
    requests = [ask(sheet + end, params=seeded(3), max_tokens=9) for end in ends]
    with Engine(model) as engine:
        gate = Gate(model.executor)
        jobs = together(engine, gate, requests)
        gate.open()
        results = [job.wait(WAIT) for job in jobs]
        assert fed(model) == len(sheet) + sum(map(len, ends))
        cold = [engine.submit(r).wait(WAIT) for r in requests]
    assert [r.tokens for r in results] == [r.tokens for r in cold]


def test_when_the_reader_is_cancelled_another_reads_on():
    model = FakeModel(slots=3, context=1024, pass_width=32)
    requests = [ask(PROMPT, params=seeded(i), max_tokens=5) for i in range(3)]
    with Engine(model) as engine:
        gate = Gate(model.executor)
        jobs = together(engine, gate, requests)
        gate.let_one_go()
        gate.wait_for_pass()
        jobs[0].cancel()
        gate.open()
        results = [job.wait(WAIT) for job in jobs]
        assert [r.finish_reason for r in results] == ["cancelled", "length", "length"]
        assert sum(r.fed_tokens for r in results[1:]) < len(PROMPT)
        cold = [engine.submit(r).wait(WAIT) for r in requests[1:]]
    assert [r.tokens for r in results[1:]] == [r.tokens for r in cold]


def test_when_the_reader_fails_the_others_read_for_themselves():
    model = FakeModel(slots=3, context=1024, pass_width=32)
    requests = [ask(PROMPT, params=seeded(i), max_tokens=5) for i in range(3)]
    with Engine(model) as engine:
        gate = Gate(model.executor)
        jobs = together(engine, gate, requests)
        hold = model.executor.before

        def broken(seen):
            model.executor.before = hold
            raise RuntimeError("this pass breaks")

        model.executor.before = broken
        gate.let_one_go()  # the pass that stands at the gate; the next one breaks
        gate.open()
        with pytest.raises(PassFailed, match="this pass breaks"):
            jobs[0].wait(WAIT)
        results = [job.wait(WAIT) for job in jobs[1:]]
        assert [r.fed_tokens for r in results] == [len(PROMPT), 0]
        cold = [engine.submit(r).wait(WAIT) for r in requests[1:]]
    assert [r.tokens for r in results] == [r.tokens for r in cold]


def test_a_reader_that_draws_no_more_than_one_token_leaves_the_prompt_to_its_siblings():
    model = FakeModel(slots=2, context=512)
    with Engine(model) as engine:
        gate = Gate(model.executor)
        jobs = together(engine, gate, [ask(PROMPT, max_tokens=1), ask(PROMPT, max_tokens=9)])
        gate.open()
        first, second = (job.wait(WAIT) for job in jobs)
        assert fed(model) == len(PROMPT)
    assert second.tokens[0] == first.tokens[0] and second.drawn_tokens == 9


def test_requests_submitted_together_are_queued_all_or_none():
    model = FakeModel(slots=2, context=512)
    gate = Gate(model.executor)
    with Engine(model, queue=1) as engine:
        with pytest.raises(QueueFull):
            engine.submit_all([ask(PROMPT)] * 4)
        with pytest.raises(ContextExceeded):
            engine.submit_all([ask(PROMPT), ask("x" * 600)])
        assert (engine.busy, engine.stats.submitted, engine.stats.refused) == (0, 0, 4)
        jobs = engine.submit_all([ask(PROMPT, params=seeded(i), max_tokens=3) for i in range(3)])
        gate.open()
        fed = [job.wait(WAIT).fed_tokens for job in jobs]
    assert fed == [len(PROMPT), 0, 1]
    assert [job.number for job in jobs] == [1, 2, 3]
