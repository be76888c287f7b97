"""An open projector's file: from the bytes of a picture or a recording to rows for a model.

Rows are kept by the hash of the bytes, so that a conversation whose earlier turns hold pictures is
not looked at anew with every turn.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.graph.program import Program
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import WeightError
from golem_core.media import (
    MediaError,
    check_pixels,
    check_seconds,
    decode_picture,
    decode_sound,
)
from golem_core.model.decoder import Decoder
from golem_core.model.errors import ModelError
from golem_core.model.hyper import Hyper
from golem_core.model.media import KINDS, Limits, Positions, Tower
from golem_core.model.memory import Estimate, estimate_program
from golem_core.model.tensors import Tensors
from golem_core.reference import ReferenceExecutor

CACHE_BYTES = 256 << 20  # of rows kept
TURN_SECONDS = 0.1  # between two looks at whether waiting is still worth it
MARKED = 1 << 20  # bytes of a projector's file by which it is told from others
ABILITIES = {"image": "see", "audio": "hear"}
SECTIONS = {"image": "vision", "audio": "audio"}  # of a projector's header

# Runs one pass: (executor, inputs) -> its outputs.
Run = Callable[[Any, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Rows:
    """What a model reads of one picture or recording.

    kind: "image" or "audio". digest: of the bytes it was made from, and of the projector.
    embeddings: (rows, width) f32. both_ways: each sees those after it too. positions: where they
    lie for the model's angles; None: one after the other.
    """

    kind: str
    digest: bytes
    embeddings: np.ndarray
    both_ways: bool = False
    positions: Positions | None = None

    def __len__(self) -> int:
        return len(self.embeddings)


@dataclass(frozen=True)
class _Eye:
    """A tower that is ready to run."""

    tower: Tower
    program: Program
    executor: Any


class Projector:
    """The towers of a file. ``rows`` may be called from any thread; one is seen at a time."""

    def __init__(self, path: Path, file: GGUF, towers: Mapping[str, Tower], limits: Limits):
        self.path = path
        self.file = file
        self.towers = dict(towers)
        self.limits = limits
        self.programs = {kind: tower.program() for kind, tower in self.towers.items()}
        self.both_ways = False
        self._eyes: dict[str, _Eye] = {}
        self._kept: OrderedDict[tuple[str, bytes], Rows] = OrderedDict()
        self._room = CACHE_BYTES
        self._door = threading.Lock()  # of what is kept
        self._turn = threading.Lock()  # of the towers
        # Decoded media in memory: the one that is looked at, and the next. A picture of few bytes
        # may be hundreds of megabytes of pixels, and any number of requests wait for their turn.
        self._desk = threading.BoundedSemaphore(2)
        self._mark = _mark(path)

    @property
    def kinds(self) -> frozenset[str]:
        """What it takes: "image", "audio" or both."""
        return frozenset(self.towers)

    @property
    def longest(self) -> int:
        """Most rows of one picture."""
        return self.towers["image"].longest if "image" in self.towers else 0

    @property
    def estimate(self) -> Estimate:
        """Bytes the towers take at their fullest."""
        each = [estimate_program(p, 0, 0, 0) for p in self.programs.values()]
        weights, arena = sum(e.weights for e in each), sum(e.arena for e in each)
        return Estimate(weights, 0, arena, 0)

    def ready(self, beside: Any, cache: int = CACHE_BYTES) -> None:
        """Makes the executors. beside: that of the model, whose threads they share.

        cache: bytes of rows to keep.
        """
        self._room = cache
        for kind, program in self.programs.items():
            self._eyes[kind] = _Eye(self.towers[kind], program, _executor(program, beside))

    def rows(
        self,
        kind: str,
        data: bytes | np.ndarray,
        run: Run | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> Rows:
        """The rows of a picture or a recording, made or remembered.

        data: of a file; or decoded, as ``golem_core.media`` gives it: a picture (height, width, 3)
        u8, a recording (samples,) f32 at 16 kHz. run: how a pass of a tower is run, by itself when
        None. waiting: called now and then while others are before it, and may raise. Raises
        MediaError for bytes that are none, that are too many, or of a kind this file has no tower
        for; ModelError where the file has changed on disk.
        """
        if kind not in self.towers:
            raise MediaError(no_tower(kind, "with a projector that cannot"))
        most = self.limits.bytes
        if isinstance(data, bytes) and len(data) > most:
            raise MediaError(
                f"a {KINDS[kind]} of {len(data) / 1e6:.1f} MB, and {most / 1e6:.1f} MB is the most"
            )
        key = kind, _digest(self._mark, data)
        found = self._remembered(key)
        if found is not None:
            return found
        with _held(self._desk, waiting):
            found = self._remembered(key)  # by whoever was before
            if found is not None:
                return found
            medium = self._decoded(kind, data)
            with _held(self._turn, waiting):
                found = self._remembered(key)
                return found or self._keep(key, self._made(key, medium, run or run_whole))

    def _decoded(self, kind: str, data: bytes | np.ndarray) -> np.ndarray:
        limits = self.limits
        if isinstance(data, bytes):
            if kind == "image":
                return decode_picture(data, pixels=limits.pixels)
            return decode_sound(data, seconds=limits.seconds)
        if kind == "image":
            check_pixels(data.shape[1], data.shape[0], limits.pixels)
        else:
            check_seconds(data, limits.seconds)
        return data

    def _made(self, key: tuple[str, bytes], medium: np.ndarray, run: Run) -> Rows:
        kind, digest = key
        eye = self._eyes[kind]
        self._refuse_changed()
        parts = [run(eye.executor, inputs)["rows"] for inputs in eye.tower.pieces(medium)]
        if not parts:
            raise MediaError(f"a {KINDS[kind]} too short to be one")
        self._refuse_changed()
        rows = np.concatenate(parts)
        if not np.isfinite(rows).all():
            raise MediaError(f"a {KINDS[kind]} that the projector makes no numbers of")
        both = self.both_ways and kind == "image"
        return Rows(kind, digest, rows, both, eye.tower.positions(medium, len(rows)))

    def _refuse_changed(self) -> None:
        """What is read of a file that is no longer what it was are other weights, or zeros."""
        if self.file.changed() or self.file.lost:
            raise ModelError(f"{self.path} changed on disk: open it again")

    def _remembered(self, key: tuple[str, bytes]) -> Rows | None:
        with self._door:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: tuple[str, bytes], rows: Rows) -> Rows:
        with self._door:
            self._kept[key] = rows
            size = sum(r.embeddings.nbytes for r in self._kept.values())
            while self._kept and size > self._room:
                size -= self._kept.popitem(last=False)[1].embeddings.nbytes
        return rows

    def close(self) -> None:
        """Frees its memory and the map of its file."""
        for eye in self._eyes.values():
            eye.executor.close()
        self._eyes.clear()
        self.file.close()


@contextmanager
def _held(lock: Any, waiting: Callable[[], None]) -> Iterator[None]:
    """A lock or semaphore, waited for with a look now and then at whether that is worth it."""
    while not lock.acquire(timeout=TURN_SECONDS):
        waiting()
    try:
        yield
    finally:
        lock.release()


def _mark(path: Path) -> bytes:
    """What tells a projector from others: rows that they make of one picture differ."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(MARKED)).digest()


def _digest(mark: bytes, data: bytes | np.ndarray) -> bytes:
    """What tells a medium from others. A decoded one is never taken for a file's bytes."""
    if isinstance(data, bytes):
        return hashlib.sha256(mark + data).digest()
    made = hashlib.sha256(mark + f"decoded {data.shape}".encode())
    made.update(np.ascontiguousarray(data))
    return made.digest()


def run_whole(executor: Any, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """A pass of a tower on the caller's thread; its rows are a copy."""
    return {"rows": executor.run(inputs, ("rows",))["rows"].copy()}


def no_tower(kind: str, why: str) -> str:
    """The refusal of a medium nobody can take."""
    verb = {"image": "look at a picture", "audio": "listen"}[kind]
    return (
        f"this model was started {why} {ABILITIES[kind]}, so it cannot {verb}: start the server "
        "with -mmproj"
    )


def open_projector(
    path: str | Path, decoder: Decoder, limits: Limits, *, mapped: bool = True
) -> Projector:
    """Opens the projector of a model. Raises ModelError, FormatError, OSError: one line each."""
    file = GGUF.open(path, mapped=mapped)
    try:
        towers = _towers(file, decoder, limits)
        projector = Projector(Path(path), file, towers, limits)
        for kind, tower in towers.items():
            if tower.width != decoder.width:
                raise ModelError(
                    f"{path}: the projector makes rows of {tower.width} values for what it "
                    f"{ABILITIES[kind]}s, and {decoder.hyper.file} reads rows of {decoder.width}; "
                    "they are not a pair"
                )
    except (WeightError, ProgramError) as error:
        file.close()
        raise ModelError(f"{path}: {error}") from error
    except BaseException:
        file.close()
        raise
    projector.both_ways = decoder.both_ways
    return projector


def _towers(file: GGUF, decoder: Decoder, limits: Limits) -> dict[str, Tower]:
    keys = file.metadata
    if file.architecture != "clip":
        raise ModelError(
            f"{file.path}: this is a model of the architecture {file.architecture!r}; -mmproj takes"
            ' a projector, whose architecture is "clip"'
        )
    if not decoder.towers:
        raise ModelError(
            f"{file.path}: golem's {decoder.architecture} reads text alone; leave -mmproj out"
        )
    towers: dict[str, Tower] = {}
    for kind, section in SECTIONS.items():
        hyper = Hyper(keys, f"clip.{section}", str(file.path))
        if not hyper.flag(f".clip.has_{section}_encoder", False):
            continue
        type = hyper.text("projector_type", None) or hyper.text(".clip.projector_type")
        found = decoder.towers.get(type)
        if found is None or found.kind != kind:
            known = ", ".join(t for t, tower in decoder.towers.items() if tower.kind == kind)
            raise ModelError(
                f"{file.path}: its {section} projector is of the type {type!r}; "
                f"{decoder.architecture} takes {known or 'none'}"
            )
        towers[kind] = found(hyper, Tensors(file.tensors), limits)
    if not towers:
        raise ModelError(f"{file.path}: this projector can neither see nor hear")
    return towers


def _executor(program: Program, beside: Any) -> Any:
    if isinstance(beside, ReferenceExecutor):
        return ReferenceExecutor(program)
    from golem_core.cpu import CpuExecutor  # compiled; a checkout that only reads files lacks it

    return CpuExecutor(program, beside=beside, wanted=(("rows",),))
