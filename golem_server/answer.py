"""The jobs of one request, watched together with the connection that waits for them.

Everything here runs on the request's own thread. Whoever hangs up is noticed within
``PROBE_SECONDS``, in any state and streamed or not, and every job of the request is cancelled:
the engine frees their slots before its next pass.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from golem_core.schedule import Job, Result, State, Step
from golem_server.errors import ClientGone
from golem_server.reply import random_letters

PROBE_SECONDS = 0.1
TURN_SECONDS = 0.02  # one of several jobs is waited for, before the others are looked at


def new_id() -> str:
    """An id of a completion: ``chatcmpl-`` and 32 random letters and digits."""
    return "chatcmpl-" + random_letters(32)


def usage(results: Sequence[Result], count: int = 1) -> dict[str, Any]:
    """OpenAI's ``usage``: the whole prompt counts, what was not fed again is told beside it.

    count: answers to each prompt, which counts once.
    """
    prompts = results[::count]
    prompt = sum(r.prompt_tokens for r in prompts)
    drawn = sum(r.drawn_tokens for r in results)
    return {
        "completion_tokens": drawn,
        "prompt_tokens": prompt,
        "total_tokens": prompt + drawn,
        "prompt_tokens_details": {"cached_tokens": sum(r.cached_tokens for r in prompts)},
    }


class Answer:
    """One request's jobs: waited for whole, or read step by step."""

    def __init__(self, jobs: Sequence[Job], gone: Callable[[], bool], count: int = 1):
        self.jobs = list(jobs)
        self.count = count  # jobs of each prompt
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
            if self._first is None and first.state is State.DONE:  # since it was last asked
                self._first = first.steps(PROBE_SECONDS)
        except BaseException:
            self.cancel()
            raise
        return True

    def steps(self) -> Iterator[tuple[int, list[Step] | None]]:
        """The steps of all jobs as they come: ``(number of the job, steps)``, None at its end.

        An empty list says that nothing came for a while.

        Raises:
            ClientGone, or the error of a job.
        """
        running = dict(enumerate(self.jobs))
        early, self._first = self._first, None
        if early is not None:
            yield 0, early or None
            if not early:
                del running[0]
        while running:
            heard = False
            for index, job in list(running.items()):
                patience = TURN_SECONDS if len(running) > 1 else PROBE_SECONDS
                steps = job.steps(0 if heard else patience)
                if steps is None:
                    continue
                heard = True
                if not steps:
                    del running[index]
                yield index, steps or None
            self._probe()
            if not heard:
                yield 0, []
