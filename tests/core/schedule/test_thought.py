"""Thoughts are followed across tokens, bounded by a budget, and ended by tokens nobody drew."""

import pytest

from golem_core.schedule import Engine, Request, Thinking
from golem_core.schedule.thought import Thought
from tests.core.schedule.fakes import GREEDY, WAIT, FakeModel, ask

MARKS = ("<t>", "</t>")
CLOSE = list(b"</t>")


def thought(**fields):
    return Thought(Thinking(MARKS, closing=CLOSE, **fields))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 99])
def test_marks_are_found_wherever_tokens_end(size):
    text = "a<<t>b</</t>c<t>d"
    followed = thought()
    states = []
    for at in range(0, len(text), size):
        followed.push(text[at : at + size])
        states.append(followed.open)
    assert followed.open
    assert followed.closed
    if size == 1:
        opened = [i for i, s in enumerate(states) if s]
        assert opened == [4, 5, 6, 7, 8, 9, 10, 15, 16]


def test_the_budget_counts_the_tokens_of_thoughts():
    followed = thought(budget=2)
    tokens = {"x": False, "<t>": False, "a": False, "b": True, "</t>": False}
    for token, overdue in tokens.items():
        followed.push(token)
        assert bool(followed.overdue()) is overdue, token
    followed.push("<t>")
    assert followed.overdue() == CLOSE


def test_a_thought_of_no_tokens_is_closed_before_the_first_draw():
    assert thought(inside=True, budget=0).overdue() == CLOSE
    assert not thought(budget=0).overdue()
    assert not thought(inside=True).overdue()


def draw(prompt, answer, **fields):
    model = FakeModel()
    model.answers({prompt: answer})
    with Engine(model) as engine:
        result = engine.submit(ask(prompt, max_tokens=60, **fields)).wait(WAIT)
        return result, engine.stats


def test_the_model_goes_on_after_the_closing_tokens_as_if_it_had_drawn_them():
    model = FakeModel()
    model.answers({"q": "<t>abcdefgh", "q<t>abcd</t>": "done"})
    thinking = Thinking(MARKS, budget=4, closing=CLOSE)
    with Engine(model) as engine:
        result = engine.submit(ask("q", max_tokens=60, thinking=thinking)).wait(WAIT)
    assert result.text == "<t>abcd</t>done"
    assert result.stop_type == "eos"
    assert result.drawn_tokens == len("<t>abcd</t>done") + 1


def test_a_prompt_that_ends_in_a_thought_with_no_budget():
    model = FakeModel()
    model.answers({"q<t></t>": "done"})
    thinking = Thinking(MARKS, inside=True, budget=0, closing=CLOSE)
    with Engine(model) as engine:
        result = engine.submit(ask("q<t>", thinking=thinking)).wait(WAIT)
    assert result.text == "</t>done"


def test_a_thought_is_not_closed_inside_a_character():
    model = FakeModel()
    model.answers({"q": "<t>é" + "x" * 9, "q<t>é</t>": "done"})
    thinking = Thinking(MARKS, budget=1, closing=CLOSE)
    with Engine(model) as engine:
        result = engine.submit(ask("q", thinking=thinking)).wait(WAIT)
    assert result.text == "<t>é</t>done"


def test_others_in_the_pass_draw_their_own_tokens():
    model = FakeModel(slots=2)
    model.answers({"a": "<t>abcdef", "a<t>ab</t>": "one", "b": "<t>abcdef</t>two"})
    thinking = Thinking(MARKS, budget=2, closing=CLOSE)
    with Engine(model) as engine:
        jobs = [engine.submit(ask("a", thinking=thinking)), engine.submit(ask("b"))]
        texts = [job.wait(WAIT).text for job in jobs]
    assert texts == ["<t>ab</t>one", "<t>abcdef</t>two"]


def test_probabilities_are_computed_only_when_asked_for():
    plain, stats = draw("q", "hi")
    assert stats.probs == 0
    asked, stats = draw("q", "hi", n_probs=2)
    assert asked.text == plain.text == "hi"
    assert stats.probs == asked.drawn_tokens == 3


def test_control_tokens_have_text_where_the_request_wants_it():
    model = FakeModel()
    end = 256
    model.eog = frozenset()
    model.executor.script = lambda history: end if history[-1] == ord("q") else ord("z")
    with Engine(model) as engine:

        def text(**fields):
            return engine.submit(Request([ord("q")], 2, GREEDY, **fields)).wait(WAIT).text

        assert text() == "z"
        assert text(shown=frozenset({end})) == "<end>z"
