"""Plain-read bandwidth of this machine: the limit that drawing tokens is measured against.

A share of bandwidth is the weight bytes of a pass over the time of the pass, divided by what a
plain read of the same pages by the same number of threads reaches in the same run. ``PlainRead``
is that read, for a benchmark to alternate with its own passes; run as a script it prints this
machine's figures over fresh memory.

    python -m benchmarks.bandwidth [--threads 1,2] [--bytes 1073741824] [--repeats 20]
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from golem_core.model.memory import memory_limit
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

LINE = 64
SPREAD = 0.15  # a run whose plain reads vary by more than this is void


def _compile() -> ctypes.CDLL:
    """plain_read.c, compiled for this machine into a folder that goes away with the process."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise SystemExit(f"bandwidth: no C compiler {compiler[0]!r}; install one or set CC")
    folder = tempfile.mkdtemp(prefix="plain_read")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "plain_read.so"
    source = Path(__file__).with_name("plain_read.c")
    flags = ["-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-Wno-psabi"]
    subprocess.run([*compiler, *flags, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


class PlainRead:
    """Reads arrays with a number of threads; ``best`` and ``worst`` are GB/s over all reads."""

    def __init__(self, arrays: Sequence[np.ndarray], threads: int):
        """arrays: any dtype, C-contiguous; they are kept alive and read in place."""
        if not 1 <= threads <= 256:
            raise ValueError(f"{threads} threads: 1 to 256 are possible")
        self._function = _compile().plain_read
        self._function.restype = ctypes.c_double
        self._arrays = [a for a in arrays if a.nbytes >= 2 * LINE]
        starts = [-(-a.ctypes.data // LINE) * LINE for a in self._arrays]
        sizes = [a.ctypes.data + a.nbytes - s for a, s in zip(self._arrays, starts, strict=True)]
        count = len(starts)
        self.bytes = sum(size // LINE * LINE for size in sizes)
        self._arguments = (
            (ctypes.c_void_p * count)(*starts),
            (ctypes.c_size_t * count)(*sizes),
            count,
            threads,
        )
        self.rates: list[float] = []
        self.sum = 0

    def read(self) -> float:
        """Reads everything once. -> seconds. ``sum`` is then the exclusive or of all words."""
        total = ctypes.c_uint64()
        seconds = self._function(*self._arguments, ctypes.byref(total))
        if seconds < 0:
            raise OSError("a thread could not be started")
        self.sum = total.value
        self.rates.append(self.bytes / seconds / 1e9)
        return seconds

    @property
    def best(self) -> float:
        """GB/s of the fastest read."""
        return max(self.rates)

    @property
    def steady(self) -> bool:
        """Whether the median read is within 15 % of the best one."""
        return float(np.median(self.rates)) >= (1 - SPREAD) * self.best


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--threads",
        type=kinds.several(kinds.threads()),
        default="1,2",
        help="comma-separated (default 1,2)",
    )
    parser.add_argument(
        "--bytes", type=kinds.whole(8, memory_limit()), default=1 << 30, help="to read (1 GiB)"
    )
    parser.add_argument("--repeats", type=kinds.whole(), default=20)
    args = parser.parse_args()
    memory = np.ones(args.bytes // 8, np.uint64)
    readers = {n: PlainRead([memory], n) for n in args.threads}
    for _ in range(args.repeats):
        for reader in readers.values():
            reader.read()
    for threads, reader in readers.items():
        rates = sorted(reader.rates)
        print(
            f"{threads} threads: best {rates[-1]:.1f} GB/s, median {rates[len(rates) // 2]:.1f}, "
            f"worst {rates[0]:.1f}{'' if reader.steady else '  (unsteady: do not use this run)'}"
        )


if __name__ == "__main__":
    main()
