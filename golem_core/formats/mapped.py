"""A model file in memory: opened, measured, mapped, and watched for changes on disk.

The readers of this package decode views of the map when asked. What another process has cut off
by then reads as zeros instead of ending this process; whoever keeps a file open asks `changed`
before a use, and `lost` after it.
"""

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from golem_core.formats._guard import GuardedMap
from golem_core.formats.errors import FormatError


class MappedFile:
    """The bytes of one regular file: ``bytes`` is a read-only u8 array over a memory map.

    With ``mapped=False`` the file is read into memory instead. ``FormatError`` when the path is
    no readable, regular, non-empty file.
    """

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True):
        self.path = Path(path)
        self._map: GuardedMap | None = None
        try:
            # Without O_NONBLOCK, opening a pipe would wait for somebody to write to it.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise FormatError(f"{self.path}: cannot be opened: {_why(error)}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise FormatError(f"{self.path}: is {kind}; name a model file")
            if status.st_size == 0:
                raise FormatError(f"{self.path}: is empty")
            self._identity = _identity(status)
            self.bytes = self._contents(descriptor, status.st_size, mapped)
        except (OSError, ValueError) as error:  # ValueError: it became shorter than it was
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{self.path}: cannot be read: {_why(error)}") from None
        finally:
            os.close(descriptor)

    def _contents(self, descriptor: int, size: int, mapped: bool) -> np.ndarray:
        if mapped:
            self._map = GuardedMap(descriptor, size)
            return np.frombuffer(self._map, np.uint8)
        contents = np.empty(size, np.uint8)
        with open(descriptor, "rb", closefd=False) as file:
            if file.readinto(contents) != size:
                raise FormatError(f"{self.path}: became shorter while it was read")
        contents.flags.writeable = False
        return contents

    def changed(self) -> bool:
        """Whether the path is gone, or names another inode, size or mtime than at opening."""
        try:
            return _identity(os.stat(self.path)) != self._identity
        except OSError:
            return True

    @property
    def lost(self) -> bool:
        """Whether a part of the map was read that the file no longer has; it read as zeros."""
        return self._map is not None and self._map.lost

    def close(self) -> None:
        """Let go of the map; it stays until the last view of it is gone."""
        self.bytes = np.empty(0, np.uint8)
        self._map = None


class OpenFiles:
    """What every reader is that keeps files mapped: watched, closed, a context manager."""

    def __init__(self, files: list[MappedFile]):
        self.files = files

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files on disk."""
        return tuple(file.path for file in self.files)

    def changed(self) -> bool:
        """Whether a file on disk is no longer the one that was opened, by size, inode or mtime.

        From then on the map may be cut short, and what is missing reads as zeros.
        """
        return any(file.changed() for file in self.files)

    @property
    def lost(self) -> bool:
        """Whether something was read that is no longer in a file: it read as zeros."""
        return any(file.lost for file in self.files)

    def close(self) -> None:
        """Let go of the files; a map goes when the last array over it does."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
