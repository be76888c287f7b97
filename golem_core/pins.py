"""A folder of pinned models: which files may be served, and proof that they are still those.

The manifest beside the files names each model with the size and the SHA-256 of every part. Whoever
loads a pinned model verifies it first; a file that was replaced, cut or rotted is refused by name.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

MANIFEST = "golem-models.json"
VERSION = 1
READ_BYTES = 1 << 20  # a read: large enough to be free of overhead, small enough for a core's cache

# What a name may end in to say how its file is quantised; the same model under a shorter name.
_QUANTISED = re.compile(
    r"[-_.](f32|f16|bf16|mxfp4|iq4_(nl|xs)|i?p?q\d_(\d(_g\d+)?|k(_[sml])?)|p?tq\d_0)(_moe)?",
    re.IGNORECASE,
)


class PinError(ValueError):
    """What is wrong with a folder of pinned models, or with a file of it; one line."""


class UnknownModel(PinError):
    """A name that no pinned model has."""


class PinnedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part: its path, from the folder where it lies in it, its bytes and their SHA-256."""

    file: str
    size: int
    sha256: str


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model that may be served: its parts in order, when it was pinned (UTC, ISO 8601), and the
    projector that sees or hears for it."""

    files: tuple[PinnedFile, ...]
    pinned_at: str
    mmproj: PinnedFile | None = None

    @property
    def every(self) -> tuple[PinnedFile, ...]:
        """Its parts and its projector."""
        return self.files if self.mmproj is None else (*self.files, self.mmproj)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.files)

    @property
    def sha256(self) -> str:
        """Of the file; of a split model, of its parts' digests one after the other."""
        if len(self.files) == 1:
            return self.files[0].sha256
        return hashlib.sha256("".join(p.sha256 for p in self.files).encode()).hexdigest()


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """The manifest as it is on disk."""

    version: int
    models: dict[str, Pin]


# (device, inode, size, mtime in ns): what a file is without reading it.
Identity = tuple[int, int, int, int]


def identity(path: Path) -> Identity:
    """Of the file at a path. Raises OSError where there is none."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def digest(path: Path, stop: Callable[[], bool] = lambda: False) -> tuple[str, int]:
    """The SHA-256 of a file in hex, and its bytes.

    hashlib uses the processor's SHA instructions and lets other threads run.

    Args:
        stop: asked after every read; true ends the reading.

    Raises:
        OSError: when it cannot be read.
        PinError: when it is no regular file, or was told to stop.
    """
    made = hashlib.sha256()
    buffer = bytearray(READ_BYTES)
    window = memoryview(buffer)
    size = 0
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PinError(f"{path} is no regular file")
        while count := file.readinto(buffer):
            made.update(window[:count])
            size += count
            if stop():
                raise PinError(f"{path}: reading it was given up")
    return made.hexdigest(), size


def _without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for somebody to write to it.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def name_of_file(path: Path) -> str:
    """What a file is called in a manifest: its stem in lower case, without a part's number."""
    stem = path.name.lower().removesuffix(".gguf")
    return re.sub(r"-\d{5}-of-\d{5}$", "", stem)


def base_name(name: str) -> str:
    """A name without what it says of the quantisation: ``smollm2-135m-q4_1`` -> ``smollm2-135m``.

    The first word that names a type ends it.
    """
    match = _QUANTISED.search(name)
    end = match is not None and (match.end() == len(name) or not name[match.end()].isalnum())
    return name[: match.start()] if end else name


@dataclass
class Manifest:
    """The pinned models of a folder: ``pins`` by name, in order of name."""

    folder: Path
    pins: Mapping[str, Pin] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a folder; an empty one where it has none yet.

        Raises:
            PinError: when the folder is none, or its manifest cannot be read as one.
        """
        if not folder.is_dir():
            raise PinError(f"{folder} is no folder: name the one that holds the models")
        path = folder / MANIFEST
        try:
            written = msgspec.json.decode(path.read_bytes(), type=_Written)
        except FileNotFoundError:
            return cls(folder)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PinError(f"{path}: cannot be read: {error}") from None
        if written.version != VERSION:
            raise PinError(f"{path}: is of version {written.version}; {VERSION} is known here")
        for name, pin in written.models.items():
            _check(path, name, pin)
        return cls(folder, dict(sorted(written.models.items())))

    def modified(self) -> int:
        """When the manifest was last written, in ns; 0 without one."""
        try:
            return (self.folder / MANIFEST).stat().st_mtime_ns
        except OSError:
            return 0

    def path(self, part: PinnedFile) -> Path:
        """Where a part lies."""
        return self.folder / part.file

    def resolve(self, asked: str) -> str:
        """The name that a request means: exact, or the only one of its base name.

        ``:latest``, ``.gguf`` and the case of letters do not matter.

        Raises:
            UnknownModel: with the names there are.
        """
        name = asked.strip().lower().removesuffix(":latest").removesuffix(".gguf")
        if name in self.pins:
            return name
        alike = [known for known in self.pins if base_name(known) == name]
        if len(alike) == 1:
            return alike[0]
        names = ", ".join(self.pins)
        if alike:
            raise UnknownModel(f"model '{asked[:100]}' is one of several: {', '.join(alike)}")
        raise UnknownModel(
            f"model '{asked[:100]}' not found: golem serves pinned models only ({names})"
        )

    def missing(self, name: str) -> Path | None:
        """The first file of a pinned model that is not there."""
        for part in self.pins[name].every:
            if not self.path(part).is_file():
                return self.path(part)
        return None

    def verify(self, name: str, stop: Callable[[], bool] = lambda: False) -> float:
        """Reads every byte of a pinned model and compares; returns the seconds that took.

        Raises:
            PinError: for the first part that is gone, of another size or of other bytes.
        """
        began = time.monotonic()
        for part in self.pins[name].every:
            path = self.path(part)
            try:
                size = path.stat().st_size
                if size != part.size:
                    raise PinError(
                        f"{path} has {size} bytes and was pinned with {part.size}; "
                        "if that is right, pin it again: golem-models pin"
                    )
                found, _ = digest(path, stop)
            except OSError as error:
                raise PinError(f"{path}: {(error.strerror or str(error)).lower()}") from None
            if found != part.sha256:
                raise PinError(
                    f"{path}: its sha256 is {found} and was pinned as {part.sha256}; "
                    "if that is right, pin it again: golem-models pin"
                )
        return time.monotonic() - began

    def pin(self, paths: list[Path], name: str | None = None, mmproj: Path | None = None) -> str:
        """Reads the parts of a model and writes them down; returns the name.

        A file of the folder is written down by its name, any other by its whole path. mmproj: the
        model's projector, pinned with it.

        Raises:
            PinError: when a file cannot be read or the name is no name.
        """
        chosen = (name or name_of_file(paths[0])).strip().lower()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        parts = tuple(self._pinned(path) for path in paths)
        pin = Pin(parts, now, None if mmproj is None else self._pinned(mmproj))
        _check(self.folder / MANIFEST, chosen, pin)
        self._change(lambda pins: pins | {chosen: pin})
        return chosen

    def _pinned(self, path: Path) -> PinnedFile:
        where, folder = path.resolve(), self.folder.resolve()
        shown = where.relative_to(folder) if where.is_relative_to(folder) else where
        try:
            sha256, size = digest(path)
        except OSError as error:
            raise PinError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        return PinnedFile(str(shown), size, sha256)

    def unpin(self, name: str) -> None:
        """Forget a model; its files stay.

        Raises:
            UnknownModel: for a name that is not pinned.
        """
        if name not in self.pins:
            raise UnknownModel(f"model '{name}' is not pinned here")
        self._change(lambda pins: {k: v for k, v in pins.items() if k != name})

    def _change(self, change: Callable[[dict[str, Pin]], dict[str, Pin]]) -> None:
        """Read, change and write the manifest while nobody else does; a crash leaves the old."""
        with _locked(self.folder):
            pins = change(dict(Manifest.read(self.folder).pins))
            text = msgspec.json.format(msgspec.json.encode(_Written(VERSION, pins)), indent=1)
            replace_file(self.folder / MANIFEST, text + b"\n")
        self.pins = dict(sorted(pins.items()))


def replace_file(path: Path, contents: bytes) -> None:
    """Write a file whole or not at all, through a sibling that takes its name."""
    handle, sibling = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        os.replace(sibling, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(sibling)
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check(path: Path, name: str, pin: Pin) -> None:
    """Refuse an entry that no command of golem's would have written."""
    if not re.fullmatch(r"[\w][\w.+-]{0,199}", name) or name != name.lower():
        raise PinError(
            f"{path}: {name[:80]!r} cannot be a model's name: lower-case letters, digits, . _ + - "
            "and at most 200 of them"
        )
    if not pin.files:
        raise PinError(f"{path}: {name} names no file")
    for part in pin.every:
        if part.size < 0 or not re.fullmatch(r"[0-9a-f]{64}", part.sha256):
            raise PinError(f"{path}: {name}: size or sha256 of {part.file!r} is none")
