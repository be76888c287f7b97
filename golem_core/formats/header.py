"""Reads the header of a GGUF file: counts, keys, and where the tensors lie.

Every length and count is checked against the bytes that are there before anything is read,
allocated or skipped, so that a damaged or hostile header ends in a `FormatError` and no more.
"""

import struct
from typing import NamedTuple

import numpy as np

from golem_core.formats._scan import skip_array
from golem_core.formats.blocks import BlockType, by_id
from golem_core.formats.errors import FormatError, shown
from golem_core.formats.metadata import ARRAY, STRING, VALUE_TYPES, Entry

MAGIC = b"GGUF"
LONGEST_NAME = 65535  # bytes of a key or a tensor's name; the format allows no more
MOST_DIMENSIONS = 4
MOST_ITEMS = 100_000  # keys or tensors; a header of many tiny ones would fill the memory

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_COUNTS = struct.Struct("<QQ")
_ARRAY_HEAD = struct.Struct("<IQ")
_TYPE_AND_OFFSET = struct.Struct("<IQ")

# A key takes at least its length, a type and one byte; a tensor its name's length, a count of
# dimensions, one dimension, type and offset.
_SMALLEST_KEY = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8

_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, as PyTorch writes them"),
    (b"lmgg", "the GGML format from before GGUF"),
    (b"fmgg", "the GGMF format from before GGUF"),
    (b"tjgg", "the GGJT format from before GGUF"),
    (b"version https://git-lfs", "a Git LFS pointer, the model itself was not downloaded"),
    (b"<", "a web page or XML, the download went wrong"),
)


class TensorInfo(NamedTuple):
    """A tensor as the header declares it; ``at`` counts from the start of the tensor data."""

    name: str
    shape: tuple[int, ...]
    type: BlockType
    at: int
    nbytes: int


class Header(NamedTuple):
    """What a header says; ``end`` is the first byte after it."""

    version: int
    entries: dict[str, Entry]
    tensors: list[TensorInfo]
    end: int


def read_header(file: str, data: np.ndarray) -> Header:
    """The header of the GGUF file whose bytes are ``data``; ``file`` names it in errors."""
    cursor = _Cursor(file, data)
    version = _check_magic(cursor)
    tensor_count, key_count = cursor.take(_COUNTS, "the counts of tensors and keys")
    for count, size, what in (
        (key_count, _SMALLEST_KEY, "keys"),
        (tensor_count, _SMALLEST_TENSOR, "tensors"),
    ):
        if count > (cursor.end - cursor.at) // size:
            raise cursor.fail(f"declares {count} {what}, more than its {cursor.end} bytes can hold")
        if count > MOST_ITEMS:
            raise cursor.fail(f"declares {count} {what}; golem reads at most {MOST_ITEMS}")
    entries: dict[str, Entry] = {}
    for _ in range(key_count):
        key, entry = _read_key(cursor)
        if key in entries:
            raise cursor.fail(f"the key {shown(key)} occurs twice")
        entries[key] = entry
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    for _ in range(tensor_count):
        tensor = _read_tensor(cursor)
        if tensor.name in names:
            raise cursor.fail(f"two tensors are named {shown(tensor.name)}")
        names.add(tensor.name)
        tensors.append(tensor)
    return Header(version, entries, tensors, cursor.at)


class _Cursor:
    """A place in the bytes of ``file`` that never passes their end."""

    __slots__ = ("at", "data", "end", "file", "view")

    def __init__(self, file: str, data: np.ndarray):
        self.file = file
        self.data = data
        self.view = memoryview(data)
        self.at = 0
        self.end = len(data)

    def fail(self, text: str) -> FormatError:
        return FormatError(f"{self.file}: {text}")

    def take(self, layout: struct.Struct, what: str) -> tuple:
        if self.end - self.at < layout.size:
            raise self.fail(f"ends inside {what} at byte {self.end}; the file is cut short")
        values = layout.unpack_from(self.view, self.at)
        self.at += layout.size
        return values

    def skip(self, size: int, what: str) -> None:
        if size > self.end - self.at:
            raise self.fail(f"{what} at byte {self.at} runs past the end of the file ({self.end})")
        self.at += size

    def name(self, what: str) -> str:
        start = self.at
        (length,) = self.take(_U64, what)
        if length > LONGEST_NAME:
            raise self.fail(
                f"{what} at byte {start} has {length} bytes, but may have {LONGEST_NAME}"
            )
        self.skip(length, what)
        try:
            return str(self.view[start + 8 : self.at], "utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} at byte {start} is not UTF-8") from None


def _check_magic(cursor: _Cursor) -> int:
    start = bytes(cursor.view[:64])
    if start[:4] != MAGIC:
        known = [f" (it looks like {what})" for magic, what in _FOREIGN if start.startswith(magic)]
        if start[8:9] == b"{":
            known.append(" (it looks like safetensors)")
        raise cursor.fail(
            f"is not GGUF: it begins with {start[:4]!r}, not {MAGIC!r}" + "".join(known[:1])
        )
    cursor.at = 4
    (version,) = cursor.take(_U32, "the version")
    if version in (2, 3):
        return version
    if version == 1:
        raise cursor.fail("is GGUF version 1; golem reads 2 and 3, convert the model anew")
    if int.from_bytes(_U32.pack(version), "big") in range(1, 256):
        raise cursor.fail(
            "is a big-endian file; golem reads little-endian ones (gguf-convert-endian of the "
            "package gguf converts it)"
        )
    raise cursor.fail(f"is GGUF version {version}; golem reads 2 and 3")


def _read_key(cursor: _Cursor) -> tuple[str, Entry]:
    key = cursor.name("a key")
    (kind,) = cursor.take(_U32, "a key's type")
    if kind not in VALUE_TYPES:
        raise cursor.fail(f"the key {shown(key)} has the unknown type {kind} (0 to 12 are known)")
    element = count = 0
    at = cursor.at
    if kind == ARRAY:
        element, count = cursor.take(_ARRAY_HEAD, f"the array {shown(key)}")
        at = cursor.at
        try:
            cursor.at = skip_array(cursor.data, at, cursor.end, element, count)
        except ValueError as error:
            raise cursor.fail(f"the key {shown(key)} is {error}") from None
    elif kind == STRING:
        (length,) = cursor.take(_U64, f"the string {shown(key)}")
        cursor.skip(length, f"the string {shown(key)}")
    else:
        cursor.skip(struct.calcsize(VALUE_TYPES[kind].code), f"the key {shown(key)}")
    return key, Entry(kind, element, count, at, cursor.at)


def _read_tensor(cursor: _Cursor) -> TensorInfo:
    name = cursor.name("a tensor's name")
    label = f"tensor {shown(name)}"
    (dimensions,) = cursor.take(_U32, label)
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise cursor.fail(
            f"{label} has {dimensions} dimensions; 1 to {MOST_DIMENSIONS} are possible"
        )
    shape = cursor.take(_DIMENSIONS[dimensions], label)[::-1]
    kind, at = cursor.take(_TYPE_AND_OFFSET, label)
    if 0 in shape:
        raise cursor.fail(f"{label} has no elements: its shape is {list(shape)}")
    try:
        type = by_id(kind)
        nbytes = type.row_bytes(shape[-1])
    except ValueError as error:
        raise cursor.fail(f"{label}: {error}") from None
    for size in shape[:-1]:
        nbytes *= size
    return TensorInfo(name, shape, type, at, nbytes)


_DIMENSIONS = {n: struct.Struct(f"<{n}Q") for n in range(1, MOST_DIMENSIONS + 1)}
