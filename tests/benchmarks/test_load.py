"""What benchmarks/load.py says of memory: it is read when it is used, and a waste would show."""

import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from benchmarks import load
from benchmarks.load import Loaded, memory_line

GIB = 1 << 30


@pytest.mark.parametrize(
    ("loaded", "full", "rings", "times"),
    [
        (GIB, GIB + GIB // 4, GIB // 4, "1.00 times"),
        (2 * GIB, GIB + GIB // 4, GIB // 4, "2.00 times"),  # held twice while it was loaded
        (GIB, 3 * GIB, GIB // 2, "2.50 times"),  # held twice later
        (GIB, GIB + GIB // 2, GIB // 4, "1.25 times"),  # activations count
    ],
)
def test_what_is_taken_off_is_only_what_the_prompt_filled(loaded, full, rings, times):
    line = memory_line(Loaded([1.0], loaded, full), rings, GIB)
    assert line.startswith(f"golem's process: {times} the file: ")
    assert f"less its keys and values, {rings >> 20} MiB" in line


def test_memory_is_read_after_the_context_is_full_and_in_the_first_round_only(monkeypatch):
    done = []

    @contextmanager
    def started(program, model, *, parallel, context, threads):
        done.append(("start", parallel * context))
        yield SimpleNamespace(pid=7), 8080, 0.5

    async def ask(port, text, drawn):
        done.append(("ask", port, len(text) + drawn))

    def resident(pid, which):
        done.append((which, pid))
        return len(done)

    monkeypatch.setattr(load, "started", started)
    monkeypatch.setattr(load, "ask", ask)
    monkeypatch.setattr(load, "resident", resident)
    monkeypatch.setattr(load, "words_of", lambda model: [1, 2, 3])
    found = Loaded()
    for _ in range(2):
        found.start(None, None, 1)
    start = ("start", load.CONTEXT)
    assert done == [
        start,
        ("VmHWM", 7),
        ("ask", 8080, load.CONTEXT - load.DRAWN),
        ("VmRSS", 7),
        start,
    ]
    assert (found.seconds, found.loaded, found.full) == ([0.5, 0.5], 2, 4)


def test_the_larger_set_is_read_for_the_largest():
    assert load.resident(os.getpid(), "VmHWM") >= load.resident(os.getpid(), "VmRSS") > 0
