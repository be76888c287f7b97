"""Weights in the layout of the kernels: repacked once, at load, whoever multiplies by them.

The repacked matrices lie in one anonymous map (golem_core.cpu.pages). What was repacked from a
read-only file map is given back to the system at once, so that memory does not hold a weight
twice; the file's page cache is left alone.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from golem_core.cpu import _executor
from golem_core.cpu.pages import Pages
from golem_core.graph.program import Program
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import Weight

BATCH = 64 << 20  # bytes repacked between two reports of progress
GROUP = 16  # rows of a group


@dataclass(frozen=True)
class Matrix:
    """Where a repacked weight lies. bytes: what reading all of it costs."""

    address: int
    group_bytes: int
    expert_bytes: int  # from one expert's groups to the next's
    bytes: int


class WeightStore:
    """Repacked matrices by the tensors they were made from. One store may serve many programs."""

    def __init__(self):
        self._matrices: dict[tuple, Matrix] = {}
        self._kept: list[Weight] = []  # their addresses are keys
        self._pages: list[Pages] = []

    def __getitem__(self, weight: Weight) -> Matrix:
        return self._matrices[_key(weight)]

    @property
    def nbytes(self) -> int:
        return sum(m.bytes for m in self._matrices.values())

    def add(
        self,
        program: Program,
        pool: _executor.Pool,
        progress: Callable[[float], None] | None = None,
    ) -> Callable[[], None]:
        """Makes room for what the program's products read and the store does not hold yet.

        -> a function that repacks it, which any thread may call; plans can be made meanwhile.
        progress is called with the share done so far, 0 to 1, and may raise to give up.
        """
        wanted: dict[tuple, Weight] = {}
        for weight in program.weights.values():
            if not _executor.knows(weight.type.id):
                raise ProgramError(f"{weight.name}: no kernel reads {weight.type.name}")
        for weight in multiplied(program):
            if _key(weight) not in self._matrices:
                wanted.setdefault(_key(weight), weight)
        for table in program.tables.values():
            _read_at_random(table.data)
        jobs = self._allocate(wanted)
        return lambda: self._repack(jobs, pool, progress)

    def _repack(self, jobs, pool, progress) -> None:
        if not jobs:
            return
        pages, done, batch, size = self._pages[-1], 0, [], 0
        for i, (*job, nbytes) in enumerate(jobs):
            batch.append(tuple(job))
            size += nbytes
            if size >= BATCH or i == len(jobs) - 1:
                done += size
                pages.touch(done, pool)
                pool.load(batch)
                if progress is not None:
                    progress(done / pages.size)
                batch, size = [], 0
        pages.touched()

    def settle(self) -> bool:
        """Some milliseconds' work to make reading quicker, between passes; False: none is left."""
        return any(pages.settle() for pages in self._pages)

    def _allocate(self, wanted: dict[tuple, Weight]) -> list[tuple]:
        """Room for every weight; -> what Pool.load takes, and the bytes it makes."""
        sizes = {key: _sizes(w) for key, w in wanted.items()}
        total = sum(experts * each for _, experts, each in sizes.values())
        if not total:
            return []
        self._pages.append(Pages(total))
        at = self._pages[-1].address
        jobs = []
        for key, w in wanted.items():
            group, experts, each = sizes[key]
            self._matrices[key] = Matrix(at, group, each, experts * each)
            self._kept.append(w)
            jobs += _jobs(w, at, group, experts, each)
            at += experts * each
        return jobs


def _jobs(w: Weight, at: int, group: int, experts: int, each: int) -> Iterable[tuple]:
    """What Pool.load takes, and the bytes it makes, in pieces of about a batch.

    A piece's source leaves memory with its batch, so at no time is a large matrix there twice.
    """
    source, row, expert = w.data.ctypes.data, w.data.strides[-2], w.data.strides[0]
    release = int(_on_file_map(w.data))
    if experts > 1:
        step = max(1, BATCH // each)
        for first in range(0, experts, step):
            count = min(step, experts - first)
            start, to = source + first * expert, at + first * each
            shape = (count, w.out, w.width)
            yield start, row, expert, to, group, w.type.id, *shape, release, count * each
        return
    step = max(1, BATCH // group) * GROUP
    for first in range(0, w.out, step):
        rows = min(step, w.out - first)
        to, size = at + first // GROUP * group, -(-rows // GROUP) * group
        yield (
            source + first * row,
            row,
            expert,
            to,
            group,
            w.type.id,
            1,
            rows,
            w.width,
            release,
            size,
        )


def multiplied(program: Program) -> Iterable[Weight]:
    """The weights that products of the program read; tables that only give rows stay mapped."""
    for node in program.nodes:
        if node.op in ("linear", "linear_by_expert", "conv2d"):
            yield from node.weights


def _key(w: Weight) -> tuple:
    return w.data.ctypes.data, w.shape, w.type.id, w.data.strides


def _sizes(w: Weight) -> tuple[int, int, int]:
    """Bytes of a group, experts, bytes of an expert."""
    experts = w.shape[0] if len(w.shape) == 3 else 1
    if w.data.strides[-1] != 1:
        raise ProgramError(f"{w.name}: the bytes of its rows do not lie together")
    group = _executor.group_bytes(w.type.id, w.width)
    return group, experts, group * -(-w.out // GROUP)


def _on_file_map(array: np.ndarray) -> bool:
    """Whether an array is a view of a read-only memory map of a file."""
    return not array.flags.writeable and _map_of(array) is not None


def _map_of(array: np.ndarray) -> mmap.mmap | None:
    """The memory map that an array is a view of."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def _read_at_random(table: np.ndarray) -> None:
    """Has the system read no more of a table from the disk than the rows that are asked for."""
    pages = _map_of(table)
    if pages is None or table.flags.writeable or not hasattr(mmap, "MADV_RANDOM"):
        return
    start = table.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + (len(table) - 1) * table.strides[0]) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        pages.madvise(mmap.MADV_RANDOM, first, last - first)
