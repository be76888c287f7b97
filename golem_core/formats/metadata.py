"""The keys and values of a GGUF header, decoded when they are asked for.

A vocabulary of a quarter of a million strings stays bytes in the map until somebody reads it;
arrays of numbers are numpy arrays over the map.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any, NamedTuple

import numpy as np

from golem_core.formats._scan import decode_strings, element_offsets
from golem_core.formats.errors import FormatError

STRING, ARRAY = 8, 9


class ValueType(NamedTuple):
    """One of GGUF's value types: its name, and for fixed sizes the struct code and dtype."""

    name: str
    code: str
    dtype: str


VALUE_TYPES: dict[int, ValueType] = {
    0: ValueType("u8", "<B", "u1"),
    1: ValueType("i8", "<b", "i1"),
    2: ValueType("u16", "<H", "<u2"),
    3: ValueType("i16", "<h", "<i2"),
    4: ValueType("u32", "<I", "<u4"),
    5: ValueType("i32", "<i", "<i4"),
    6: ValueType("f32", "<f", "<f4"),
    7: ValueType("bool", "<?", "?"),
    STRING: ValueType("str", "", ""),
    ARRAY: ValueType("array", "", ""),
    10: ValueType("u64", "<Q", "<u8"),
    11: ValueType("i64", "<q", "<i8"),
    12: ValueType("f64", "<d", "<f8"),
}

_REQUIRED = object()


class Entry(NamedTuple):
    """Where a value lies: GGUF type, for arrays the elements' type and count, first byte, end."""

    type: int
    element: int
    count: int
    at: int
    end: int

    @property
    def type_name(self) -> str:
        if self.type != ARRAY:
            return VALUE_TYPES[self.type].name
        return f"{VALUE_TYPES[self.element].name}[{self.count}]"


class LazyArray(Sequence):
    """Elements of varying size: indexed at the first access, and decoded each when asked for."""

    def __init__(self, data: np.ndarray, entry: Entry):
        self._data = data
        self._entry = entry
        self._index: np.ndarray | None = None

    def __len__(self) -> int:
        return self._entry.count

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self._decode(*self._span(i)) for i in range(*at.indices(len(self)))]
        return self._decode(*self._span(at))

    def __iter__(self) -> Iterator[Any]:
        edges = self._edges().tolist()
        return map(self._decode, edges, edges[1:])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._entry.type_name}>"

    def _edges(self) -> np.ndarray:
        if self._index is None:
            e = self._entry
            self._index = element_offsets(self._data, e.at, e.end, e.element, e.count)
        return self._index

    def _span(self, at: int) -> tuple[int, int]:
        edges = self._edges()
        if not -len(self) <= at < len(self):
            raise IndexError(f"element {at} of an array of {len(self)}")
        at %= len(self)
        return int(edges[at]), int(edges[at + 1])

    def _decode(self, start: int, end: int) -> Any:
        raise NotImplementedError


class Strings(LazyArray):
    """An array of strings. Bytes that are no UTF-8 are kept, as Python's surrogate escapes.

    ``text.encode("utf-8", "surrogateescape")`` and `raw` give the bytes as stored.
    """

    def raw(self, at: int) -> bytes:
        """The bytes of element ``at``."""
        start, end = self._span(at)
        return self._data[start + 8 : end].tobytes()

    def __iter__(self) -> Iterator[str]:
        return iter(decode_strings(self._data, self._edges()))

    def _decode(self, start: int, end: int) -> str:
        return str(self._data[start + 8 : end].data, "utf-8", "surrogateescape")


class Arrays(LazyArray):
    """An array of arrays."""

    def _decode(self, start: int, end: int) -> Any:
        element, count = struct.unpack_from("<IQ", self._data, start)
        return decode_array(self._data, Entry(ARRAY, element, count, start + 12, end))


def decode_array(data: np.ndarray, entry: Entry) -> Any:
    """`Strings`, `Arrays`, or a read-only numpy array: a view where the bytes are aligned."""
    if entry.element == STRING:
        return Strings(data, entry)
    if entry.element == ARRAY:
        return Arrays(data, entry)
    dtype = np.dtype(VALUE_TYPES[entry.element].dtype)
    raw = data[entry.at : entry.at + entry.count * dtype.itemsize]
    values = raw != 0 if dtype == np.bool_ else np.require(raw.view(dtype), requirements="A")
    values.flags.writeable = False
    return values


class Metadata(Mapping[str, Any]):
    """The header's keys: scalars as int, float, bool or str, arrays as `decode_array` says."""

    def __init__(self, file: str, data: np.ndarray, entries: dict[str, Entry]):
        self._file = file
        self._data = data
        self._entries = entries
        self._values: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            self._values[key] = self._decode(self._entries[key])
        return self._values[key]

    def __repr__(self) -> str:
        return f"<Metadata of {self._file}: {len(self)} keys>"

    def type_name(self, key: str) -> str:
        """The GGUF type of a key's value: "u32", "str", "f32[12]", "array[2]"."""
        return self._entries[key].type_name

    def typed(self, key: str, kind: type | GenericAlias, default: Any = _REQUIRED) -> Any:
        """The value of ``key`` as ``kind``: int, float, bool, str, or list[...] of one of them.

        Integers of every width are int, and serve as float. A missing key gives ``default``;
        without one, and for a value of another type, ``FormatError`` names key, wanted and found.
        """
        if key not in self._entries:
            if default is not _REQUIRED:
                return default
            raise FormatError(f"{self._file}: the key {key} is missing; it must be {_name(kind)}")
        entry = self._entries[key]
        wants_list = isinstance(kind, GenericAlias)
        scalar = kind.__args__[0] if wants_list else kind
        found = entry.element if entry.type == ARRAY else entry.type
        fits = found in _ACCEPTED[scalar] or (wants_list and entry.count == 0)
        if wants_list != (entry.type == ARRAY) or not fits:
            raise FormatError(
                f"{self._file}: the key {key} must be {_name(kind)}, it is {entry.type_name}"
            )
        value = self[key]
        return float(value) if kind is float else value

    def close(self) -> None:
        """Forget keys and values; arrays handed out keep the file mapped."""
        self._entries = {}
        self._values = {}
        self._data = np.empty(0, np.uint8)

    def _decode(self, entry: Entry) -> Any:
        if entry.type == ARRAY:
            return decode_array(self._data, entry)
        if entry.type == STRING:
            return str(self._data[entry.at + 8 : entry.end].data, "utf-8", "replace")
        if VALUE_TYPES[entry.type].name == "bool":
            return bool(self._data[entry.at])
        return struct.unpack_from(VALUE_TYPES[entry.type].code, self._data, entry.at)[0]


_INTEGERS = frozenset({0, 1, 2, 3, 4, 5, 10, 11})
_ACCEPTED: dict[type, frozenset[int]] = {
    int: _INTEGERS,
    float: _INTEGERS | {6, 12},
    bool: frozenset({7}),
    str: frozenset({STRING}),
}
_NAMES = {int: "an integer", float: "a number", bool: "a bool", str: "a string"}
_PLURALS = {int: "integers", float: "numbers", bool: "bools", str: "strings"}


def _name(kind: type | GenericAlias) -> str:
    if isinstance(kind, GenericAlias):
        return f"an array of {_PLURALS[kind.__args__[0]]}"
    return _NAMES[kind]
