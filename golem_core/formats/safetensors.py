"""safetensors checkpoints as named tensors over memory maps; shards with an index as one.

The header of a file is JSON: name -> dtype, shape and byte range. It is checked as the format
demands: the ranges fit dtype and shape, overlap nowhere and cover the data without a hole.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from golem_core.formats.errors import FormatError, shown
from golem_core.formats.mapped import MappedFile, OpenFiles

__all__ = ["FormatError", "SafeTensor", "Safetensors"]

LONGEST_HEADER = 100_000_000  # bytes, the limit of the format's own reader
MOST_DIMENSIONS = 32  # what every version of numpy can have
MOST_TENSORS = 250_000  # a header of many tiny entries would fill the memory
LARGEST_EXTENT = 1 << 60  # product of the extents that are not 0: numpy counts it in 64 bits

# dtype in the file -> how numpy keeps it; BF16 and F8 are kept as their bits.
DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "F8_E5M2": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "BOOL": np.dtype("u1"),
}


@dataclass(frozen=True, slots=True, eq=False)
class SafeTensor:
    """A tensor of a checkpoint. ``dtype`` is the file's name for it.

    ``data`` is a read-only array of ``shape``: F32, F16, I8, U8, I32 and I64 as they are, BF16 as
    u16 bits, F8 and BOOL as u8. It may be unaligned; `numpy` never is.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.data.nbytes

    def numpy(self) -> np.ndarray:
        """The values: BF16 and F8 as f32, BOOL as bool, the others in their own type."""
        if self.dtype == "BF16":
            return (self.data.astype(np.uint32) << 16).view(np.float32)
        if self.dtype in _F8_VALUES:
            return _F8_VALUES[self.dtype][self.data]
        if self.dtype == "BOOL":
            return self.data != 0
        return np.require(self.data, requirements="A")


class Safetensors(OpenFiles):
    """An open checkpoint: ``tensors`` by name, ``metadata`` (strings of ``__metadata__``)."""

    def __init__(self, path: Path):
        super().__init__([])
        self.path = path
        self.tensors: dict[str, SafeTensor] = {}
        self.metadata: dict[str, str] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mapped: bool = True) -> Self:
        """Open a ``.safetensors`` file, an ``.index.json`` of shards, or a folder with either.

        ``mapped=False`` reads the files into memory. ``FormatError`` for whatever is unsound.
        """
        target = _resolve(Path(path))
        opened = cls(target)
        try:
            if target.suffix == ".json":
                for shard, names in _shards(target).items():
                    opened._read(target.with_name(shard), mapped, names)
            else:
                opened._read(target, mapped, None)
        except BaseException:
            opened.close()
            raise
        return opened

    def numpy(self, name: str) -> np.ndarray:
        """The values of a tensor (see `SafeTensor.numpy`); ``FormatError`` if there is none."""
        if name not in self.tensors:
            raise FormatError(f"{self.path}: has no tensor {shown(name)}")
        return self.tensors[name].numpy()

    def close(self) -> None:
        """Forget the tensors; a map goes when the last array over it does."""
        self.tensors = {}
        super().close()

    def __repr__(self) -> str:
        return f"<Safetensors {self.path}: {len(self.tensors)} tensors>"

    def _read(self, path: Path, mapped: bool, wanted: set[str] | None) -> None:
        """Add the tensors of a file, or those of its tensors that are ``wanted``."""
        file = MappedFile(path, mapped=mapped)
        self.files.append(file)
        tensors, metadata = _read_file(str(path), file.bytes)
        if wanted is not None:
            missing = sorted(wanted - tensors.keys())
            if missing:
                raise FormatError(
                    f"{self.path}: says that {shown(missing[0])} is in {path.name}, which lacks it"
                )
            tensors = {name: tensor for name, tensor in tensors.items() if name in wanted}
        self.tensors |= tensors
        self.metadata |= metadata


def _resolve(path: Path) -> Path:
    """The file or index to read for a path that may be a folder."""
    if not path.is_dir():
        return path
    for pattern in ("*.safetensors.index.json", "*.safetensors"):
        found = sorted(path.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(file.name for file in found[:4])
            raise FormatError(f"{path}: holds several of {pattern} ({names} ...); name one of them")
    raise FormatError(f"{path}: holds no *.safetensors and no index of shards")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _shards(path: Path) -> dict[str, set[str]]:
    """The names of tensors by the file that holds them, from an index."""
    file = MappedFile(path)
    try:
        if len(file.bytes) > LONGEST_HEADER:
            raise FormatError(f"{path}: is too long for an index ({len(file.bytes)} bytes)")
        text = file.bytes.tobytes()
        _check_count(str(path), text, 1)
        index = _decode(str(path), text, _Index, "the index")
    finally:
        file.close()
    shards: dict[str, set[str]] = {}
    for name, shard in index.weight_map.items():
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise FormatError(
                f"{path}: the shard {shown(shard)} of {shown(name)} is no plain file name ending "
                "in .safetensors"
            )
        shards.setdefault(shard, set()).add(name)
    return shards


class _Declared(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _read_file(file: str, data: np.ndarray) -> tuple[dict[str, SafeTensor], dict[str, str]]:
    """The tensors and the metadata of one file, whose bytes are ``data``."""
    if len(data) < 8:
        raise FormatError(f"{file}: is not safetensors: it has {len(data)} bytes")
    length = int(data[:8].view("<u8")[0])
    if length > LONGEST_HEADER or length > len(data) - 8:
        raise FormatError(
            f"{file}: is not safetensors, or cut short: its header would have {length} bytes, the "
            f"file has {len(data)}"
        )
    header = data[8 : 8 + length].tobytes()
    _check_count(file, header, 4)
    entries = _decode(file, header, dict[str, msgspec.Raw], "the header")
    raw = entries.pop("__metadata__", None)
    metadata = {} if raw is None else _decode(file, raw, dict[str, str], "__metadata__")
    values = data[8 + length :]
    tensors: dict[str, SafeTensor] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        declared = _decode(file, entry, _Declared, f"tensor {shown(name)}")
        start, end = declared.data_offsets
        tensors[name] = _tensor(file, name, declared, values)
        ranges.append((start, end, name))
    _check_cover(file, ranges, len(values))
    return tensors, metadata


def _tensor(file: str, name: str, declared: _Declared, values: np.ndarray) -> SafeTensor:
    label = f"{file}: tensor {shown(name)}"
    if declared.dtype not in DTYPES:
        known = " ".join(DTYPES)
        raise FormatError(f"{label} has the dtype {shown(declared.dtype)}; known are {known}")
    extent = math.prod(size or 1 for size in declared.shape)
    if len(declared.shape) > MOST_DIMENSIONS or not (
        min(declared.shape, default=0) >= 0 and extent <= LARGEST_EXTENT
    ):
        raise FormatError(f"{label} has the impossible shape {shown(declared.shape)}")
    start, end = declared.data_offsets
    if not 0 <= start <= end <= len(values):
        raise FormatError(
            f"{label} lies at {start} .. {end} of {len(values)} bytes; the file is cut short or "
            "its header is damaged"
        )
    dtype = DTYPES[declared.dtype]
    size = math.prod(declared.shape) * dtype.itemsize
    if size != end - start:
        raise FormatError(
            f"{label} has {end - start} bytes; {declared.dtype} of shape {shown(declared.shape)} "
            f"takes {size}"
        )
    shape = tuple(declared.shape)
    return SafeTensor(name, shape, declared.dtype, values[start:end].view(dtype).reshape(shape))


def _check_cover(file: str, ranges: list[tuple[int, int, str]], size: int) -> None:
    """Refuse tensors that overlap, and data that belongs to no tensor."""
    at = 0
    for start, end, name in sorted(ranges):
        if start < at:
            raise FormatError(f"{file}: tensor {shown(name)} overlaps another one")
        if start > at:
            raise FormatError(
                f"{file}: the bytes {at} .. {start} belong to no tensor, or a name occurs twice"
            )
        at = end
    if at != size:
        raise FormatError(f"{file}: its last {size - at} bytes belong to no tensor")


def _check_count(file: str, text: bytes, colons: int) -> None:
    """Refuse JSON that may hold too many entries, each of which has so many colons."""
    if text.count(b":") > colons * MOST_TENSORS:
        raise FormatError(f"{file}: declares over {MOST_TENSORS} tensors, the most golem reads")


def _decode(file: str, text: object, kind: Any, what: str) -> Any:
    """JSON as ``kind``, or a `FormatError` that says what is wrong with it."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{file}: {what} is unsound: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return str(error)[:200].encode("unicode_escape").decode()


def _small_floats(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """The 256 values of an 8-bit float with infinities, as f32."""
    codes = np.arange(256)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    fraction = mantissa / (1 << mantissa_bits)
    normal = np.ldexp(1 + fraction, exponent - bias)
    subnormal = np.ldexp(fraction, 1 - bias)
    magnitude = np.where(exponent == 0, subnormal, normal)
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


def _f8_values() -> Mapping[str, np.ndarray]:
    e4m3 = _small_floats(4, 3)
    e4m3[[0x7F, 0xFF]] = np.nan  # this type has no infinities, and one NaN of each sign
    e5m2 = _small_floats(5, 2)
    e5m2[[0x7C, 0xFC]] = np.inf, -np.inf
    e5m2[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return {"F8_E4M3": e4m3, "F8_E5M2": e5m2}


_F8_VALUES = _f8_values()
