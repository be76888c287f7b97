"""Runs the cases of a target in a process of their own, with bounds on memory and time.

A crash or a hang of that process is a result like any other: the parent knows the case that was
running, and the number of a case is all that is needed to run it again.
"""

import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# One case: True when the input was accepted, False when it was refused by name; whatever else it
# raises is a failure.
Case = Callable[[random.Random], bool]

_STATE = struct.Struct("<QQQ")  # the case that runs, how many were accepted, how many refused


@dataclass(frozen=True)
class Limits:
    """Seconds a case may take, and bytes the process may grow by over the whole run."""

    seconds: int
    memory: int


@dataclass(frozen=True)
class Report:
    """What a run found; ``failure`` is empty when nothing failed, else of case ``stopped_at``."""

    accepted: int
    refused: int
    seconds: float
    failure: str
    stopped_at: int

    def __str__(self) -> str:
        text = f"{self.accepted + self.refused} cases in {self.seconds:.1f} s, "
        text += f"{self.accepted} accepted, {self.refused} refused by name"
        return text + (
            f"; FAILED at case {self.stopped_at}: {self.failure}" if self.failure else ""
        )


def run(case: Case, numbers: Sequence[int], seed: int, limits: Limits) -> Report:
    """Run the cases ``numbers`` of ``seed`` until one fails."""
    state = mmap.mmap(-1, _STATE.size)
    started = time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _bound(limits)
            _work(case, numbers, seed, limits.seconds, state)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    number, accepted, refused = _STATE.unpack(state[:])
    seconds = time.monotonic() - started
    return Report(accepted, refused, seconds, _failure(status, limits), number)


def _failure(status: int, limits: Limits) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGALRM:
            return f"it took more than {limits.seconds} s"
        return f"the process was ended by {signal.Signals(number).name}"
    return "an error that is no refusal, see above" if os.WEXITSTATUS(status) else ""


def _bound(limits: Limits) -> None:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    allowed = pages * resource.getpagesize() + limits.memory
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(case: Case, numbers: Sequence[int], seed: int, seconds: int, state: mmap.mmap) -> None:
    counts = [0, 0]
    for number in numbers:
        _STATE.pack_into(state, 0, number, *counts)
        signal.alarm(seconds)  # unhandled: ends the process, even inside C
        accepted = case(random.Random(f"{seed}/{number}"))
        counts[0 if accepted else 1] += 1
    signal.alarm(0)
    _STATE.pack_into(state, 0, numbers[-1], *counts)
