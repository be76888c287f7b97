"""GGUF files as named tensors and metadata over a memory map; split files as one.

Opening reads the header and checks that every tensor lies inside the file and on no other;
strings, arrays and weights are decoded when somebody asks.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from golem_core.formats.blocks import BlockType, by_name, dequantise
from golem_core.formats.errors import FormatError, shown
from golem_core.formats.header import TensorInfo, read_header
from golem_core.formats.mapped import MappedFile, OpenFiles
from golem_core.formats.metadata import Metadata
from golem_core.formats.writer import write_gguf

__all__ = ["GGUF", "FormatError", "Metadata", "Tensor", "write_gguf"]

SAMPLE = 64  # bytes of a tensor's beginning, middle and end that a fingerprint reads
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a file: ``data`` is its u8 rows ``(*shape[:-1], row bytes)``, read-only.

    ``shape`` is in numpy's order, outermost first: a matrix is (out, in).
    """

    name: str
    shape: tuple[int, ...]
    type: BlockType
    data: np.ndarray = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.data.nbytes

    def numpy(self) -> np.ndarray:
        """The weights as f32 of ``shape``."""
        return dequantise(self.data, self.type)


class GGUF(OpenFiles):
    """An open model file.

    ``path`` the file named, ``paths`` all of its parts, ``version``, ``alignment`` (bytes),
    ``metadata`` a mapping, ``tensors`` by name in the order of the file.
    """

    def __init__(self, parts: "list[_Part]"):
        first = parts[0]
        super().__init__([part.file for part in parts])
        self.path = first.file.path
        self.version = first.version
        self.alignment = first.alignment
        self.metadata = first.metadata
        self.tensors: dict[str, Tensor] = {}
        self._parts = parts
        for part in parts:
            for tensor in part.tensors:
                if tensor.name in self.tensors:
                    raise part.fail(f"tensor {shown(tensor.name)} is in an earlier part too")
                self.tensors[tensor.name] = tensor

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mapped: bool = True) -> Self:
        """Open a file, or the first of a split file's parts and with it the others.

        ``mapped=False`` reads the files into memory instead of mapping them. ``FormatError`` for
        whatever is not a sound model file.
        """
        parts = [_Part(path, mapped)]
        try:
            for other in _other_parts(parts[0]):
                parts.append(_Part(other, mapped))
                _check_part(parts[-1], len(parts) - 1)
            _check_total(parts)
            return cls(parts)
        except BaseException:
            for part in parts:
                part.close()
            raise

    @property
    def architecture(self) -> str:
        """``general.architecture``; ``FormatError`` when the file has none."""
        return self.metadata.typed("general.architecture", str)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def n_params(self) -> int:
        """Weights of all tensors."""
        return sum(tensor.type.row_weights(tensor.nbytes) for tensor in self.tensors.values())

    @cached_property
    def fingerprint(self) -> str:
        """Which weights these are: a SHA-256, in hex, of headers and samples of every tensor.

        Cheap beside reading the file; enough to tell a fine-tune or another quantisation from
        the model a saved conversation belongs to, no proof against forgery.
        """
        digest = hashlib.sha256()
        for part in self._parts:
            digest.update(part.header)
        for tensor in self.tensors.values():
            flat = tensor.data.reshape(-1)
            middle = len(flat) // 2
            for at in (0, middle, max(len(flat) - SAMPLE, 0)):
                digest.update(flat[at : at + SAMPLE])
        return digest.hexdigest()

    def close(self) -> None:
        """Forget tensors and metadata; the map goes when the last array over it does."""
        self.tensors = {}
        for part in self._parts:
            part.close()

    def __repr__(self) -> str:
        return f"<GGUF {self.path}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"


class _Part:
    """One file on disk, which is all there is unless the model is split."""

    def __init__(self, path: str | os.PathLike[str], mapped: bool):
        self.file = MappedFile(path, mapped=mapped)
        try:
            name = str(self.file.path)
            header = read_header(name, self.file.bytes)
            self.version = header.version
            self.metadata = Metadata(name, self.file.bytes, header.entries)
            self.alignment = self.metadata.typed("general.alignment", int, 32)
            if self.alignment < 1 or self.alignment & (self.alignment - 1):
                raise self.fail(f"general.alignment is {self.alignment}, not a power of two")
            start = -(-header.end // self.alignment) * self.alignment
            self._start = start
            self._check_places(header.tensors, len(self.file.bytes) - start)
            self.tensors = [self._tensor(info, start) for info in header.tensors]
        except BaseException:
            self.file.close()
            raise

    def fail(self, text: str) -> FormatError:
        return FormatError(f"{self.file.path}: {text}")

    @property
    def header(self) -> np.ndarray:
        """The bytes before the tensors' data."""
        return self.file.bytes[: self._start]

    def close(self) -> None:
        self.tensors = []
        self.metadata.close()
        self.file.close()

    def _tensor(self, info: TensorInfo, start: int) -> Tensor:
        at = start + info.at
        rows = self.file.bytes[at : at + info.nbytes]
        shape = (*info.shape[:-1], info.type.row_bytes(info.shape[-1]))
        return Tensor(info.name, info.shape, info.type, rows.reshape(shape))

    def _check_places(self, tensors: Iterable[TensorInfo], size: int) -> None:
        """Refuse tensors that lie on each other or outside the ``size`` bytes of tensor data."""
        ordered = sorted(tensors, key=lambda tensor: tensor.at)
        for tensor, following in itertools.zip_longest(ordered, ordered[1:]):
            label = f"tensor {shown(tensor.name)}"
            limit = size if following is None else min(following.at, size)
            if tensor.at % self.alignment:
                raise self.fail(f"{label} is at {tensor.at}, not a multiple of {self.alignment}")
            end = tensor.at + tensor.nbytes
            if end <= limit:
                continue
            if self._is_first_generation(tensor, limit):
                raise self.fail(
                    f"{label} says Q2_0, but lies in blocks of 128 weights in 34 bytes as in the "
                    "first files of that name; get the model as PQ2_0 or in the Q2_0 of today"
                )
            if end > size:
                missing = end - max(size, 0)
                raise self.fail(
                    f"{label} ends {missing} bytes past the end of the file; the file is cut short "
                    "or its header is damaged, download it again"
                )
            raise self.fail(f"{label} overlaps the one that follows it in the file")

    def _is_first_generation(self, tensor: TensorInfo, limit: int) -> bool:
        """Whether a Q2_0 tensor that is too long fits exactly in PQ2_0's blocks."""
        old = by_name("PQ2_0")
        if tensor.type.name != "Q2_0" or tensor.shape[-1] % old.weights:
            return False
        end = (
            tensor.at
            + tensor.nbytes // tensor.type.bytes * tensor.type.weights // old.weights * old.bytes
        )
        return 0 <= limit - end < self.alignment


def _other_parts(first: _Part) -> list[Path]:
    """The files that belong to a split model, but for the first; empty when it is not split."""
    count = first.metadata.typed("split.count", int, 1)
    if count <= 1:
        return []
    path = first.file.path
    match = _PART.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise first.fail(
            f"is one of {count} parts, so its name must be like MODEL-00001-of-{count:05}.gguf"
        )
    names = [f"{match['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    if path.name != names[0]:
        raise first.fail(f"is not the first part of its model; open {names[0]}")
    _check_part(first, 0)
    return [path.with_name(name) for name in names[1:]]


def _check_part(part: _Part, number: int) -> None:
    found = part.metadata.typed("split.no", int)
    if found != number:
        raise part.fail(f"should be part {number} (split.no, from 0), it says {found}")


def _check_total(parts: list[_Part]) -> None:
    declared = parts[0].metadata.typed("split.tensors.count", int, None)
    total = sum(len(part.tensors) for part in parts)
    if len(parts) > 1 and declared is not None and declared != total:
        raise parts[0].fail(
            f"split.tensors.count is {declared}, but its {len(parts)} parts hold {total} tensors"
        )
