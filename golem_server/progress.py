"""What llama-server tells of an answer while it comes: how far the prompt is, the pace so far."""

from collections.abc import Sequence
from typing import Any

from golem_core.schedule import Job, Step, timings
from golem_core.schedule import Progress as Report


def so_far(job: Job, step: Step) -> dict[str, Any]:
    """``timings`` up to a step (``timings_per_token``)."""
    read = job.progress
    fed = read.processed - read.cached
    return timings(read.cached, fed, read.ms, step.count, max(step.ms, 0.001))


class Reports:
    """The reports of an answer's jobs that have not been told yet (``return_progress``).

    timed: with the pace (``timings_per_token``).
    """

    def __init__(self, jobs: Sequence[Job], timed: bool):
        self._jobs = jobs
        self._told = [0] * len(jobs)
        self._timed = timed

    def fresh(self) -> list[tuple[int, dict[str, Any]]]:
        """``(number of the job, members of its chunk)``, in order."""
        found = []
        for index, job in enumerate(self._jobs):
            reports = job.reports[self._told[index] :]
            self._told[index] += len(reports)
            found += [(index, self._members(report)) for report in reports]
        return found

    def _members(self, report: Report) -> dict[str, Any]:
        fed = report.processed - report.cached
        pace = {"timings": timings(report.cached, fed, report.ms, 0, 0.0)} if self._timed else {}
        return pace | {
            "prompt_progress": {
                "total": report.total,
                "cache": report.cached,
                "processed": report.processed,
                "time_ms": int(report.ms),
            }
        }
