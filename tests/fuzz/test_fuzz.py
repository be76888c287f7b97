"""The fuzzer itself, and a share of its cases at every run of the tests."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.gguf import header_fields
from tests.fuzz.mutate import damage

ROOT = Path(__file__).parents[2]

# Targets that go wrong in every way there is; run in a process of their own.
BROKEN = """
import os, signal
import numpy as np
from tests.fuzz.harness import Limits, run

def case(rng):
    if rng.random() < 0.8:
        return rng.random() < 0.5
    {fault}
    return True

report = run(case, range(1000), 5, Limits(seconds=1, memory=32 << 20))
print(report)
print(report.stopped_at)
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("target", ["gguf", "safetensors"])
def test_damaged_files_are_accepted_or_refused_by_name(target):
    """Two in a hundred of the cases that a release runs."""
    done = python("-m", "tests.fuzz", target, "--cases", "2000", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{target}, seed 1: 2000 cases in ")


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by SIGSEGV"),
        ("os.abort()", "the process was ended by SIGABRT"),
        ("while True: pass", "it took more than 1 s"),
        ("raise ValueError('no refusal')", "an error that is no refusal, see above"),
        ("np.ones(64 << 20, np.uint8)", "an error that is no refusal, see above"),
    ],
)
def test_a_crash_a_hang_and_a_wrong_error_are_reported_with_their_case(fault, failure):
    done = python("-c", BROKEN.format(fault=fault))
    summary, stopped = done.stdout.splitlines()
    first = next(i for i in range(1000) if random.Random(f"5/{i}").random() >= 0.8)
    assert int(stopped) == first
    assert summary.endswith(f"FAILED at case {first}: {failure}")
    assert summary.startswith(f"{first} cases in ")


def test_the_command_says_how_to_repeat_a_failure(tmp_path):
    script = (
        "import sys, tests.fuzz.gguf as target\n"
        "from tests.fuzz.__main__ import main\n"
        "target.examine = lambda path: 1 // 0\n"
        "sys.exit(main(['gguf', '--cases', '9', '--first', '4', '--seed', '3']))\n"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "again: python -m tests.fuzz gguf --seed 3 --first 4 --cases 1" in done.stdout


def test_damaged_pictures_and_recordings_are_decoded_or_refused_by_name():
    """Two in a hundred of the cases that a release runs."""
    done = python("-m", "tests.fuzz", "media", "--cases", "2000", "--seed", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("media, seed 2: 2000 cases in ")


def test_random_answers_are_sorted_alike_whole_and_streamed():
    """Two in a hundred of the cases that a release runs."""
    done = python("-m", "tests.fuzz", "sorter", "--cases", "20000", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("sorter, seed 1: 20000 cases in ")


def test_damage_changes_the_file_and_follows_the_seed():
    data = bytes(range(256)) * 4
    fields = [(4, 4), (8, 8), (1000, 8)]
    changed = [damage(data, fields, [data], random.Random(i)) for i in range(200)]
    assert changed == [damage(data, fields, [data], random.Random(i)) for i in range(200)]
    assert sum(new == data for new in changed) < 10
    assert len({len(new) for new in changed}) > 20


def test_header_fields_are_the_integers_of_the_header():
    """A key "k" of type u32 and a tensor "t" of one dimension, counted by hand."""
    key = b"\1\0\0\0\0\0\0\0k" + b"\4\0\0\0" + b"\7\0\0\0"
    tensor = b"\1\0\0\0\0\0\0\0t" + b"\1\0\0\0" + b"\5" + bytes(7) + bytes(4) + bytes(8)
    data = b"GGUF\3\0\0\0" + b"\1" + bytes(7) + b"\1" + bytes(7) + key + tensor
    start = 24 + len(key)
    assert header_fields(data) == [
        (4, 4),
        (8, 8),
        (16, 8),
        (24, 8),
        (33, 4),
        (start, 8),
        (start + 9, 4),
        (start + 13, 8),
        (start + 21, 4),
        (start + 25, 8),
    ]
