"""The commands as they are installed: an interrupt ends each without a traceback.

A program is imported inside, since an interrupt may come before it has begun.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from golem_server.stderr import say

CUT = 141  # what a shell calls a program whose reader has gone
INTERRUPTED = 130  # what a shell calls a program that Ctrl-C ended


def run(module: str, program: str) -> int:
    """Import a module and run its ``main``; returns the exit status.

    What cannot be written to standard output is one line, and status 1: Python alone would try
    again while it ends, and leave a traceback. A reader that has seen enough (``| head``) ends the
    command without a word.
    """
    status = 0
    try:
        try:
            status = importlib.import_module(module).main()
        except SystemExit as end:  # how argparse ends after its help, and for a wrong flag
            status = int(end.code or 0)
        if sys.stdout is not None:  # closed by whoever started the program
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return status or CUT
        if not status:
            say(f"{program}: standard output: {error.strerror}")
        return status or 1
    return status


class Flags(argparse.ArgumentParser):
    """Flags with one dash or two, ``-help`` among them."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named, add_help=False)
        self.add_argument("-h", "-help", "--help", action="help", help="print this text and leave")

    def error(self, message: str) -> NoReturn:
        """Leave as for any other mistake: a line, status 1."""
        self.exit(1, f"{self.prog}: {message}; -help lists what exists\n")

    def described(self) -> Iterator[tuple[list[str], str, str]]:
        """Of each flag its names, what it is given and what it means."""
        for flag in self._actions:
            if flag.help is not argparse.SUPPRESS:
                value = "" if flag.nargs == 0 else flag.metavar or flag.dest.upper()
                value = ", ".join(flag.choices) if flag.choices else value
                yield list(flag.option_strings), value, flag.help

    def print_help(self, file: Any = None) -> None:
        """Print it; unlike argparse's own, not silent where nothing can be written."""
        print(self.format_help(), end="", file=file)


def server() -> int:
    """``golem-server``."""
    return run("golem_server.cli", "golem-server")


def cli() -> int:
    """``golem-cli``."""
    return run("golem_server.terminal", "golem-cli")


def bench() -> int:
    """``golem-bench``."""
    return run("golem_server.bench", "golem-bench")


def inspect() -> int:
    """``golem-inspect``."""
    return run("golem_server.inspect", "golem-inspect")


def models() -> int:
    """``golem-models``."""
    return run("golem_server.pinning", "golem-models")
