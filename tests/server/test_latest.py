"""Which of the waiting threads is woken."""

import threading

from waitress.task import ThreadedTaskDispatcher

from golem_server.latest import LatestFirst


class Task:
    """Notes the thread that serves it."""

    def __init__(self, served: list[int]):
        self.served, self.done = served, threading.Event()

    def service(self):
        self.served.append(threading.get_ident())
        self.done.set()

    def cancel(self):
        self.done.set()


def all_wait(dispatcher: ThreadedTaskDispatcher, count: int) -> None:
    """Until so many threads wait for work."""
    while True:
        with dispatcher.lock:
            if len(dispatcher.queue_cv._waiting) == count:
                return


def dispatcher_of(count: int) -> ThreadedTaskDispatcher:
    dispatcher = ThreadedTaskDispatcher()
    dispatcher.queue_cv = LatestFirst(dispatcher.lock)
    dispatcher.set_thread_count(count)
    all_wait(dispatcher, count)
    return dispatcher


def test_requests_one_after_another_are_served_by_one_thread():
    dispatcher, served = dispatcher_of(6), []
    for _ in range(50):
        task = Task(served)
        dispatcher.add_task(task)
        assert task.done.wait(30)
        all_wait(dispatcher, 6)
    assert len(served) == 50 and len(set(served)) == 1
    assert dispatcher.shutdown() and not dispatcher.threads


def test_requests_at_once_are_served_by_as_many_threads_and_none_is_lost():
    dispatcher, served = dispatcher_of(6), []
    together = threading.Barrier(7)

    class Meeting(Task):
        def service(self):
            together.wait(30)
            super().service()

    tasks = [Meeting(served) for _ in range(6)]
    for task in tasks:
        dispatcher.add_task(task)
    together.wait(30)
    assert all(task.done.wait(30) for task in tasks)
    assert len(set(served)) == 6
    flood = [Task(served) for _ in range(500)]
    for task in flood:
        dispatcher.add_task(task)
    assert all(task.done.wait(30) for task in flood)
    assert len(served) == 506
    assert dispatcher.shutdown() and not dispatcher.threads
