"""The commands as they are installed: an interrupt ends each without a traceback.

A program is imported inside, since an interrupt may come before it has begun.
"""

import importlib

INTERRUPTED = 130  # what a shell calls a program that Ctrl-C ended


def run(module: str) -> int:
    """Import a module and run its ``main``; returns the exit status."""
    try:
        return importlib.import_module(module).main()
    except KeyboardInterrupt:
        return INTERRUPTED


def server() -> int:
    """``golem-server``."""
    return run("golem_server.cli")


def cli() -> int:
    """``golem-cli``."""
    return run("golem_server.terminal")


def bench() -> int:
    """``golem-bench``."""
    return run("golem_server.bench")


def inspect() -> int:
    """``golem-inspect``."""
    return run("golem_server.inspect")


def models() -> int:
    """``golem-models``."""
    return run("golem_server.pinning")
