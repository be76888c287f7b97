"""Jobs of a stateless model share passes, in order, fairly, and no longer than somebody reads."""

import threading

import pytest

from golem_core.schedule import EngineClosed, PassFailed, QueueFull
from golem_core.schedule.batcher import Batcher

PATIENCE = 30


class Doubler:
    """A model that doubles numbers; a pass waits until the test lets it go."""

    def __init__(self, **options):
        self.passes = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.batcher = Batcher(self.run, name="test", **options)

    def run(self, items):
        self.passes.append(list(items))
        self.entered.release()
        assert self.gate.acquire(timeout=PATIENCE)
        if "bad" in items:
            raise ValueError("no such thing")
        return [2 * item for item in items]

    def until_entered(self):
        assert self.entered.acquire(timeout=PATIENCE)

    def let(self, passes=1):
        for _ in range(passes):
            self.gate.release()


@pytest.fixture
def doubler(request):
    made = Doubler(**getattr(request, "param", {"wait": 0, "cap": 4}))
    yield made
    made.let(1000)
    made.batcher.close()


def ones(items):
    return [1] * len(items)


def submit(doubler, items, sizes=None):
    return doubler.batcher.submit(items, sizes or ones(items))


def test_results_come_in_the_items_order_over_several_passes(doubler):
    doubler.let(10)
    job = submit(doubler, list(range(10)))
    assert job.all() == [2 * i for i in range(10)]
    assert doubler.passes == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_jobs_that_wait_share_a_pass_item_by_item(doubler):
    first = submit(doubler, [0])
    doubler.until_entered()
    long, short = submit(doubler, list(range(10, 20))), submit(doubler, [90, 91])
    doubler.let(10)
    assert short.all() == [180, 182]
    assert first.all() == [0]
    assert long.all() == [2 * i for i in range(10, 20)]
    assert doubler.passes[1] == [10, 90, 11, 91]


def test_a_pass_is_no_larger_than_the_cap_counted_in_sizes(doubler):
    doubler.let(10)
    assert submit(doubler, [1, 2, 3], [3, 2, 2]).all() == [2, 4, 6]
    assert doubler.passes == [[1], [2, 3]]


def test_an_item_larger_than_a_pass_or_of_no_size_is_refused(doubler):
    for size in (0, 5):
        with pytest.raises(ValueError, match="a pass holds 1 to 4"):
            submit(doubler, [1], [size])


@pytest.mark.parametrize("doubler", [{"wait": 0, "cap": 100, "most": 2}], indirect=True)
def test_a_pass_holds_so_many_items_at_most(doubler):
    doubler.let(10)
    submit(doubler, [1, 2, 3]).all()
    assert [len(p) for p in doubler.passes] == [2, 1]


@pytest.mark.parametrize("doubler", [{"wait": PATIENCE, "fill": 3, "cap": 9}], indirect=True)
def test_a_pass_that_is_nearly_empty_waits_for_company_until_it_is_filled(doubler):
    first = submit(doubler, [1])
    second = submit(doubler, [2, 3])
    doubler.let()
    assert (first.all(), second.all()) == ([2], [4, 6])
    assert doubler.passes == [[1, 2, 3]]


def test_no_more_than_two_passes_of_results_lie_unread(doubler):
    doubler.let(100)
    job = submit(doubler, list(range(40)))
    results = job.results()
    assert next(results) == 0
    other = submit(doubler, [7])
    assert other.all() == [14]
    # 8 may lie unread (two passes of 4); one was read, and another job's pass took a turn.
    assert max(item for p in doubler.passes for item in p) <= 9
    assert list(results) == [2 * i for i in range(1, 40)]


def test_a_reader_that_is_gone_takes_its_job_out(doubler):
    running = submit(doubler, [1])
    doubler.until_entered()
    left = submit(doubler, list(range(40)))
    assert left.all(gone=lambda: True) is None
    doubler.let(10)
    assert running.all() == [2]
    assert submit(doubler, [3]).all() == [6]
    assert doubler.passes == [[1], [3]]
    assert doubler.batcher.waiting == 0


def test_a_pass_that_fails_fails_its_jobs_and_no_others(doubler):
    running = submit(doubler, [1])
    doubler.until_entered()
    bad, beside = submit(doubler, ["bad", 1, 1, 1, 1, 1]), submit(doubler, [2])
    doubler.let(10)
    for job in (bad, beside):
        with pytest.raises(PassFailed, match="no such thing"):
            job.all()
    assert running.all() == [2]
    assert submit(doubler, [3]).all() == [6]


@pytest.mark.parametrize("doubler", [{"wait": 0, "cap": 4, "queue": 1}], indirect=True)
def test_a_full_queue_is_refused(doubler):
    running = submit(doubler, [1])
    doubler.until_entered()
    waiting = submit(doubler, [2])
    with pytest.raises(QueueFull):
        submit(doubler, [3])
    doubler.let(10)
    assert (running.all(), waiting.all()) == ([2], [4])


def test_closing_fails_what_waits_and_refuses_what_comes(doubler):
    running = submit(doubler, [1])
    doubler.until_entered()
    waiting = submit(doubler, [2])
    closing = threading.Thread(target=doubler.batcher.close)
    closing.start()
    with pytest.raises(EngineClosed):
        waiting.all()
    doubler.let(10)
    assert running.all() == [2]
    closing.join(PATIENCE)
    with pytest.raises(EngineClosed):
        submit(doubler, [3])


def test_what_was_done_is_counted(doubler):
    doubler.let(10)
    submit(doubler, [1, 2, 3], [3, 1, 2]).all()
    stats = doubler.batcher.stats
    assert (stats.passes, stats.items, stats.size) == (2, 3, 6)


def test_no_items_are_no_work(doubler):
    assert submit(doubler, []).all() == []
    assert doubler.passes == []
