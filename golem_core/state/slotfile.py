"""A slot in a file: written whole or not at all, and taken back only whole and only where it fits.

Layout: a line that names the format; u64 length and JSON of the header, little-endian; the
sections the header lists, one after the other; the SHA-256 of all that. A file is checked to the
last byte before anything of it reaches a slot.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from golem_core.state.states import StateError, States
from golem_core.state.stored import Stored

MAGIC = b"golem slot v2\n"
LONGEST_HEADER = 16 << 20  # bytes; names and sizes only
READ_BYTES = 1 << 20


class SlotFileError(ValueError):
    """Why a file cannot be taken into a slot; one line."""


class _Section(msgspec.Struct, forbid_unknown_fields=True):
    """What lies in the file: kind is tokens, state, owners or checkpoint."""

    kind: str
    name: str
    bytes: int


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    model: str  # fingerprint, hex
    context: int
    cache_k: str
    cache_v: str
    tokens: int
    sections: list[_Section]


@dataclass(frozen=True)
class Fit:
    """What a slot takes: of this model, cut like this.

    model: a fingerprint of the weights. vocabulary: ids are below it. owners: places of every
    kind of sliding ring.
    """

    model: str
    vocabulary: int
    states: States
    owners: tuple[int, ...]


def write_slot(path: Path, stored: Stored, fit: Fit) -> int:
    """Write what a slot held under a name that is there only once all of it is; returns bytes.

    Raises:
        OSError: when it cannot be written; what was there before stays.
    """
    sections = [_Section("tokens", "", stored.tokens.nbytes)]
    arrays = [np.ascontiguousarray(stored.tokens, "<i4")]
    for name, state in stored.states.items():
        sections.append(_Section("state", name, state.nbytes))
        arrays.append(state)
    for owner in stored.owners:
        sections.append(_Section("owners", "", owner.nbytes))
        arrays.append(np.ascontiguousarray(owner, "<i4"))
    for position, state in stored.checkpoints:
        sections.append(_Section("checkpoint", str(position), state.nbytes))
        arrays.append(state)
    states = fit.states
    header = msgspec.json.encode(
        _Header(
            fit.model, states.context, states.type_k, states.type_v, len(stored.tokens), sections
        )
    )
    handle, sibling = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        digest = hashlib.sha256()
        with open(handle, "wb", buffering=0) as file:
            for part in (MAGIC, len(header).to_bytes(8, "little"), header, *arrays):
                view = memoryview(part).cast("B")
                digest.update(view)
                while len(view):
                    view = view[file.write(view) :]
            file.write(digest.digest())
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(sibling, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(sibling)
        raise
    _sync_folder(path.parent)
    return size


def _sync_folder(folder: Path) -> None:
    """Make the new name outlast a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_slot(path: Path, fit: Fit) -> tuple[Stored, int]:
    """What a file holds for a slot, checked to the last byte, and the bytes of the file.

    Raises:
        SlotFileError: for a file that is none, is damaged, or belongs to another model or shape.
        OSError: when it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or file.read(len(MAGIC)) != MAGIC:
            raise SlotFileError("not a golem slot file")
        if status.st_size < len(MAGIC) + 8 + 32:
            raise SlotFileError("truncated")
        _check_digest(file, status.st_size)
        header = _read_header(file, status.st_size)
        _check_header(header, fit)
        sections = _read_sections(file, header, status.st_size)
    stored = Stored(*sections, recurrent=fit.states.recurrent)
    _check_kept(stored, fit)
    return stored, status.st_size


def _check_digest(file, size: int) -> None:
    digest = hashlib.sha256(MAGIC)
    left = size - len(MAGIC) - 32
    while left:
        chunk = file.read(min(left, READ_BYTES))
        if not chunk:
            raise SlotFileError("truncated")
        digest.update(chunk)
        left -= len(chunk)
    if file.read(32) != digest.digest():
        raise SlotFileError("the slot file is damaged (its sha256 does not match)")
    file.seek(len(MAGIC))


def _read_header(file, size: int) -> _Header:
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(LONGEST_HEADER, size):
        raise SlotFileError("its header has no sound length")
    try:
        return msgspec.json.decode(file.read(length), type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SlotFileError(f"its header cannot be read: {error}") from None


def _check_header(header: _Header, fit: Fit) -> None:
    states = fit.states
    if header.model != fit.model:
        raise SlotFileError("the slot was saved for another model")
    if header.context != states.context:
        raise SlotFileError(
            f"the slot was saved with a {header.context}-token context, this engine has "
            f"{states.context}"
        )
    for kind, saved, mine in (
        ("keys", header.cache_k, states.type_k),
        ("values", header.cache_v, states.type_v),
    ):
        if saved != mine:
            raise SlotFileError(
                f"the slot was saved with a {saved} cache of {kind}, this engine keeps {mine}"
            )
    if not 0 <= header.tokens <= states.context:
        raise SlotFileError("Restored prompt does not fit in the slot context")


def _read_sections(file, header: _Header, size: int) -> tuple:
    """The fields of Stored, in their order."""
    end = size - 32
    found: dict[str, list[tuple[str, np.ndarray]]] = {
        kind: [] for kind in ("tokens", "state", "owners", "checkpoint")
    }
    for section in header.sections:
        if section.kind not in found or not 0 <= section.bytes <= end - file.tell():
            raise SlotFileError("truncated, or a section of it is unknown")
        data = np.empty(section.bytes, np.uint8)
        if file.readinto(data) != section.bytes:
            raise SlotFileError("truncated")
        found[section.kind].append((section.name, data))
    if file.tell() != end:
        raise SlotFileError("the slot file has trailing data")
    tokens = [data for _, data in found["tokens"]]
    if len(tokens) != 1 or tokens[0].nbytes != 4 * header.tokens:
        raise SlotFileError("its tokens are not as many as it says")
    try:
        owners = tuple(data.view("<i4") for _, data in found["owners"])
        checkpoints = tuple((int(position), data) for position, data in found["checkpoint"])
    except ValueError:
        raise SlotFileError("a section of it has no sound size or name") from None
    return tokens[0].view("<i4"), dict(found["state"]), owners, checkpoints


def _check_kept(stored: Stored, fit: Fit) -> None:
    count = len(stored.tokens)
    # Rows of pictures and recordings have numbers below 0 in place of tokens.
    if count and not stored.tokens.max() < fit.vocabulary:
        raise SlotFileError("Invalid tokens in slot save file")
    try:
        fit.states.check_saved(0, count, stored.states)
    except StateError as error:
        raise SlotFileError(f"the slot's layers do not match this model: {error}") from None
    if tuple(map(len, stored.owners)) != fit.owners:
        raise SlotFileError("the slot's cache shape does not match this model")
    for owner in stored.owners:
        if len(owner) and not -1 <= owner.min() <= owner.max() < fit.states.context:
            raise SlotFileError("the slot's cache shape does not match this model")
    size = fit.states.recurrent_bytes
    for position, state in stored.checkpoints:
        if not 0 < position <= count or state.nbytes != size:
            raise SlotFileError("a checkpoint of the slot does not match this model")
