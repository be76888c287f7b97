"""Which slot a request gets, what it finds there, and how slots forget."""

import pytest

from golem_core.sample import ParamError, SamplerParams
from golem_core.schedule import Engine
from tests.core.schedule.fakes import WAIT, FakeClock, FakeModel, Gate, ask
from tests.core.schedule.test_engine import answer


def test_the_prompt_of_a_drawn_answer_is_fed_only_from_where_it_parts():
    model = FakeModel()
    model.answers({"What": "ever", "Whatever?": "Yes"})
    with Engine(model) as engine:
        answer(engine, "What")
        result = answer(engine, "Whatever?")
        again = answer(engine, "Whatever?")
        cold = answer(engine, "Whatever?", cache_prompt=False)
    assert (result.cached_tokens, result.fed_tokens, result.text) == (8, 1, "Yes")
    assert (again.cached_tokens, again.fed_tokens) == (8, 1)  # the last token is always fed
    assert (cold.cached_tokens, cold.fed_tokens, cold.text) == (0, 9, "Yes")
    assert engine.stats.cached == 16


def test_a_cold_and_a_cached_answer_are_the_same_also_past_a_sliding_window():
    model = FakeModel(window=16, pass_width=8, context=512)
    params = SamplerParams(seed=5, temperature=1.5)
    with Engine(model) as engine:
        turns = ["x" * 70 + "a", "x" * 70 + "b", "x" * 40 + "c", "x" * 300 + "d", "x" * 75]
        warm = [answer(engine, t, params=params, max_tokens=40).text for t in turns]
        cold = [
            answer(engine, t, params=params, max_tokens=40, cache_prompt=False).text for t in turns
        ]
    assert warm == cold


ALICE = "Alice: " + "tell me about rivers. " * 4
BOB = "Bob asks: " + "what is a glacier? " * 4


@pytest.mark.parametrize("parallel", [1, 2])
def test_alice_bob_and_alices_next_turn(parallel):
    model = FakeModel(slots=parallel)
    model.answers({ALICE: "Water.", BOB: "Ice."})
    with Engine(model) as engine:
        first = answer(engine, ALICE)
        answer(engine, BOB)
        turn = ALICE + "Water." + " And lakes?"
        second = answer(engine, turn, max_tokens=1)
    if parallel == 1:
        assert second.cached_tokens == 0  # "A" and "B" part at once
    else:
        assert second.slot == first.slot
        assert second.cached_tokens == len(ALICE + "Water.")
        assert second.fed_tokens == len(" And lakes?")


def test_slots_are_chosen_by_a_tenth_shared_then_empty_then_least_recently_used():
    clock = FakeClock()
    model = FakeModel(slots=3)
    model.executor.before = lambda seen: setattr(clock, "now", clock.now + 1)
    with Engine(model, clock=clock) as engine:

        def slot(text):
            return answer(engine, text, max_tokens=1).slot

        assert slot("a" * 10) == 0
        assert slot("b" * 10) == 1  # empty before the other's
        assert slot("c" * 1 + "d" * 10) == 2
        assert slot("a" + "e" * 9) == 0  # exactly a tenth
        assert slot("b" * 1 + "f" * 10) == 1  # under a tenth, so the least recently used
        assert slot("e" * 10) == 2
        assert slot("f" * 10) == 0
        assert slot("g" * 10) == 1


def test_another_conversation_with_the_same_beginning_takes_a_copy_into_an_empty_slot():
    """A tenth shared and more: nobody loses a conversation while a slot is empty."""
    model = FakeModel(slots=2, context=512)
    with Engine(model) as engine:
        alice = answer(engine, "system: be kind. user: Alice", max_tokens=5)
        bob = answer(engine, "system: be kind. user: Bob, and I ask", max_tokens=5)
        turn = answer(
            engine, "system: be kind. user: Alice" + alice.text + "And now?", max_tokens=3
        )
        third = answer(engine, "system: be kind. user: Carol")
    shared = len("system: be kind. user: ")
    assert [alice.slot, bob.slot, turn.slot] == [0, 1, 0]
    assert (bob.cached_tokens, turn.cached_tokens) == (shared, turn.prompt_tokens - 9)
    assert (third.slot, third.cached_tokens) == (0, shared)  # none is empty: the rule of the tenth


def test_a_turn_that_parts_in_what_was_answered_stays_in_its_slot():
    """An answer may be spelled otherwise when it comes back, or its thought be left out."""
    model = FakeModel(slots=2, context=512)
    with Engine(model) as engine:
        first = answer(engine, "question <assistant>", max_tokens=20)
        again = answer(engine, "question <assistant>another answer, and a turn", max_tokens=1)
    with Engine(FakeModel(slots=2, context=512)) as engine:
        answer(engine, "question <assistant>", max_tokens=20)
        opened = answer(engine, "question <assist and a turn", max_tokens=1)
    assert [first.slot, again.slot, opened.slot] == [0, 0, 0]
    assert again.cached_tokens == len("question <assistant>")


def test_the_beginning_is_copied_from_a_slot_that_draws():
    model = FakeModel(slots=3, context=512)
    model.executor.script = lambda history: ord("z") if history[-1] != ord("?") else None
    gate = Gate(model.executor)
    beginning = "the same for everybody "
    with Engine(model) as engine:
        runs = engine.submit(ask(beginning + "one", max_tokens=40))
        gate.step()
        gate.step()
        gate.wait_for_pass()
        other = engine.submit(ask(beginning + "two?", max_tokens=1))
        gate.open()
        result = other.wait(WAIT)
        runs.wait(WAIT)
        cold = answer(engine, beginning + "two?", max_tokens=1, cache_prompt=False)
    assert (result.slot, result.cached_tokens) == (1, len(beginning))
    assert result.tokens == cold.tokens


def test_a_slot_asked_for_by_number_is_taken_and_does_not_hold_up_the_queue():
    model = FakeModel(slots=2)
    gate = Gate(model.executor)
    with Engine(model) as engine:
        first = engine.submit(ask("one", id_slot=1, max_tokens=4))
        gate.wait_for_pass()
        waits = engine.submit(ask("two", id_slot=1, max_tokens=1))
        passes = engine.submit(ask("three", max_tokens=1))
        gate.let_one_go()
        gate.wait_for_pass()
        assert (waits.slot, passes.slot) == (-1, 0)
        gate.open()
        assert [job.wait(WAIT).slot for job in (first, waits, passes)] == [1, 1, 0]
        with pytest.raises(ParamError, match="Invalid slot ID"):
            engine.submit(ask("four", id_slot=2))


def test_an_idle_slot_forgets_after_the_cache_ttl():
    clock = FakeClock()
    model = FakeModel()
    with Engine(model, cache_ttl=10, clock=clock) as engine:
        answer(engine, "hello", max_tokens=1)
        clock.now += 9
        assert answer(engine, "hello", max_tokens=1).cached_tokens == 4
        clock.now += 10
        assert answer(engine, "hello", max_tokens=1).cached_tokens == 0


def test_erasing_an_idle_slot_makes_the_next_prompt_cold():
    model = FakeModel()
    with Engine(model) as engine:
        answer(engine, "hello", max_tokens=2)
        assert engine.erase(0) == 6
        assert engine.slots[0].n_tokens == 0
        assert answer(engine, "hello", max_tokens=1).cached_tokens == 0


def test_a_busy_slot_is_not_erased_and_shows_what_it_does():
    model = FakeModel()
    gate = Gate(model.executor)
    with Engine(model) as engine:
        job = engine.submit(ask("abc", max_tokens=5))
        gate.step()
        gate.wait_for_pass()
        assert engine.erase(0) is None
        state = engine.slots[0]
        assert (state.is_processing, state.job) == (True, job)
        assert (state.n_tokens, state.n_decoded, state.n_remain) == (3, 1, 4)
        assert job.progress[:3] == (3, 0, 3)
        gate.open()
        job.wait(WAIT)
        state = engine.slots[0]
        assert (state.is_processing, state.n_decoded, state.n_remain) == (False, 0, -1)
