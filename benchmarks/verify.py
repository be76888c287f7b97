"""How fast is a pinned file verified, beside ``openssl dgst -sha256`` on the same bytes?

    python -m benchmarks.verify [FILE]

Both read a file that the system holds in memory, by turns; the best of each counts, in seconds of
the clock and of the processor. What openssl takes for an empty file, its start, is taken off.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from golem_core.pins import digest
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

MIB = 1 << 20


def _cpu() -> float:
    """Seconds of the processor, of this process and of those it has waited for."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, cpu = time.perf_counter(), _cpu()
    run()
    return time.perf_counter() - clock, _cpu() - cpu


def _openssl(path: Path) -> str:
    command = ["openssl", "dgst", "-sha256", "-r", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0]


def _best(some: list[tuple[float, float]]) -> tuple[float, float]:
    return min(clock for clock, _ in some), min(cpu for _, cpu in some)


def measure(path: Path, empty: Path, rounds: int) -> int:
    """Print both rates and their ratio; 1 where golem has less than 0.9 of openssl's."""
    if digest(path)[0] != _openssl(path):
        raise SystemExit("the two digests differ")
    times: dict[str, list[tuple[float, float]]] = {"golem": [], "openssl": [], "start": []}
    for _ in range(rounds):
        times["golem"].append(_timed(lambda: digest(path)))
        times["openssl"].append(_timed(lambda: _openssl(path)))
        times["start"].append(_timed(lambda: _openssl(empty)))
    golem, openssl, start = (_best(times[name]) for name in ("golem", "openssl", "start"))
    size, worst = path.stat().st_size, 10.0
    for what, mine, whole, off in zip(("clock", "cpu"), golem, openssl, start, strict=True):
        theirs = max(whole - off, 1e-9)
        worst = min(worst, theirs / mine)
        print(
            f"{what:<6} golem {size / mine / 1e9:.2f} GB/s, openssl {size / theirs / 1e9:.2f}, "
            f"ratio {theirs / mine:.2f}"
        )
    return 0 if worst >= 0.9 else 1


def main() -> int:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=kinds.file, nargs="?", help="default: one that is made")
    parser.add_argument(
        "--mib", type=kinds.mebibytes, default=256, help="size of the one that is made"
    )
    parser.add_argument("--rounds", type=kinds.whole(), default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="golem-verify-") as folder:
        empty, path = Path(folder) / "empty", arguments.file
        empty.touch()
        if path is None:
            path = Path(folder) / "bytes"
            path.write_bytes(bytes(range(256)) * (arguments.mib * MIB // 256))
        return measure(path, empty, arguments.rounds)


if __name__ == "__main__":
    sys.exit(main())
