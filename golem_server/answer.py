"""The jobs of one request, watched together with the connection that waits for them.

Everything here runs on the request's own thread. Whoever hangs up is noticed within
``PROBE_SECONDS``, in any state and streamed or not, and every job of the request is cancelled:
the engine frees their slots before its next pass.
"""

import secrets
import string
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from golem_core.schedule import Job, Result, State, Step
from golem_server.errors import ClientGone

PROBE_SECONDS = 0.1

_ALPHABET = string.ascii_letters + string.digits


def new_id() -> str:
    """An id of a completion: ``chatcmpl-`` and 32 random letters and digits."""
    return "chatcmpl-" + "".join(secrets.choice(_ALPHABET) for _ in range(32))


def usage(results: Sequence[Result]) -> dict[str, Any]:
    """OpenAI's ``usage``: the whole prompt counts, what was not fed again is told beside it."""
    prompt = sum(r.prompt_tokens for r in results)
    drawn = sum(r.drawn_tokens for r in results)
    return {
        "completion_tokens": drawn,
        "prompt_tokens": prompt,
        "total_tokens": prompt + drawn,
        "prompt_tokens_details": {"cached_tokens": sum(r.cached_tokens for r in results)},
    }


class Answer:
    """One request's jobs: waited for whole, or read step by step."""

    def __init__(self, jobs: Sequence[Job], gone: Callable[[], bool]):
        self.jobs = list(jobs)
        self._gone = gone
        self._first: list[Step] | None = None  # read early, while waiting for a slot

    def cancel(self) -> None:
        """Give up whatever has not ended."""
        for job in self.jobs:
            job.cancel()

    def results(self) -> list[Result]:
        """Wait for every job.

        Raises:
            ClientGone: when the connection ended first; the jobs are cancelled then.
            Exception: the error of the first job that failed; the others are cancelled then.
        """
        try:
            return [self._result(job) for job in self.jobs]
        except BaseException:
            self.cancel()
            raise

    def _result(self, job: Job) -> Result:
        while (result := job.wait(PROBE_SECONDS)) is None:
            self._probe()
        return result

    def _probe(self) -> None:
        if self._gone():
            raise ClientGone

    def started(self, seconds: float) -> bool:
        """Wait until the first job holds a slot or has ended; False after ``seconds``.

        Raises:
            ClientGone, or the job's error: the jobs are cancelled then.
        """
        deadline = time.monotonic() + seconds
        first = self.jobs[0]
        try:
            while self._first is None and first.state is State.QUEUED:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._first = first.steps(min(PROBE_SECONDS, left))
                self._probe()
        except BaseException:
            self.cancel()
            raise
        return True

    def steps(self, job: Job) -> Iterator[list[Step]]:
        """The steps of a job as they come; an empty list says that nothing came for a while.

        Raises:
            ClientGone, or the job's error.
        """
        if job is self.jobs[0] and self._first is not None:
            if not self._first:
                return
            yield self._first
        while True:
            steps = job.steps(PROBE_SECONDS)
            self._probe()
            if steps == []:
                return
            yield steps or []
