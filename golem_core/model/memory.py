"""How much memory a model will need, told before any of it is taken."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from golem_core.graph.program import Program
from golem_core.graph.values import extent_at
from golem_core.state.declare import Matrix, Ring, Window
from golem_core.state.kinds import CACHE_TYPES, CacheType

_GROUPS = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Estimate:
    """Bytes a model takes at its fullest.

    weights: the tensors it multiplies by. rings: every state of every slot, filled. arena:
    activations of the widest pass. per_position: what one more position of every slot costs; window
    layers stop costing at their window. tables: tensors of which only rows are read; they stay in
    the file's map, whose pages the system drops when it needs them, and are no part of the total.
    """

    weights: int
    rings: int
    arena: int
    per_position: int
    tables: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        both = zip(astuple(self), astuple(other), strict=True)
        return Estimate(*(mine + theirs for mine, theirs in both))

    @property
    def total(self) -> int:
        return self.weights + self.rings + self.arena


def estimate_program(
    program: Program,
    slots: int,
    context: int,
    pass_width: int,
    cache: tuple[str, str] = ("f16", "f16"),
) -> Estimate:
    """The estimate of a written program.

    context: positions of one slot. cache: what keys and what values are kept as.
    """
    kinds = CACHE_TYPES[cache[0]], CACHE_TYPES[cache[1]]
    tables = program.tables
    weights = _multiplied(program)
    rings = slots * sum(
        _state_bytes(state, context, pass_width, kinds) for state in program.states.values()
    )
    per_position = slots * sum(
        _line_bytes(s, kinds) * s.rate
        for s in program.states.values()
        if isinstance(s, Ring) and s.window is None
    )
    arena = _widest_bytes(program, pass_width)
    mapped = sum(w.nbytes for w in tables.values())
    return Estimate(sum(weights.values()), rings, arena, per_position, mapped)


def estimate_beside(program: Program, other: Program) -> Estimate:
    """What a program takes that runs with the states and, where they have them in common, the
    weights of another."""
    known = _multiplied(other).keys()
    weights = sum(size for at, size in _multiplied(program).items() if at not in known)
    return Estimate(weights, 0, _widest_bytes(program, program.axes["n"]), 0)


def _multiplied(program: Program) -> dict[int, int]:
    """Bytes of the weights that products read, by their address."""
    tables = program.tables
    multiplied = (w for name, w in program.weights.items() if name not in tables)
    return {w.data.ctypes.data: w.nbytes for w in multiplied}


def _line_bytes(ring: Ring, kinds: tuple[CacheType, CacheType]) -> int:
    """Of one position's keys and values."""
    return ring.heads * (kinds[0].line_bytes(ring.k) + kinds[1].line_bytes(ring.v))


def _state_bytes(
    state: Ring | Matrix | Window,
    context: int,
    pass_width: int,
    kinds: tuple[CacheType, CacheType],
) -> int:
    if isinstance(state, Ring):
        return state.capacity(context, pass_width) * _line_bytes(state, kinds)
    if isinstance(state, Matrix):
        return state.heads * state.v * state.k * 4
    return state.rows * state.channels * 4


def _widest_bytes(program: Program, pass_width: int) -> int:
    """The most bytes of values alive at once when ops run in order and free what nobody reads."""
    sizes = {**program.axes, "n": pass_width}
    last: dict[int, int] = {}
    for at, node in enumerate(program.nodes):
        for x in node.inputs:
            if hasattr(x, "root"):
                last[x.root.id] = at
    for name in ("logits", "rows"):
        if name in program.outputs:
            last[program.outputs[name].root.id] = len(program.nodes)
    alive: dict[int, int] = {}
    most = 0
    for at, node in enumerate(program.nodes):
        for y in node.outputs:
            alive[y.id] = 4 * extent_at(y.rows, sizes) * math.prod(y.inner)
        most = max(most, sum(alive.values()))
        alive = {id: size for id, size in alive.items() if last.get(id, -1) > at}
    return most


def checkpoint_memory(needs: Estimate, asked: int = 0, limit: int | None = None) -> int:
    """Bytes that copies of recurrent states may take: as many as asked, a quarter of the memory
    when 0, and never more than the model leaves of it.

    limit: as ``memory_limit`` gives it when None.
    """
    limit = memory_limit() if limit is None else limit
    return max(0, min(asked or limit // 4, limit - needs.total))


def memory_limit() -> int:
    """Bytes this process may use: the machine's memory or its control group's limit."""
    return int(min(_machine(), group_limit(_GROUPS, _own_groups())))


def told_limit(limit: int, asked: bool) -> str:
    """A limit in words, for a refusal: whose it is, and what of it is free now if that is known.

    asked: whether the caller gave the limit; it is ``memory_limit``'s otherwise.
    """
    gib = 1 << 30
    if asked:
        return f"{limit / gib:.1f} GiB are allowed"
    if limit < _machine():
        told = (
            f"the control group of this process (a container or a unit) may use {limit / gib:.1f} "
            f"GiB of the machine's {_machine() / gib:.1f}"
        )
    else:
        told = f"this machine has {limit / gib:.1f} GiB"
    free = min(free_memory(_MEMINFO), group_free(_GROUPS, _own_groups()), limit)
    return told + (f", {free / gib:.1f} of them free now" if free < limit else "")


def free_memory(meminfo: Path) -> float:
    """Bytes that the machine could give now, caches of files among them; inf where it is not told.

    meminfo: as /proc/meminfo.
    """
    try:
        found = re.search(r"^MemAvailable: *(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) << 10 if found else math.inf


def group_limit(root: Path, groups: Sequence[str]) -> float:
    """Bytes that the control groups allow, those above the process's own too; inf for any.

    root: where the groups are mounted. groups: lines of /proc/self/cgroup. In a container the group
    that a line names may not be seen: its limit is the root's then.
    """
    return min((limit for _, limit in _limits(root, groups)), default=math.inf)


def group_free(root: Path, groups: Sequence[str]) -> float:
    """Bytes that the control groups would still give now, caches of files among them; inf for any.

    Arguments as of ``group_limit``.
    """
    return min((limit - _used(folder) for folder, limit in _limits(root, groups)), default=math.inf)


def _machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _own_groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []


def _limits(root: Path, groups: Sequence[str]) -> Iterator[tuple[Path, int]]:
    """The groups that have a limit, and it."""
    for line in groups:
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        top = root / kinds
        name = "memory.limit_in_bytes" if kinds else "memory.max"
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(top):
                break
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield folder, int(text)


def _used(folder: Path) -> int:
    """Bytes a group has taken and would not give back; 0 where it does not tell."""
    for name, prefix in (("memory.current", ""), ("memory.usage_in_bytes", "total_")):
        try:
            taken = int((folder / name).read_text())
            told = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        cached = (f"{prefix}active_file", f"{prefix}inactive_file")
        return max(0, taken - sum(int(told.get(key, 0)) for key in cached))
    return 0
