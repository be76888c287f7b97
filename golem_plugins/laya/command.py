"""``golem-laya``: decisions from the command line, without a server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golem_core.schedule import PassFailed
from golem_plugins.laya.answers import written
from golem_plugins.laya.decider import open_decider
from golem_plugins.laya.questions import Refused

USAGE = """usage: golem-laya -laya DIR [-threads N] REQUEST.json ...

  -laya DIR     the checkpoint; $GOLEM_LAYA
  -threads N    cores to compute on; default the physical ones

A request is {"state": ..., "questions": {...}}, or {"states": [...], "questions": {...}};
- reads it from standard input. The reply is printed as JSON, one line for each file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 1 for a refusal, 2 for a wrong command line."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    folder, threads, files = os.environ.get("GOLEM_LAYA", ""), None, []
    while words:
        word = words.pop(0)
        flag, equals, value = word.lstrip("-").partition("=")
        if word in ("-help", "--help", "-h"):
            print(USAGE)
            return 0
        if word.startswith("-") and word != "-":
            if flag not in ("laya", "threads") or not (equals or words):
                return _fail(f"there is no flag {word}, or it needs a value\n{USAGE}", 2)
            value = value if equals else words.pop(0)
            if flag == "laya":
                folder = value
            elif value.isdigit() and int(value):
                threads = int(value)
            else:
                return _fail(f"-threads {value}: a whole number from 1 is expected", 2)
        else:
            files.append(word)
    if not folder:
        return _fail(f"golem-laya: which checkpoint? pass -laya DIR or set GOLEM_LAYA\n{USAGE}", 2)
    if not files:
        return _fail(f"golem-laya: which request? name a JSON file, or - to type one\n{USAGE}", 2)
    return _answer(folder, threads, files)


def _answer(folder: str, threads: int | None, files: list[str]) -> int:
    status = 0
    try:
        decider = open_decider(folder, threads=threads)
    except (ValueError, OSError) as error:
        return _fail(f"golem-laya: {error}")
    try:
        for name in files:
            try:
                body = _read(name)
                batch = isinstance(body, dict) and "states" in body
                made = written(decider.decide_batch(body) if batch else decider.decide(body))
            except (Refused, PassFailed) as error:
                status = _fail(f"golem-laya: {name}: {error}")
            except RecursionError:
                status = _fail(f"golem-laya: {name}: the state is nested too deep")
            else:
                print(made, flush=True)
    except (OSError, UnicodeError) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes what Python writes out at its end
        status = _fail(f"golem-laya: the reply cannot be written: {error}")
    finally:
        decider.close()
    return status


def _read(name: str) -> Any:
    """The JSON of a file, or of standard input. Raises Refused."""
    try:
        return json.loads(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
    except OSError as error:
        raise Refused(400, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"is not JSON: {error}") from None


def _fail(text: str, status: int = 1) -> int:
    print(text, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
