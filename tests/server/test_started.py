"""A stream begins with a status: what ends before it does is no stream."""

import pytest

from golem_core.schedule import QueueTimeout
from golem_core.schedule.request import State
from golem_server.answer import Answer


class Late:
    """A job that fails just after it was asked for steps and had none."""

    state = State.QUEUED

    def __init__(self):
        self.asked = 0

    def steps(self, timeout):
        self.asked += 1
        if self.asked == 1:
            self.state = State.DONE
            return None
        raise QueueTimeout(0.2)

    def cancel(self):
        pass


def test_a_job_that_fails_between_two_looks_is_an_error_and_no_stream():
    with pytest.raises(QueueTimeout):
        Answer([Late()], lambda: False, 1).started(5.0)
