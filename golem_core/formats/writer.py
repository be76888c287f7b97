"""Writes GGUF files: models for tests and benchmarks, of any block type, without holding them.

Only names, shapes and types are needed before the first byte of data is written; data may be
given as a function, called when its turn comes.
"""

import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from golem_core.formats.blocks import BlockType
from golem_core.formats.metadata import ARRAY, STRING, VALUE_TYPES

Source = np.ndarray | Callable[[], np.ndarray | Iterable[np.ndarray]]
TensorSource = tuple[str, Sequence[int], BlockType, Source]

_ZEROS = bytes(4096)
_DTYPES = {np.dtype(kind.dtype): id for id, kind in VALUE_TYPES.items() if kind.dtype}


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Iterable[TensorSource],
    *,
    alignment: int = 32,
    version: int = 3,
    parts: int = 1,
) -> Path:
    """Write a model file and return the path to open.

    Tensors are ``(name, shape, type, data)`` with a shape in numpy's order and data that is u8
    rows of the type, f32 values for the type F32, or a function giving one of these or several
    in turn.
    Metadata values: int (u32, else i32, u64, i64), float (f32), bool, str, bytes (a string as it
    is), numpy scalars and arrays for an exact type, sequences for arrays.

    With ``parts`` above 1, ``dir/name.gguf`` becomes ``dir/name-00001-of-0000N.gguf`` and so on.
    A file appears under its name only when it is complete. ``ValueError`` when data does not
    have the size its shape and type need.
    """
    target = Path(path)
    items = list(tensors)
    if alignment != 32:
        metadata = {**metadata, "general.alignment": np.uint32(alignment)}
    if parts == 1:
        _write_file(target, metadata, items, alignment, version)
        return target
    share = math.ceil(len(items) / parts)
    names = [target.with_name(f"{target.stem}-{i + 1:05}-of-{parts:05}.gguf") for i in range(parts)]
    for number, name in enumerate(names):
        split = {
            "split.no": np.uint16(number),
            "split.count": np.uint16(parts),
            "split.tensors.count": np.int32(len(items)),
        }
        keys = {**metadata, **split} if number == 0 else {**_alignment_of(metadata), **split}
        _write_file(name, keys, items[number * share : (number + 1) * share], alignment, version)
    return names[0]


def _alignment_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in ("general.alignment",) if key in metadata}


def _write_file(
    target: Path,
    metadata: Mapping[str, Any],
    tensors: list[TensorSource],
    alignment: int,
    version: int,
) -> None:
    partial = target.with_name(target.name + ".part")
    try:
        with open(partial, "wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)))
            for key, value in metadata.items():
                file.write(_string(key) + _value(value))
            _write_infos(file, tensors, alignment)
            for name, shape, type, source in tensors:
                _pad(file, alignment)
                _write_data(file, name, _size(shape, type), type, source)
            _pad(file, alignment)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _write_infos(file: BinaryIO, tensors: list[TensorSource], alignment: int) -> None:
    at = 0
    for name, shape, type, _ in tensors:
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        file.write(_string(name) + dimensions + struct.pack("<IQ", type.id, at))
        at += -(-_size(shape, type) // alignment) * alignment


def _write_data(file: BinaryIO, name: str, size: int, type: BlockType, source: Source) -> None:
    written = 0
    for chunk in _chunks(source):
        if chunk.dtype != np.uint8 and not (type.name == "F32" and chunk.dtype == np.float32):
            raise ValueError(f"tensor {name}: {type} takes u8 rows, not {chunk.dtype}")
        written += file.write(np.ascontiguousarray(chunk).data)
    if written != size:
        raise ValueError(f"tensor {name}: {written} bytes were given, {type} needs {size}")


def _chunks(source: Source) -> Iterator[np.ndarray]:
    given = source() if callable(source) else source
    if isinstance(given, np.ndarray):
        yield given
    else:
        yield from given


def _size(shape: Sequence[int], type: BlockType) -> int:
    return math.prod(shape[:-1]) * type.row_bytes(shape[-1])


def _pad(file: BinaryIO, alignment: int) -> None:
    left = -file.tell() % alignment
    while left:
        left -= file.write(_ZEROS[:left])


def _string(text: str | bytes) -> bytes:
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    """A value with its type before it."""
    kind = _kind(value)
    return struct.pack("<I", kind) + _body(value, kind)


def _kind(value: Any) -> int:
    if isinstance(value, np.generic):  # before float, which np.float64 is too
        return _dtype_kind(value.dtype)
    if isinstance(value, bool):
        return _DTYPES[np.dtype(bool)]
    if isinstance(value, int):
        return _integer_kind(value, value, ("<u4", "<i4", "<u8", "<i8"))
    if isinstance(value, float):
        return _DTYPES[np.dtype("<f4")]
    if isinstance(value, str | bytes):
        return STRING
    if isinstance(value, np.ndarray | Sequence):
        return ARRAY
    raise ValueError(f"GGUF metadata has no type for {type(value).__name__}")


def _dtype_kind(dtype: np.dtype) -> int:
    if dtype not in _DTYPES:
        raise ValueError(f"GGUF metadata has no type for numpy's {dtype}")
    return _DTYPES[dtype]


def _integer_kind(low: int, high: int, dtypes: Sequence[str]) -> int:
    for dtype in dtypes:
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return _DTYPES[np.dtype(dtype)]
    raise ValueError(f"the integers {low} .. {high} fit none of GGUF's types")


def _body(value: Any, kind: int) -> bytes:
    if kind == STRING:
        return _string(value)
    if kind != ARRAY:
        return struct.pack(VALUE_TYPES[kind].code, value)
    if isinstance(value, np.ndarray):
        if value.ndim > 1:
            return _array(ARRAY, [_body(row, ARRAY) for row in value])
        return _array(_dtype_kind(value.dtype), [value.tobytes()], len(value))
    element = _element_kind(value)
    return _array(element, [_body(item, element) for item in value])


def _array(element: int, bodies: list[bytes], count: int | None = None) -> bytes:
    return struct.pack("<IQ", element, len(bodies) if count is None else count) + b"".join(bodies)


def _element_kind(items: Sequence[Any]) -> int:
    if not items:
        return _DTYPES[np.dtype("<i4")]
    kinds = {_kind(item) for item in items}
    if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return _integer_kind(min(items), max(items), ("<i4", "<u4", "<i8", "<u8"))
    if len(kinds) > 1:
        names = ", ".join(sorted(VALUE_TYPES[kind].name for kind in kinds))
        raise ValueError(f"an array holds one type, not {names}")
    return kinds.pop()
