"""How many threads pay: the physical cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}  # of a cache's size
THREADS_PER_CPU, MOST_THREADS = 4, 16  # beyond both they are a mistake


def physical_cores() -> int:
    """Cores of the affinity mask, siblings of one core counted once, within the cgroup's quota."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if allowed is None:
        return os.cpu_count() or 1
    cores = {_siblings(cpu) for cpu in allowed}
    granted = quota(Path("/sys/fs/cgroup"), _groups())  # may be infinite
    return max(1, math.ceil(min(len(cores), granted)))


def usable_cpus() -> int:
    """Logical processors this process may use: with more threads than these, spinning hurts."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: int) -> None:
    """Refuse more threads than could ever pay.

    Raises:
        ValueError: a clause that says how many there may be.
    """
    usable = usable_cpus()
    most = max(MOST_THREADS, THREADS_PER_CPU * usable)
    if threads > most:
        raise ValueError(
            f"{threads} threads: this process may use {usable} processor(s), and more than {most} "
            "threads would only wait for each other; leave it out for a thread on each core"
        )


def shown_threads(threads: int) -> str:
    """What computes, for a log: ``2 cores``, or ``64 threads on 2 cores``."""
    usable = usable_cpus()
    return f"{threads} cores" if threads <= usable else f"{threads} threads on {usable} cores"


def last_cache(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the last cache, as the system lists caches in a folder; 0 where it does not."""
    found = (0, 0)
    for entry in folder.glob("index*"):
        try:
            level = int((entry / "level").read_text())
            size = (entry / "size").read_text().strip()
            found = max(found, (level, int(size.rstrip("KM")) * _UNITS[size.lstrip("0123456789")]))
        except (OSError, ValueError, KeyError):
            continue
    return found[1]


def core_numbers() -> list[int]:
    """Of every logical processor, up to the last this process may use, a number of its core."""
    known: dict[str, int] = {}
    last = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return [known.setdefault(_siblings(cpu), len(known)) for cpu in range(last + 1)]


def _siblings(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)


def _groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []


def quota(root: Path, groups: list[str]) -> float:
    """Processors the control groups grant, infinity where they set no limit.

    root: where the groups are mounted. groups: lines of /proc/self/cgroup.
    """
    granted = math.inf
    for line in groups:
        _, controllers, path = line.split(":", 2)
        inner = path.strip("/")
        if not controllers:
            for place in (root / inner, root):
                granted = min(granted, _quota_v2(place / "cpu.max"))
        elif "cpu" in controllers.split(","):
            for place in (root / "cpu" / inner, root / "cpu"):
                granted = min(granted, _quota_v1(place))
    return granted


def _quota_v2(path: Path) -> float:
    try:
        limit, period = path.read_text().split()[:2]
        return math.inf if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return math.inf


def _quota_v1(place: Path) -> float:
    try:
        limit = int((place / "cpu.cfs_quota_us").read_text())
        return math.inf if limit <= 0 else limit / int((place / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
