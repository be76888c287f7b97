"""Cancelling in every state: no second pass with the slot's columns, nobody else disturbed."""

import random
import threading

import pytest

from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, EngineClosed, State
from tests.core.schedule.fakes import WAIT, FakeModel, Gate, ask, together


def endless(**fields):
    model = FakeModel(**fields)
    model.executor.script = lambda history: ord("z")
    return model


def test_a_queued_request_that_is_cancelled_never_reaches_a_slot():
    model = endless()
    gate = Gate(model.executor)
    with Engine(model) as engine:
        running = engine.submit(ask("a", max_tokens=3))
        gate.wait_for_pass()
        queued = engine.submit(ask("b"))
        queued.cancel()
        result = queued.wait(timeout=0)  # at once, while the pass still runs
        assert (result.finish_reason, result.slot, result.drawn_tokens) == ("cancelled", -1, 0)
        assert queued.steps() == []
        gate.open()
        running.wait(WAIT)
    assert all(b"b"[0] not in seen.tokens for seen in model.executor.seen)


def test_a_prompt_that_is_cancelled_while_read_is_in_no_second_pass():
    model = endless(context=1024, pass_width=16, slots=2)
    gate = Gate(model.executor)
    with Engine(model) as engine:
        job = engine.submit(ask("x" * 200))
        gate.wait_for_pass()
        job.cancel()
        gate.open()
        result = job.wait(WAIT)
        assert (result.finish_reason, result.fed_tokens, result.slot_tokens) == (
            "cancelled",
            16,
            16,
        )
        # What was computed stays for the next prompt.
        assert engine.submit(ask("x" * 100, max_tokens=1)).wait(WAIT).cached_tokens == 16
    assert [seen.runs[0][3] for seen in model.executor.seen[:2]] == [0, 16]
    assert len(model.executor.seen) == 1 + -(-(100 - 16) // 16)


def test_an_answer_that_is_cancelled_while_drawn_is_in_no_second_pass():
    model = endless(context=1024)
    gate = Gate(model.executor)
    with Engine(model) as engine:
        job = engine.submit(ask("a", max_tokens=-1))
        for _ in range(3):
            gate.step()
        gate.wait_for_pass()
        job.cancel()
        gate.open()
        result = job.wait(WAIT)
        assert result.finish_reason == "cancelled"
        assert result.drawn_tokens == 3  # what the last pass drew is nobody's
        assert len(model.executor.seen) == 4
        assert engine.busy == 0
        assert not engine.slots[0].is_processing


def test_cancelling_one_of_a_batch_leaves_the_others_as_they_were():
    def texts(cancel):
        model = FakeModel(slots=3, context=1024)
        gate = Gate(model.executor)
        with Engine(model) as engine:
            params = SamplerParams(seed=3, temperature=2)
            asked = [ask(t, params=params, max_tokens=30) for t in ("a", "b", "c")]
            jobs = together(engine, gate, asked)
            gate.step()
            gate.wait_for_pass()
            if cancel:
                jobs[1].cancel()
            gate.open()
            return [job.wait(WAIT).text for job in jobs]

    whole, cut = texts(False), texts(True)
    assert cut[0] == whole[0] and cut[2] == whole[2]
    assert len(cut[1]) < len(whole[1]) and whole[1].startswith(cut[1])


def test_cancelling_twice_or_after_the_end_is_harmless():
    model = FakeModel()
    with Engine(model) as engine:
        job = engine.submit(ask("a", max_tokens=2))
        result = job.wait(WAIT)
        job.cancel()
        job.cancel()
        assert job.result is result and result.finish_reason == "length"


def test_steps_already_drawn_are_still_read_after_a_cancel():
    model = endless()
    gate = Gate(model.executor)
    with Engine(model) as engine:
        job = engine.submit(ask("a"))
        gate.step()
        gate.wait_for_pass()
        job.cancel()
        gate.open()
        job.wait(WAIT)
        assert [s.text for s in job] == ["z"]


def test_closing_fails_whoever_runs_or_waits_and_ends_after_the_pass():
    model = endless()
    gate = Gate(model.executor)
    engine = Engine(model)
    engine.start()
    jobs = [engine.submit(ask(t)) for t in "ab"]
    gate.wait_for_pass()
    closing = threading.Thread(target=engine.close)
    closing.start()
    gate.open()
    closing.join(WAIT)
    assert not closing.is_alive()
    for job in jobs:
        with pytest.raises(EngineClosed):
            job.wait(WAIT)
        with pytest.raises(EngineClosed):
            while job.steps(timeout=WAIT):
                pass
        assert job.result.finish_reason == "error"
    assert len(model.executor.seen) == 1


def test_200_clients_with_random_hang_ups_leave_nothing_behind():
    model = FakeModel(slots=4, context=512, pass_width=32)
    params = SamplerParams(seed=11, temperature=2.0)
    prompts = [f"client {i % 17} says " + "hello " * (i % 29) for i in range(200)]
    whole = {}
    with Engine(model) as engine:
        for prompt in set(prompts):
            job = engine.submit(ask(prompt, params=params, max_tokens=12))
            whole[prompt] = job.wait(WAIT).text
    model.executor.owner = None
    model.executor.seen.clear()

    before = threading.active_count()
    checks = []
    with Engine(model, queue=200) as engine:
        cancelled_at = {}
        lock = threading.Lock()

        def client(number):
            rng = random.Random(number)
            job = engine.submit(ask(prompts[number], params=params, max_tokens=12))
            leave = rng.choice([None, None, 0, 1, 3, 7])
            count = 0
            while leave is None or count < leave:
                steps = job.steps(timeout=WAIT)
                if not steps:
                    break
                count += len(steps)
            if leave is not None:
                with lock:
                    job.cancel()
                    cancelled_at[number] = len(model.executor.seen)
            checks.append((number, leave, job, job.wait(WAIT)))

        threads = [threading.Thread(target=client, args=(i,)) for i in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(checks) == 200
        assert engine.busy == 0
        assert not any(slot.is_processing for slot in engine.slots)
        stats = engine.stats
        assert stats.finished + stats.cancelled == 200
        assert stats.failed == stats.waiting == stats.running == 0
    assert threading.active_count() == before
    for number, leave, job, result in checks:
        assert job.state is State.DONE
        if leave is None:
            assert result.text == whole[prompts[number]]  # every finished answer is complete
        elif result.finish_reason == "cancelled":
            assert whole[prompts[number]].startswith(result.text)
