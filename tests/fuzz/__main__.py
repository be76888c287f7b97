"""The command: picks the target's module, runs its cases, says what it found."""

import argparse
import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

import tests.fuzz
from tests.fuzz.harness import Limits, run


def main(argv: list[str] | None = None) -> int:
    """Run one target; 0 when every case was accepted or refused by name, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=_targets())
    parser.add_argument("--cases", type=int, default=1000, help="how many to run (1000)")
    parser.add_argument("--seed", type=int, default=0, help="case i of a seed is always the same")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--seconds", type=int, default=20, help="allowed for one case (20)")
    parser.add_argument("--memory", type=int, default=64, help="MiB allowed to a run (64)")
    options = parser.parse_args(argv)
    target = importlib.import_module(f"tests.fuzz.{options.target}")
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_folder()) as folder:
        report = run(
            target.prepare(Path(folder)),
            range(options.first, options.first + options.cases),
            options.seed,
            Limits(options.seconds, options.memory << 20),
        )
    print(f"{options.target}, seed {options.seed}: {report}")
    if report.failure:
        print(
            f"again: python -m tests.fuzz {options.target} --seed {options.seed} "
            f"--first {report.stopped_at} --cases 1"
        )
    return 1 if report.failure else 0


def _targets() -> list[str]:
    names = {module.name for module in pkgutil.iter_modules(tests.fuzz.__path__)}
    return sorted(names - {"__main__", "harness", "mutate", "test_fuzz"})


def _fast_folder() -> str | None:
    """A folder in memory where there is one: every case writes a file."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
