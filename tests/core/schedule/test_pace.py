"""How much of a prompt goes into passes that others draw in: bounded, learned, and used."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.schedule import Engine
from golem_core.schedule.pace import LONGEST, STRETCH, Pace, Prices
from tests.core.schedule.fakes import WAIT, FakeClock, FakeModel, ask

READER = 3000  # tokens of the prompt that is read beside


def beside(draw, fixed, column, deeper):
    """Seconds of every pass that drew while a long prompt was read, and columns of it.

    draw: seconds of a pass that only draws. fixed: more where there is a prompt. column: of each
    prompt column. deeper: by what share of itself that grows over the prompt.
    """
    clock = FakeClock()
    model = FakeModel(slots=2, context=4096, pass_width=512)
    passes, there = [], threading.Event()

    def compute(seen):
        if len(passes) == 3:  # some passes that only draw were seen; the reader is there from now
            assert there.wait(WAIT)
        prompt = sum(run[2] for run in seen.runs if run[4])
        draws = any(run[4] == 0 for run in seen.runs)
        depth = max(run[3] for run in seen.runs)
        each = column * (1 + deeper * depth / READER)
        took = draw * draws + (fixed + each * prompt if prompt else 0)
        clock.now += took
        if draws and prompt:
            read.append((took, prompt))
        passes.append(took)

    read = []
    model.executor.before = compute
    model.executor.script = lambda history: ord("z")
    with Engine(model, clock=clock) as engine:
        talks = engine.submit(ask("hi", max_tokens=4000))
        talks.steps(WAIT)
        long = engine.submit(ask("x" * READER, max_tokens=1))
        there.set()
        long.wait(WAIT)
        talks.cancel()
    return read


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.002, 0.2),
    st.floats(0, 0.3),
    st.floats(0.0003, 0.01),
    st.floats(0, 1),
)
def test_a_pass_beside_draws_keeps_to_its_time_and_uses_it(draw, fixed, column, deeper):
    fixed *= draw
    read = beside(draw, fixed, column, deeper)
    assert sum(prompt for _, prompt in read) == READER
    longest = min(LONGEST, STRETCH * draw)
    cheapest = draw + fixed + column * (1 + deeper)  # one column: no prompt gets less
    settled = [took for took, _ in read[3:]]
    assert max(settled, default=0) <= max(longest, 1.25 * draw, cheapest) * 1.05
    if len(settled) > 10:
        spent = sorted(settled)[len(settled) // 2]
        assert spent >= min(longest, 1.25 * draw + fixed) * 0.75 - column * (1 + deeper)


def test_the_first_pass_beside_draws_is_no_longer_than_half_a_second():
    """Before anything is known of the price of a prompt column: 20 ms is a 4B on two cores."""
    read = beside(0.12, 0.02, 0.02, 0)
    assert read[0][0] <= 0.5
    assert max(took for took, _ in read[2:]) <= LONGEST


def test_a_model_slower_than_the_bound_still_reads():
    pace = Pace()
    for _ in range(4):
        pace.saw(1, 0, 0.8)
    for _ in range(6):
        columns = pace.prompt_columns(1)
        pace.saw(1, columns, 0.8 + 0.02 * columns)
    assert columns == 8  # a quarter of what drawing alone takes, less a margin


def test_durations_are_a_line_between_those_seen_and_hopeful_beyond():
    prices = Prices()
    assert prices.of(4) is None
    prices.saw(1, 1.0)
    prices.saw(5, 2.0)
    line = prices.of(9)
    assert line[1] == 1 and line[3] == 1.5 and line[5] == 2
    assert line[9] == pytest.approx(2 + 4 * 0.05 * 2)
    prices.saw(5, 0.5)  # less than a narrower pass: that cannot be
    assert prices.of(5)[5] >= prices.of(5)[1]


def test_what_was_seen_long_ago_is_not_believed():
    prices = Prices()
    prices.saw(4, 9.0)
    for _ in range(600):
        prices.saw(1, 1.0)
    assert prices.of(4)[4] == pytest.approx(1.15)


def test_a_pass_that_the_system_held_up_changes_nothing():
    pace = Pace()
    for _ in range(6):
        pace.saw(1, 0, 0.02)
    widths = []
    for i in range(40):
        columns = pace.prompt_columns(1)
        widths.append(columns)
        pace.saw(1, columns, 0.02 + 0.001 * columns + (0.9 if i > 10 and i % 5 == 0 else 0))
    assert min(widths[10:]) == max(widths[10:]) == 25
