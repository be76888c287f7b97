"""Where the system gives no more threads, each way of serving ends with one line and status 1."""

import os
import subprocess
import sys

import pytest

from golem_core.settings import SettingsError
from golem_server import serve
from golem_server.threads import NO_THREAD, starting
from tests.server.conftest import COMMANDS, PATIENCE, ROOT, SETTINGS

# Starts a program in which only so many threads may be started, as under a limit of the system.
LIMITED = """
import _thread, runpy, sys, threading
left, real = [int(sys.argv[1])], _thread.start_new_thread
def start(*arguments):
    if not left[0]:
        raise RuntimeError("can't start new thread")
    left[0] -= 1
    return real(*arguments)
threading._start_new_thread = start
module, sys.argv = sys.argv[2], sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
HANDLERS = 2 + 2 + 16  # -parallel, -queue and those for health


@pytest.mark.parametrize("kind", ["golem-server", "golem-gunicorn"])
@pytest.mark.parametrize("given", [0, HANDLERS - 1, HANDLERS, HANDLERS + 1])
def test_too_few_threads_are_one_line_and_status_1(kind, given):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GOLEM_")}
    command = [part for part in COMMANDS[kind][2:] if part not in ("--log-level", "info")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(given), *command],
        cwd=ROOT,
        env=environ | SETTINGS | {"PYTHONPATH": str(ROOT), "GOLEM_MODEL": "not-there.gguf"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1, done.stderr
    text = f"golem-server: {NO_THREAD}"
    if given < HANDLERS:
        text += f" ({HANDLERS} handle requests: -parallel + -queue + 16)"
    elif given > HANDLERS:  # the loader got its thread
        text = "golem-server: not-there.gguf: cannot be opened: no such file or directory"
    assert done.stderr == text + "\n"


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="other"), starting():
        raise RuntimeError("other")
    with pytest.raises(SettingsError, match="the system lets"), starting():
        raise RuntimeError("can't start new thread")


def test_an_error_of_the_runners_own_thread_is_told_likewise():
    assert serve.one_line(RuntimeError("can't start new thread")) == NO_THREAD
