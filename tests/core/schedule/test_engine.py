"""The engine on a model without weights: what is fed, what is drawn, how answers end."""

import os
import threading

import pytest

from golem_core.sample import ParamError, SamplerParams
from golem_core.schedule import ContextExceeded, Engine, EngineClosed, QueueFull, Request, State
from tests.core.schedule.fakes import EOG, WAIT, FakeClock, FakeModel, Gate, ask


def answer(engine, text, **fields):
    return engine.submit(ask(text, **fields)).wait(WAIT)


def test_an_answer_ends_with_the_end_token_which_counts_and_is_never_fed():
    model = FakeModel()
    model.answers({"hi": "Paris"})
    with Engine(model) as engine:
        result = answer(engine, "hi")
    assert result.text == "Paris"
    assert result.tokens == (*b"Paris", EOG)
    assert (result.finish_reason, result.stop_type) == ("stop", "eos")
    assert (result.prompt_tokens, result.cached_tokens, result.fed_tokens) == (2, 0, 2)
    assert result.drawn_tokens == 6
    assert result.slot_tokens == len("hiParis")
    fed = [t for seen in model.executor.seen for t in seen.tokens]
    assert bytes(fed) == b"hiParis"


def test_only_the_column_that_ends_a_prompt_or_draws_is_scored():
    model = FakeModel(pass_width=4)
    model.answers({"abcdefghij": "x"})
    with Engine(model) as engine:
        answer(engine, "abcdefghij")
    assert [(seen.runs[0][2:], seen.outputs) for seen in model.executor.seen] == [
        ((4, 0, 1), []),
        ((4, 4, 1), []),
        ((2, 8, 1), [1]),
        ((1, 10, 0), [0]),
    ]


def test_prompts_of_several_passes_are_cut_at_multiples_of_the_quantum():
    model = FakeModel(pass_width=20, quantum=8)
    with Engine(model) as engine:
        answer(engine, "x" * 50, max_tokens=1)
        answer(engine, "x" * 45 + "y" * 30, max_tokens=1)
    cuts = [run[3] + run[2] for seen in model.executor.seen for run in seen.runs]
    assert cuts == [16, 32, 50, 64, 75]


@pytest.mark.parametrize(("limit", "drawn"), [(1, 1), (3, 3), (0, 1), (None, 5)])
def test_max_tokens_ends_with_length(limit, drawn):
    model = FakeModel()
    model.executor.script = lambda history: ord("z")
    with Engine(model, default_length=5) as engine:
        result = answer(engine, "hi", max_tokens=limit)
    assert (result.text, result.finish_reason, result.stop_type) == ("z" * drawn, "length", "limit")
    assert not result.truncated


def test_a_length_of_minus_one_fills_the_slot_and_ends_with_length():
    model = FakeModel(context=256)
    model.executor.script = lambda history: ord("z")
    with Engine(model) as engine:
        result = answer(engine, "x" * 250, max_tokens=-1)
    assert (result.drawn_tokens, result.slot_tokens) == (6, 255)  # as llama-server counts
    assert (result.finish_reason, result.truncated) == ("length", True)


def test_an_end_token_counts_as_one_even_where_the_length_ends_too():
    model = FakeModel()
    model.answers({"hi": "ab"})
    with Engine(model) as engine:
        result = answer(engine, "hi", max_tokens=3)
    assert (result.stop_type, result.finish_reason) == ("eos", "stop")


def test_a_stop_text_ends_the_answer_wherever_tokens_part_it():
    model = FakeModel()
    model.answers({"hi": "one STOP two"})
    with Engine(model) as engine:
        job = engine.submit(ask("hi", stop=["STOP", "never"]))
        steps = list(job)
    assert "".join(s.text for s in steps) == job.result.text == "one "
    assert (job.result.stop_type, job.result.stopping_word) == ("word", "STOP")
    assert job.result.finish_reason == "stop"
    assert job.result.drawn_tokens == len("one STOP")


def test_text_that_might_become_a_stop_text_is_held_and_let_go():
    model = FakeModel()
    model.answers({"hi": "STOqSTO"})
    with Engine(model) as engine:
        job = engine.submit(ask("hi", stop=["STOP"]))
        texts = [s.text for s in job]
    assert texts == ["", "", "", "STOq", "", "", "", "STO"]


def test_half_a_character_is_held_until_it_is_whole():
    model = FakeModel()
    model.answers({"hi": "né"})
    with Engine(model) as engine:
        steps = list(engine.submit(ask("hi")))
    assert [(s.text, s.whole) for s in steps] == [
        ("n", True),
        ("", False),
        ("é", True),
        ("", True),
    ]


def test_drawing_conversations_and_a_new_prompt_share_a_pass():
    model = FakeModel(slots=3)
    gate = Gate(model.executor)
    with Engine(model) as engine:
        jobs = [engine.submit(ask("first", max_tokens=6))]
        gate.wait_for_pass()
        jobs += [engine.submit(ask(text, max_tokens=3)) for text in ("second", "third")]
        gate.open()
        for job in jobs:
            job.wait(WAIT)
    mixed = model.executor.seen[1]
    assert [(run[0], run[2], run[4]) for run in mixed.runs] == [(0, 1, 0), (2, 5, 1), (1, 6, 1)]
    assert mixed.outputs == [0, 5, 11]
    assert engine.stats.passes == len(model.executor.seen) == 6


def test_the_same_seed_gives_the_same_text_whatever_else_is_in_the_batch():
    def texts(parallel, company):
        model = FakeModel(slots=parallel)
        with Engine(model) as engine:
            params = SamplerParams(seed=7, temperature=2.0)
            others = [
                engine.submit(
                    ask(f"{i} other", params=SamplerParams(temperature=3.0), max_tokens=30)
                )
                for i in range(company)
            ]
            mine = engine.submit(ask("mine", params=params, max_tokens=40))
            result = mine.wait(WAIT)
            for other in others:
                other.wait(WAIT)
        assert result.seed == 7
        return result.text

    alone = texts(1, 0)
    assert len(alone) > 5
    assert texts(4, 3) == alone
    assert texts(2, 5) == alone


def test_an_open_seed_is_drawn_for_each_request_and_reported():
    model = FakeModel()
    with Engine(model) as engine:
        params = SamplerParams(temperature=2.0)
        first, second = (answer(engine, "a", params=params, max_tokens=30) for _ in "12")
        again = answer(
            engine,
            "a",
            params=SamplerParams(temperature=2.0, seed=first.seed),
            max_tokens=30,
        )
    assert first.seed != second.seed
    assert again.text == first.text != second.text


def test_steps_join_to_the_text_and_carry_what_was_asked():
    model = FakeModel()
    with Engine(model) as engine:
        job = engine.submit(ask("count", max_tokens=20, n_probs=3))
        steps = list(job)
    assert "".join(s.text for s in steps) == job.result.text
    assert [s.token for s in steps] == list(job.result.tokens)
    assert [s.count for s in steps] == list(range(1, len(steps) + 1))
    assert [s.end for s in steps] == [False] * (len(steps) - 1) + [True]
    assert all(len(s.probs.top) == 3 and s.probs.top[0] == (s.token, s.probs.drawn) for s in steps)
    assert job.steps() == []
    assert job.state is State.DONE


def test_a_pass_hands_each_job_its_steps_at_once_and_reading_times_out_as_none():
    model = FakeModel()
    gate = Gate(model.executor)
    with Engine(model) as engine:
        job = engine.submit(ask("ab", max_tokens=3))
        gate.wait_for_pass()
        assert job.steps(timeout=0) is None
        assert job.wait(timeout=0) is None
        assert job.state is State.READING
        gate.let_one_go()
        assert len(job.steps(timeout=WAIT)) == 1
        assert job.state is State.DRAWING
        gate.open()
        job.wait(WAIT)
        assert len(job.steps(timeout=0)) == 2  # both that came since
        assert job.steps(timeout=0) == []


def test_prompts_that_do_not_fit_are_refused_before_a_slot_is_waited_for():
    model = FakeModel(context=64)
    gate = Gate(model.executor)
    with Engine(model, queue=0) as engine:
        running = engine.submit(ask("x", max_tokens=2))
        with pytest.raises(ContextExceeded) as error:
            engine.submit(ask("y" * 64))
        assert (error.value.n_prompt, error.value.n_ctx) == (64, 64)
        assert str(error.value) == (
            "request (64 tokens) exceeds the available context size (64 tokens), try increasing it"
        )
        gate.open()
        running.wait(WAIT)
        assert answer(engine, "y" * 63).drawn_tokens == 1


@pytest.mark.parametrize("tokens", [[], [1, -1], [257], [1.5], ["a"], [2**40], [[1]]])
def test_prompts_that_are_no_tokens_are_refused_by_field(tokens):
    with Engine(FakeModel()) as engine, pytest.raises(ParamError) as error:
        engine.submit(Request(tokens))
    assert error.value.field == "prompt"


def test_a_full_queue_refuses_and_a_free_slot_is_no_queue():
    model = FakeModel(slots=2)
    gate = Gate(model.executor)
    with Engine(model, queue=1) as engine:
        jobs = [engine.submit(ask("a", max_tokens=2))]
        gate.wait_for_pass()
        jobs += [engine.submit(ask(text, max_tokens=2)) for text in "bc"]
        with pytest.raises(QueueFull, match="the queue of 1 is full"):
            engine.submit(ask("d"))
        assert (engine.stats.waiting, engine.busy) == (2, 3)
        gate.open()
        for job in jobs:
            job.wait(WAIT)
    assert (engine.stats.refused, engine.stats.submitted, engine.stats.finished) == (1, 3, 3)
    assert [job.result.slot for job in jobs[:2]] == [0, 1]


def test_requests_are_answered_in_the_order_they_came():
    model = FakeModel()
    gate = Gate(model.executor)
    with Engine(model) as engine:
        jobs = [engine.submit(ask(text, max_tokens=1)) for text in "abcde"]
        gate.open()
        for job in jobs:
            job.wait(WAIT)
    assert [bytes(seen.tokens) for seen in model.executor.seen] == [b"a", b"b", b"c", b"d", b"e"]


def test_times_are_measured_from_submit_to_slot_to_first_and_last_token():
    clock = FakeClock()
    model = FakeModel()
    gate = Gate(model.executor)
    with Engine(model, clock=clock) as engine:
        first = engine.submit(ask("a", max_tokens=1))
        gate.wait_for_pass()
        second = engine.submit(ask("bc", max_tokens=3))
        clock.now += 5
        gate.let_one_go()
        for seconds in (2, 1, 1):
            gate.wait_for_pass()
            clock.now += seconds
            gate.let_one_go()
        first.wait(WAIT)
        result = second.wait(WAIT)
    assert (result.queue_ms, result.prompt_ms, result.draw_ms) == (5000, 2000, 2000)
    assert result.first_ms == 7000
    assert result.timings() == {
        "cache_n": 0,
        "prompt_n": 2,
        "prompt_ms": 2000.0,
        "prompt_per_token_ms": 1000.0,
        "prompt_per_second": 1.0,
        "predicted_n": 3,
        "predicted_ms": 2000.0,
        "predicted_per_token_ms": 1000.0,
        "predicted_per_second": 1.0,
        "ttft_ms": 7000.0,
        "grammar_ms": 0.0,
        "resampled": 0,
    }
    alone = first.result.timings()
    assert (alone["predicted_ms"], alone["predicted_per_second"]) == (0.001, 0.0)


def test_a_prompt_alone_uses_the_whole_pass():
    model = FakeModel(context=4096, pass_width=512)
    with Engine(model) as engine:
        answer(engine, "x" * 2000, max_tokens=1)
    assert [len(seen.tokens) for seen in model.executor.seen] == [512, 512, 512, 464]


def test_short_prompts_are_not_held_up_by_long_ones():
    model = FakeModel(slots=3, context=1024, pass_width=32)
    gate = Gate(model.executor)
    with Engine(model) as engine:
        jobs = [engine.submit(ask("l" * 200, max_tokens=1))]
        gate.wait_for_pass()
        jobs += [engine.submit(ask(t, max_tokens=1)) for t in ("m" * 60, "s" * 5)]
        gate.open()
        for job in jobs:
            job.wait(WAIT)
    counts = [{run[0]: run[2] for run in seen.runs} for seen in model.executor.seen]
    assert counts[1] == {0: 13, 1: 14, 2: 5}
    assert counts[2] == {0: 16, 1: 16}


def test_a_pass_waits_for_an_announced_request_but_not_when_alone():
    model = FakeModel(slots=2)
    with Engine(model, gather=WAIT) as engine:
        engine._runner.pace.last = 8 * WAIT  # a slow model: the window is the whole of `gather`
        assert answer(engine, "alone", max_tokens=2)  # would time out if it waited
        entered, go = threading.Event(), threading.Event()
        jobs = []

        def come_late():
            with engine.entering():
                entered.set()
                assert go.wait(WAIT)
                jobs.append(engine.submit(ask("late", max_tokens=1)))

        thread = threading.Thread(target=come_late)
        thread.start()
        assert entered.wait(WAIT)
        engine._runner.pace.last = 8 * WAIT
        model.executor.seen.clear()
        jobs.append(engine.submit(ask("early", max_tokens=1)))
        go.set()
        thread.join(WAIT)
        for job in jobs:
            job.wait(WAIT)
    assert len(model.executor.seen) == 1
    assert len(model.executor.seen[0].runs) == 2


def test_the_debug_line_describes_each_pass(monkeypatch, capsys):
    monkeypatch.setenv("GOLEM_DEBUG_BATCHES", "1")
    clock = FakeClock()
    model = FakeModel()
    model.executor.before = lambda seen: setattr(clock, "now", clock.now + 0.0072)
    with Engine(model, clock=clock) as engine:
        answer(engine, "abc", max_tokens=2)
    assert capsys.readouterr().err.splitlines() == [
        "pass: 3 tokens from 1 conversation(s), last took 0s, window 0s",
        "pass: 1 tokens from 1 conversation(s), last took 7ms, window 900µs",
    ]


def test_nothing_runs_before_start_or_after_close():
    model = FakeModel()
    engine = Engine(model)
    with pytest.raises(EngineClosed):
        engine.submit(ask("a"))
    before = threading.active_count()
    engine.start()
    assert threading.active_count() == before + 1
    engine.close()
    engine.close()
    assert threading.active_count() == before
    with pytest.raises(EngineClosed):
        engine.submit(ask("a"))


def test_more_slots_than_columns_are_refused():
    with pytest.raises(ValueError, match="-pass-width"):
        Engine(FakeModel(slots=8, pass_width=4))
    with pytest.raises(ValueError, match="3 slots"):
        Engine(FakeModel(slots=2), slots=3)


def test_counters_add_up():
    model = FakeModel(slots=2)
    with Engine(model) as engine:
        jobs = [engine.submit(ask(t, max_tokens=4)) for t in ("hello", "bye", "hello again")]
        results = [job.wait(WAIT) for job in jobs]
    stats = engine.stats
    assert stats.prompt_columns == sum(r.fed_tokens for r in results)
    assert stats.cached == sum(r.cached_tokens for r in results)
    assert stats.drawn == sum(r.drawn_tokens for r in results)
    assert stats.columns == stats.prompt_columns + stats.drawn_columns
    assert (stats.waiting, stats.running, stats.finished) == (0, 0, 3)


def test_a_fork_of_the_process_is_told_to_open_the_model_itself():
    with Engine(FakeModel()) as engine:
        child = os.fork()
        if child == 0:
            try:
                engine.submit(ask("hello"))
            except EngineClosed as refused:
                os._exit(0 if "open the model after the fork" in str(refused) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_read_one_answer_share_its_steps_and_all_see_the_end():
    model = FakeModel()
    model.executor.script = lambda history: ord("z")
    gate = Gate(model.executor)
    with Engine(model) as engine:
        job = engine.submit(ask("hi", max_tokens=20))
        gate.wait_for_pass()
        read = [[] for _ in range(3)]
        threads = [
            threading.Thread(target=lambda steps=steps: steps.extend(job), daemon=True)
            for steps in read
        ]
        for thread in threads:
            thread.start()
        gate.open()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
    counts = [step.count for steps in read for step in steps]
    assert sorted(counts) == list(range(1, 21))
    assert job.steps() == []
