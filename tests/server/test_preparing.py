"""A stream before which something is done that takes long: what the client hears meanwhile."""

import threading

import falcon
import pytest

from golem_core.schedule import State
from golem_server import sse
from golem_server.errors import ClientGone, Refusal


class Job:
    state = State.DONE
    cancelled = False
    result = None

    def steps(self, seconds=None):
        return []

    def cancel(self):
        self.cancelled = True


class Writer:
    def opening(self):
        return b"opening "

    def steps(self, index, steps):
        return b""

    def ending(self, index, result):
        return b"ending "

    def closing(self, results):
        return b"closing "


class Case:
    """A stream whose pictures are looked at until ``seen`` is set, and what comes of it."""

    def __init__(self, error=None, *, seen=False):
        self.seen, self.job, self.told = threading.Event(), Job(), []
        self.error = error
        self.response = falcon.Response()
        if seen:
            self.seen.set()

    def begin(self):
        assert self.seen.wait(60)
        if self.error is not None:
            raise self.error
        return sse.Answer([self.job], lambda: False), Writer()

    def respond(self, ping):
        sse.respond_later(
            self.response,
            self.begin,
            self.told.append,
            failed=lambda refusal: refusal.message.encode(),
            ping=ping,
        )
        return iter(self.response.stream)


def test_comments_say_that_a_picture_is_being_looked_at():
    case = Case()
    frames = case.respond(ping=0.001)
    assert [next(frames) for _ in range(3)] == [sse.COMMENT] * 3
    case.seen.set()
    rest = [one for one in frames if one != sse.COMMENT]
    assert b"".join(rest) == b"opening ending closing " + sse.DONE
    assert not case.told


def test_what_is_wrong_with_a_picture_is_an_error_of_its_own_when_it_is_soon_known():
    case = Case(Refusal("no picture"), seen=True)
    with pytest.raises(Refusal, match="no picture"):
        case.respond(ping=60)
    assert case.response.stream is None


def test_what_is_known_late_is_the_last_event():
    case = Case(Refusal("no picture"))
    frames = case.respond(ping=0.001)
    assert next(frames) == sse.COMMENT
    case.seen.set()
    assert [one for one in frames if one != sse.COMMENT] == [b"no picture"]
    assert [refusal.message for refusal in case.told] == ["no picture"]


def test_a_client_that_leaves_hears_nothing_more():
    case = Case(ClientGone())
    frames = case.respond(ping=0.001)
    next(frames)
    case.seen.set()
    assert set(frames) <= {sse.COMMENT} and not case.told


def test_a_stream_that_is_closed_early_cancels_what_begins_after_all():
    """The model is given back when a body is closed: nothing may use it after that."""
    case = Case()
    next(case.respond(ping=0.001))
    closing = threading.Thread(target=case.response.stream.close)
    closing.start()
    assert not case.job.cancelled
    case.seen.set()
    closing.join(60)
    assert case.job.cancelled
