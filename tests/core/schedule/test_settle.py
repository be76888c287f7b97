"""What an executor does while nobody waits: in pieces, between answers, until it is done."""

import threading

from golem_core.schedule import Engine
from tests.core.schedule.fakes import WAIT, FakeModel, ask


class Settling(FakeModel):
    """An executor with so many pieces of work for idle moments."""

    def __post_init__(self):
        super().__post_init__()
        self.left, self.passes_at, self.done = 20, [], threading.Event()
        self.first, self.go = threading.Event(), threading.Event()
        self.executor.settle = self.settle

    def settle(self):
        self.first.set()
        assert self.go.wait(WAIT)
        self.passes_at.append(len(self.executor.seen))
        self.left -= 1
        if not self.left:
            self.done.set()
        return self.left > 0


def test_pieces_run_until_none_is_left_and_an_answer_comes_between_them():
    model = Settling()
    with Engine(model) as engine:
        assert model.first.wait(WAIT)
        job = engine.submit(ask("hello", max_tokens=5))  # while the first piece runs
        model.go.set()
        result = job.wait(WAIT)
        assert result.drawn_tokens == 5
        assert model.done.wait(WAIT)
        again = engine.submit(ask("hello", max_tokens=5)).wait(WAIT)
    passes = len(model.executor.seen)
    assert model.left == 0  # and not called again
    assert model.passes_at[0] == 0
    assert all(at in (0, passes - again.drawn_tokens) for at in model.passes_at)


def test_an_engine_that_closes_does_not_wait_for_all_pieces():
    model = Settling(slots=1)
    model.left = 1 << 60
    with Engine(model):
        assert model.first.wait(WAIT)
        model.go.set()
    assert model.passes_at
