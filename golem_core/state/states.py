"""The memory a program's declarations ask for: allocated once, shared by every slot.

Executors write and read these arrays in place; the scheduler only ever copies, saves or restores
the part of one slot. Memory comes from anonymous maps, so pages nobody touched cost nothing: a
server opened with a long context pays for the positions that conversations really reach.

That holds for huge pages too, because what 64 positions of a slot keep lies together, in all rings
of one capacity: block by block, in each the rings one after the other, keys before values, in each
of these the heads. A block is a few megabytes, and a slot takes as many as it needs.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np

from golem_core.maps import untouched
from golem_core.state.declare import BLOCK as PLACES
from golem_core.state.declare import Matrix, Ring, State, Window
from golem_core.state.kinds import BLOCK, CACHE_TYPES, CacheType, turns

LINE = 64  # bytes of a cache line


class StateError(ValueError):
    """A state that cannot be allocated, or bytes that do not belong to it."""


@dataclass(frozen=True)
class RingArrays:
    """One ring of every slot. Position p of a slot lies in place p mod ``capacity``, and place c
    of an array at ``[slot, c // 64, :, c % 64]``. Lines of a head and block are contiguous, and
    both arrays have the same strides from slot to slot and from block to block."""

    declaration: Ring
    capacity: int  # places C a slot, a multiple of 64
    k: np.ndarray  # (slots, C / 64, heads, 64, k), or the bytes of a line kept in blocks
    v: np.ndarray  # (slots, C / 64, heads, 64, v)

    def lines(self, slot: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Copies of what places (n,) of a slot hold: keys (n, heads, k), values (n, heads, v)."""
        at = (slot, places // PLACES, slice(None), places % PLACES)
        return self.k[at], self.v[at]

    def put(self, slot: int, places: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
        """Writes what ``lines`` gives."""
        at = (slot, places // PLACES, slice(None), places % PLACES)
        self.k[at], self.v[at] = k, v

    def parts(self, slot: int, positions: int) -> list[np.ndarray]:
        """Views of the places that ``positions`` columns of the slot have written: whole blocks
        and the rest, of keys, then of values."""
        used = min(positions * self.declaration.rate, self.capacity)
        whole, rest = divmod(used, PLACES)
        found = []
        for lines in (self.k[slot], self.v[slot]):
            found.append(lines[:whole])
            if rest:
                found.append(lines[whole, :, :rest])
        return found


class States:
    """Every state of a program, for ``slots`` conversations of ``context`` positions each.

    declarations: Ring, Matrix and Window records, or a mapping whose values they are.
    context: positions a slot keeps. pass_width: columns of the widest pass; a sliding ring keeps
    that many positions besides its window. type_k, type_v: what keys and values are kept as, a
    key of CACHE_TYPES; recurrent states are f32 always. Raises StateError.
    """

    def __init__(
        self,
        declarations: Iterable[State] | Mapping[str, State],
        slots: int,
        context: int,
        pass_width: int,
        type_k: str = "f16",
        type_v: str = "f16",
    ):
        for name in (type_k, type_v):
            if name not in CACHE_TYPES:
                known = ", ".join(CACHE_TYPES)
                raise StateError(f"a cache of {name!r}: golem keeps keys and values as {known}")
        if min(slots, context, pass_width) < 1:
            raise StateError(
                f"{slots} slots of {context} positions and passes of {pass_width} columns: "
                "each must be at least 1"
            )
        self.slots = slots
        self.context = context
        self.pass_width = pass_width
        self.type_k, self.type_v = type_k, type_v
        self.rings: dict[str, RingArrays] = {}
        self.matrices: dict[str, np.ndarray] = {}  # (slots, heads, v, k) f32
        self.windows: dict[str, np.ndarray] = {}  # (slots, rows, channels) f32
        if isinstance(declarations, Mapping):
            declarations = declarations.values()
        declarations = list(declarations)
        rings = [d for d in declarations if isinstance(d, Ring)]
        # values of a line that are turned together before they are kept in blocks; 0 = none
        self.turn_k = turns(CACHE_TYPES[type_k], rings, "k")
        self.turn_v = turns(CACHE_TYPES[type_v], rings, "v")
        self._memory: list[np.ndarray] = []  # what all of them are views of
        for d in declarations:
            self._allocate(d)
        self._allocate_rings(rings)

    def _allocate(self, d: State) -> None:
        if isinstance(d, Matrix):
            self.matrices[d.name] = self._zeros((self.slots, d.heads, d.v, d.k), np.float32)
        elif isinstance(d, Window):
            self.windows[d.name] = self._zeros((self.slots, d.rows, d.channels), np.float32)
        elif not isinstance(d, Ring):
            raise StateError(f"{d!r} is neither a Ring, a Matrix nor a Window")

    def _allocate_rings(self, rings: Iterable[Ring]) -> None:
        """Those of one capacity together."""
        together = defaultdict(list)
        for d in rings:
            together[d.capacity(self.context, self.pass_width)].append(d)
        kinds = (CACHE_TYPES[self.type_k], CACHE_TYPES[self.type_v])
        made = {}
        for capacity, some in together.items():
            lines = [
                (d, kind, _line(kind, w))
                for d in some
                for kind, w in zip(kinds, (d.k, d.v), strict=True)
            ]
            size = sum(d.heads * PLACES * line for d, _, line in lines)
            blocks = self._zeros((self.slots, capacity // PLACES, size), np.uint8)
            arrays, at = [], 0
            for d, kind, line in lines:
                part = blocks[:, :, at : at + d.heads * PLACES * line].view(kind.dtype)
                arrays.append(_split(part, (d.heads, PLACES)))
                at += d.heads * PLACES * line
            for d, k, v in zip(some, arrays[::2], arrays[1::2], strict=True):
                made[d.name] = RingArrays(d, capacity, k, v)
        self.rings.update((d.name, made[d.name]) for d in rings)

    def _zeros(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """Zeros on page boundaries, no page of them touched."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size == 0:
            return np.zeros(shape, dtype)
        try:
            pages = untouched(size)
        except (OSError, ValueError, OverflowError) as error:
            raise StateError(
                f"{size / 2**30:.1f} GiB for states of shape {shape}: {error}; "
                "lower -context or -parallel"
            ) from error
        self._memory.append(pages)
        return pages.view(dtype).reshape(shape)

    @property
    def memory(self) -> list[np.ndarray]:
        """All of it, u8 in as few pieces as were allocated."""
        return list(self._memory)

    def forget(self) -> None:
        """Lets go of all memory; nothing is read or written afterwards."""
        for arrays in (self.rings, self.matrices, self.windows, self._memory):
            arrays.clear()

    @property
    def recurrent(self) -> bool:
        """True when a part of the memory cannot be rewound to an earlier position."""
        return bool(self.matrices or self.windows)

    @property
    def recurrent_arrays(self) -> dict[str, np.ndarray]:
        """Matrices and windows by name, slots first."""
        return self.matrices | self.windows

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of what one slot cannot rewind: the size of a checkpoint."""
        return sum(a[0].nbytes for a in self.recurrent_arrays.values())

    def take_recurrent(self, slot: int, into: np.ndarray | None = None) -> np.ndarray:
        """A copy of the slot's matrices and windows in one buffer, u8 (recurrent_bytes,).

        into: a buffer of that size to write instead of a new one. Raises StateError.
        """
        if into is None:
            into = np.empty(self.recurrent_bytes, np.uint8)
        for part, mine in self._recurrent_parts(slot, into):
            part[...] = mine
        return into

    def put_recurrent(self, slot: int, taken: np.ndarray) -> None:
        """Writes what ``take_recurrent`` returned, of this slot or another, into a slot."""
        for part, mine in self._recurrent_parts(slot, taken):
            mine[...] = part

    def _recurrent_parts(self, slot: int, whole: np.ndarray):
        """Of every recurrent state, its part of the buffer and the slot's array."""
        self._check_slot(slot)
        if whole.dtype != np.uint8 or whole.shape != (self.recurrent_bytes,):
            raise StateError(
                f"a copy of {whole.dtype} {whole.shape}; a slot has {self.recurrent_bytes} bytes"
            )
        yield from _cut(whole, [array[slot] for array in self.recurrent_arrays.values()])

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise StateError(f"slot {slot}: there are {self.slots}, counted from 0")

    @property
    def nbytes(self) -> int:
        """Bytes of address space; those never touched take no memory."""
        rings = sum(r.k.nbytes + r.v.nbytes for r in self.rings.values())
        return rings + sum(a.nbytes for a in self.recurrent_arrays.values())

    def _parts(self, slot: int, positions: int) -> dict[str, list[np.ndarray]]:
        self._check_slot(slot)
        if not 0 <= positions <= self.context:
            raise StateError(f"{positions} positions: a slot keeps {self.context}")
        parts = {name: list(ring.parts(slot, positions)) for name, ring in self.rings.items()}
        for name, array in self.recurrent_arrays.items():
            parts[name] = [array[slot]]
        return parts

    def save(self, slot: int, positions: int) -> dict[str, np.ndarray]:
        """What the slot holds after its first ``positions`` positions: a u8 array by state name.

        A ring gives its keys, then its values, of min(positions, C) places: (blocks, heads, 64, k),
        and (heads, rest, k) of a block that is not whole; a recurrent state gives itself whole.
        """
        saved = self.room(positions)
        self.save_into(saved, slot, positions)
        return saved

    def room(self, positions: int) -> dict[str, np.ndarray]:
        """Arrays for what ``save`` of so many positions gives, not yet written.

        They lie in one piece of memory: what comes and goes in hundreds of small ones leaves holes
        that nothing else fits into, and a server's memory grows for minutes.
        """
        parts = self._parts(0, positions)
        sizes = {name: sum(part.nbytes for part in some) for name, some in parts.items()}
        whole = np.empty(sum(map(_lines, sizes.values())), np.uint8)
        arrays, at = {}, 0
        for name, size in sizes.items():
            arrays[name] = whole[at : at + size]
            at += _lines(size)
        return arrays

    def save_into(self, saved: Mapping[str, np.ndarray], slot: int, positions: int) -> None:
        """Writes what ``save`` gives into arrays that ``room`` made."""
        for name, parts in self._parts(slot, positions).items():
            for mine, part in _cut(saved[name], parts):
                mine[...] = part

    def restore(self, slot: int, positions: int, saved: Mapping[str, np.ndarray]) -> None:
        """Writes what ``save`` returned for as many positions into a slot.

        Everything is checked before anything is written; raises StateError.
        """
        mine = self._parts(slot, positions)
        self.check_saved(slot, positions, saved)
        for name, parts in mine.items():
            for theirs, part in _cut(saved[name], parts):
                part[...] = theirs

    def check_saved(self, slot: int, positions: int, saved: Mapping[str, np.ndarray]) -> None:
        """Raises StateError unless ``restore`` would take these arrays."""
        mine = self._parts(slot, positions)
        if mine.keys() != saved.keys():
            raise StateError(_differing(saved.keys(), mine.keys()))
        for name, parts in mine.items():
            wanted = sum(part.nbytes for part in parts)
            if saved[name].dtype != np.uint8 or saved[name].shape != (wanted,):
                raise StateError(f"state {name}: {saved[name].nbytes} bytes saved, {wanted} wanted")

    def saved_bytes(self, positions: int) -> int:
        """Bytes of what ``save`` returns for so many positions."""
        return sum(p.nbytes for parts in self._parts(0, positions).values() for p in parts)

    def copy(self, source: int, target: int, positions: int) -> None:
        """Makes slot ``target`` hold the first ``positions`` positions of slot ``source``."""
        theirs = self._parts(source, positions)
        for name, parts in self._parts(target, positions).items():
            for to, part in zip(parts, theirs[name], strict=True):
                to[...] = part


def _differing(saved: Set[str], mine: Set[str]) -> str:
    """What one of the two has and the other lacks, and which flag may have made the difference."""
    more, less = (
        ", ".join(sorted(names)[:8]) + (" …" if len(names) > 8 else "") or "nothing"
        for names in (saved - mine, mine - saved)
    )
    text = f"saved states have {more} besides and lack {less}"
    if any(name.startswith("nextn.") for name in saved ^ mine):
        text += (
            "; -draft mtp and auto open the prediction block that has them, ngram and off do not"
        )
    return text


def _cut(whole: np.ndarray, parts: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The pieces of a u8 buffer in the shapes of parts that lie in it one after the other."""
    at = 0
    for part in parts:
        piece = whole[at : at + part.nbytes]
        yield piece.view(part.dtype).reshape(part.shape), part
        at += part.nbytes


def _lines(size: int) -> int:
    """Bytes of the whole cache lines that so many take."""
    return -(-size // LINE) * LINE


def _line(kind: CacheType, width: int) -> int:
    """Bytes of a line of ``width`` values. Raises StateError."""
    if kind.block and width % BLOCK:
        raise StateError(
            f"a {kind.name} cache needs a head size that is a multiple of {BLOCK}; "
            f"this model's is {width}"
        )
    return kind.line_bytes(width)


def _split(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A view whose last axis is the last three, the first two of them of this shape."""
    width = array.shape[-1] // math.prod(shape)
    each = array.itemsize
    return np.lib.stride_tricks.as_strided(
        array,
        (*array.shape[:-1], *shape, width),
        (*array.strides[:-1], shape[1] * width * each, width * each, each),
    )
