"""Long prompts beside those that draw: read in wide passes that stop for every token."""

import itertools
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.schedule import Engine, ModelChanged, PassFailed, RequestTimeout
from golem_core.schedule.pace import LEAST, LONGEST, STRETCH
from golem_core.schedule.runner import FILE_CHECK
from tests.core.schedule.fakes import WAIT, FakeClock, FakeModel, PiecewiseExecutor, ask

PROMPT = "y" * 400


def piecewise(draw=0.01, column=0.001, fixed=0.005, step=0.0, **fields):
    """A model whose passes take ``draw`` seconds for what is drawn, ``column`` for each column of
    a prompt, and ``fixed`` for the 2,000 positions before it; the clock is its executor's."""
    fields = {"slots": 2, "context": 4096, "pass_width": 256, **fields}
    model = FakeModel(**fields)

    def cost(runs):
        seconds = draw * any(run[4] == 0 for run in runs)
        return seconds + sum(column * run[2] + fixed * run[3] / 2000 for run in runs if run[4])

    model.executor = PiecewiseExecutor(
        model.slots,
        model.context,
        model.window,
        model.pass_width,
        model.recurrent,
        clock=FakeClock(),
        cost=cost,
        step=step,
    )
    model.executor.script = lambda history: ord("z")
    return model


class Beside:
    """One that draws without end, and what is read beside it.

    Passes before the reader is there are held until it is, so that the scene is always the same.
    """

    def __init__(self, model, **options):
        self.executor = model.executor
        self.engine = Engine(model, clock=model.executor.clock, **options)
        self._there = threading.Event()
        self.executor.before = self._hold

    def __enter__(self):
        self.engine.start()
        self.talk = self.engine.submit(ask("hi", max_tokens=-1))
        self.talk.steps(WAIT)
        return self

    def _hold(self, seen):
        if len(self.executor.seen) == 8:
            assert self._there.wait(WAIT)

    def submit(self, *requests):
        jobs = self.engine.submit_all(requests)
        self._there.set()
        return jobs

    def __exit__(self, *_):
        self._there.set()
        self.engine.close()


def gaps(job):
    """Seconds between the tokens of a cancelled answer."""
    job.cancel()
    times = [step.ms / 1e3 for step in job]
    return [later - now for now, later in itertools.pairwise(times)]


@settings(max_examples=10, deadline=None)
@given(
    st.floats(0.001, 0.3),
    st.floats(0.05, 0.2),
    st.floats(0, 4),
    st.floats(0.001, 0.3),
)
def test_tokens_come_in_time_and_the_prompt_gets_its_share(draw, column, fixed, step):
    """Costs as parts of a drawn pass: of a prompt column, of a prompt's pass, of a step."""
    model = piecewise(draw, draw * column, draw * fixed, draw * step)
    with Beside(model) as beside:
        (long,) = beside.submit(ask(PROMPT, max_tokens=1))
        read = long.wait(WAIT)
        seen = gaps(beside.talk)
    assert model.executor.twins > 10
    # A piece ends with the step that its time is over in.
    allowed = max(min(STRETCH * draw, LONGEST), (1 + LEAST) * draw)
    assert max(seen) <= (allowed + draw * step) * 1.001
    # Of the time, the prompt has what the limit leaves it, but for a margin and one step.
    piece = 0.85 * max(min(1.5 * draw, LONGEST - draw) - draw * step, LEAST * draw)
    passes = sum(any(run[4] for run in one.runs) for one in model.executor.seen)
    work = draw * (len(PROMPT) * column + passes * fixed * len(PROMPT) / 2000)
    assert read.prompt_ms / 1e3 <= (work + passes * draw) * (1 + draw / piece)


def test_what_runs_between_passes_takes_the_time_of_a_piece_and_not_of_the_whole_pass():
    """A picture's tower goes on for as long as the last pass held up those who draw."""
    model = piecewise(draw=0.02, column=0.005, fixed=0)
    with Beside(model) as beside:
        lasts = []
        runner = beside.engine._runner
        runner._look_aside = lambda: lasts.append(runner.pace.last)
        (long,) = beside.submit(ask(PROMPT, max_tokens=1))
        long.wait(WAIT)
    assert len(lasts) > 20
    assert max(lasts) <= 3 * 0.02


def test_a_short_prompt_shares_a_pass_with_what_is_drawn():
    """Once it is known that it fits: the weights are read for both of them."""
    model = piecewise(draw=0.01, column=0.0005, fixed=0.0)
    with Beside(model) as beside:
        (first,) = beside.submit(ask("y" * 300, max_tokens=1))
        first.wait(WAIT)
        before = model.executor.twins
        (short,) = beside.submit(ask("x" * 8, max_tokens=1))
        short.wait(WAIT)
        assert model.executor.twins == before
    (run,) = [one for one in model.executor.seen if ord("x") in one.tokens]
    assert [r[4] for r in run.runs] == [0, 1]


def test_a_few_columns_deep_in_a_context_are_read_in_pieces_too():
    """Each of them reads all keys before it: ten drawn passes' time here."""
    model = piecewise(draw=0.01, column=0.0001, fixed=0.1)
    with Beside(model) as beside:
        (first,) = beside.submit(ask("y" * 2000, max_tokens=1))
        first.wait(WAIT)
        (turn,) = beside.submit(ask("y" * 2000 + "zz", max_tokens=1))
        assert turn.wait(WAIT).fed_tokens == 2
        assert max(gaps(beside.talk)) <= 0.03


@pytest.mark.parametrize("recurrent", [False, True])
def test_what_is_read_in_pieces_gives_the_same_answers(recurrent):
    """A cache that somebody else wrote into, or a column that is missing, makes others."""
    texts = ["a" * 700, "b" * 900, "b" * 900, "a" * 650 + "c"]
    alone = []
    for text in texts:
        model = FakeModel(context=4096, pass_width=512, recurrent=recurrent)
        with Engine(model) as engine:
            alone.append(engine.submit(ask(text, max_tokens=30)).wait(WAIT).text)
    model = piecewise(slots=6, context=4096, recurrent=recurrent)
    model.executor.script = lambda history: ord("z") if bytes(history[:2]) == b"hi" else None
    with Beside(model) as beside:
        jobs = beside.submit(*(ask(text, max_tokens=30) for text in texts))
        assert [job.wait(WAIT).text for job in jobs] == alone
    assert model.executor.twins > 20


def test_a_prompt_that_is_cancelled_in_the_middle_of_a_pass_leaves_when_it_is_over():
    model = piecewise()
    with Beside(model) as beside:
        pieces = []

        def held():
            pieces.append(model.executor.open)
            if len(pieces) == 3:
                long.cancel()

        model.executor.held = held
        (long,) = beside.submit(ask(PROMPT, max_tokens=1))
        result = long.wait(WAIT)
        assert result.finish_reason == "cancelled"
        first = next(one for one in model.executor.seen if ord("y") in one.tokens)
        assert result.fed_tokens == result.slot_tokens == len(first.tokens)
        model.executor.held = lambda: None
        (again,) = beside.submit(ask(PROMPT, max_tokens=1))
        assert again.wait(WAIT).cached_tokens == result.slot_tokens


def test_when_nobody_draws_any_more_the_rest_is_read_at_once():
    model = piecewise(draw=0.01, column=0.001, fixed=0)
    with Beside(model) as beside:
        held = []

        def count():
            held.append(model.executor.clock.now)
            if len(held) == 3:
                beside.talk.cancel()

        model.executor.held = count
        (long,) = beside.submit(ask(PROMPT, max_tokens=1))
        long.wait(WAIT)
        assert len(held) <= 5


def test_a_failure_in_a_piece_fails_the_reader_and_nobody_else():
    model = piecewise()
    with Beside(model) as beside:
        model.executor.held = lambda: 1 / 0
        (long,) = beside.submit(ask(PROMPT))
        with pytest.raises(PassFailed, match="ZeroDivisionError"):
            long.wait(WAIT)
        model.executor.held = lambda: None
        (again,) = beside.submit(ask(PROMPT, max_tokens=1))
        assert again.wait(WAIT).cached_tokens == 0
        assert gaps(beside.talk)


def test_a_failure_of_those_that_draw_does_not_touch_the_reader():
    model = piecewise()

    def fail(seen, logits):
        if model.executor.open is not None and seen.runs[0][4] == 0:
            raise RuntimeError("no memory")
        return logits

    with Beside(model) as beside:
        model.executor.after = fail
        (long,) = beside.submit(ask(PROMPT, max_tokens=1))
        assert long.wait(WAIT).drawn_tokens == 1
        with pytest.raises(PassFailed, match="no memory"):
            beside.talk.wait(WAIT)


def test_a_file_that_changes_between_pieces_fails_both_and_the_engine_serves_on():
    model = piecewise()
    with Beside(model) as beside:

        def change():
            model.file.is_changed = True
            model.executor.clock.now += 2 * FILE_CHECK

        model.executor.held = change
        (long,) = beside.submit(ask(PROMPT))
        for job in (long, beside.talk):
            with pytest.raises(ModelChanged):
                job.wait(WAIT)
        assert model.executor.open is None
        model.file.is_changed = False
        (again,) = beside.submit(ask("abc", max_tokens=1))
        assert again.wait(WAIT).drawn_tokens == 1


def test_closing_in_the_middle_of_a_pass_ends_everybody():
    model = piecewise()
    with Beside(model) as beside:
        there = threading.Event()
        model.executor.held = there.set
        (long,) = beside.submit(ask(PROMPT))
        assert there.wait(WAIT)
        beside.engine.close()
        assert long.result.finish_reason == beside.talk.result.finish_reason == "error"
        assert model.executor.open is None


def test_a_request_that_takes_too_long_ends_when_its_pass_is_over():
    model = piecewise(draw=0.01, column=0.01)
    with Beside(model, request_timeout=3.0) as beside:
        (long,) = beside.submit(ask(PROMPT, max_tokens=1))
        with pytest.raises(RequestTimeout):
            long.wait(WAIT)
        assert long.result.slot_tokens == long.result.fed_tokens
