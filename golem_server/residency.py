"""Which models are in memory: loaded when a request names one, dropped when nobody asks any more.

At most ``most`` models are held at a time. A request leases the engine of its model until its
answer has left; a leased model is never dropped, and who wants another in its place waits. Leases
are given in order, so that a model much asked for cannot keep a second one out.
"""

import gc
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from golem_core.pins import Identity, Manifest, PinError, identity
from golem_core.schedule import Engine
from golem_server.errors import ClientGone, Refusal
from golem_server.memory import trim

REAP_SECONDS = 0.5  # how often it is looked whether a model's time has run out
ASK_SECONDS = 0.25  # how often who waits looks whether the client is still there

Gone = Callable[[], bool]


@dataclass(frozen=True)
class Entry:
    """A model that can be asked for.

    manifest: what pins it, None for one that is not pinned. keep_alive: seconds it stays after an
    answer where the request says nothing.
    """

    name: str
    path: Path
    manifest: Manifest | None = field(default=None, repr=False, compare=False)
    keep_alive: float = math.inf

    @property
    def paths(self) -> list[Path]:
        """Its files."""
        if self.manifest is None:
            return [self.path]
        return [self.manifest.path(part) for part in self.manifest.pins[self.name].every]

    @property
    def mmproj(self) -> Path | None:
        """The projector that is pinned with it."""
        pinned = self.manifest and self.manifest.pins[self.name].mmproj
        return self.manifest.path(pinned) if pinned else None


@dataclass
class Resident:
    """A model in memory.

    verified_at, verify_seconds: when its files were compared with its pin and how long that took;
    None and 0 for a model that is not pinned. keep_alive: as the last request had it.
    """

    entry: Entry
    engine: Engine
    identities: list[Identity]
    loaded_at: datetime
    load_seconds: float
    verified_at: datetime | None
    verify_seconds: float
    keep_alive: float = math.inf
    users: int = 0
    stale: bool = False  # its files are no longer those that were verified
    used_at: float = field(default_factory=time.monotonic)

    @property
    def expires_in(self) -> float:
        """Seconds from now until it is dropped if nobody asks for it; may be negative."""
        if self.stale:
            return 0.0
        return self.keep_alive - (0.0 if self.users else time.monotonic() - self.used_at)


class Lease:
    """The right to use an engine; ``release`` gives it back, and may be called again.

    load_seconds: what loading took on behalf of this lease, 0 where the model was there.
    """

    def __init__(self, resident: Resident, release: Callable[[], None], load_seconds: float = 0.0):
        self.resident = resident
        self.load_seconds = load_seconds
        self._release: Callable[[], None] | None = release

    @property
    def engine(self) -> Engine:
        """The engine; not to be used once this is released."""
        return self.resident.engine

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Engine:
        return self.engine

    def __exit__(self, *exception: object) -> None:
        self.release()


class Residency:
    """The models of one server.

    Args:
        load: opens the model of an entry and starts its engine.
        most: models held at a time.
        requests: those that may hold models and wait for one; each keeps a thread of the server.
        ending: called with an engine before it is dropped.
    """

    def __init__(
        self,
        load: Callable[[Entry], Engine],
        *,
        most: int = 1,
        requests: float = math.inf,
        ending: Callable[[Engine], None] = lambda engine: None,
    ):
        self._load = load
        self._ending = ending
        self._most = most
        self._requests = requests
        self._held: dict[str, Resident] = {}
        self._coming: set[str] = set()  # names whose place is kept while they are loaded
        self._leaving = 0  # models that are being dropped and still take a place
        self._turns: deque[object] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._dropped = False  # a model since the reaper last looked

    def residents(self) -> list[Resident]:
        """The models in memory, the one that stays longest first."""
        with self._changed:
            held = list(self._held.values())
        return sorted(held, key=lambda resident: -resident.expires_in)

    def engine(self, name: str) -> Engine | None:
        """The engine of a model that is in memory now; it may be dropped at any time."""
        with self._changed:
            resident = self._held.get(name)
            return None if resident is None else resident.engine

    def resident(self, name: str) -> Resident | None:
        """The model of a name, if it is in memory."""
        with self._changed:
            return self._held.get(name)

    def acquire(
        self,
        entry: Entry,
        *,
        keep_alive: float | None = None,
        looks: bool = False,
        gone: Gone = lambda: False,
    ) -> Lease:
        """Lease the engine of a model, loading it if need be.

        Args:
            keep_alive: seconds the model stays after this answer; None = the entry's.
            looks: nothing is drawn: a model that is here stays as long as it was told to.
            gone: whether the client has hung up, asked while this waits.

        Raises:
            Refusal: 404 for files that are not there, 400 for files that are not those that were
                pinned or cannot be played, 503 for files that changed, where too many wait already
                and while shutting down.
            ClientGone: when the client has hung up.
        """
        keep = entry.keep_alive if keep_alive is None else keep_alive
        if looks:
            resident = self.resident(entry.name)
            keep = keep if resident is None else resident.keep_alive
        _identities(entry)  # before anything leaves for files that are not there
        try:
            lease, victim = self._take(entry, keep, gone)
        except Refusal:
            self.reap()  # one whose files have changed
            raise
        return lease or self._bring(entry, keep, victim, gone)

    def _take(
        self, entry: Entry, keep: float, gone: Gone
    ) -> tuple[Lease, None] | tuple[None, Resident | None]:
        """A lease of a model that is here, or else a place for it and who must leave for that."""
        turn = object()
        with self._changed:
            if self._turns or not self._can_have(entry):
                self._refuse_full()
            self._turns.append(turn)
            try:
                self._wait(lambda: self._turns[0] is turn and self._can_have(entry), gone)
                resident = self._held.get(entry.name)
                if resident is None:
                    return None, self._make_place(entry)
                self._check_files(resident, entry)
                return self._lease(resident, keep), None
            finally:
                self._turns.remove(turn)
                self._changed.notify_all()

    def expire(self, name: str) -> bool:
        """Drop a model as soon as nobody uses it; says whether it was there."""
        with self._changed:
            resident = self._held.get(name)
            if resident is not None:
                resident.keep_alive = -math.inf
        self.reap()
        return resident is not None

    def reap(self) -> None:
        """Drop the models whose time has run out."""
        with self._changed:
            over = [r for r in self._held.values() if not r.users and r.expires_in <= 0]
            for resident in over:
                del self._held[resident.entry.name]
            self._leaving += len(over)
        for resident in over:
            self._drop(resident)
            with self._changed:
                self._leaving -= 1
                self._changed.notify_all()

    def start(self) -> None:
        """Reap from now on, on a thread of its own."""
        threading.Thread(target=self._reap_on, name="golem-reaper", daemon=True).start()

    def close(self) -> None:
        """Drop every model, whoever uses it; nothing can be leased any more."""
        self._closed.set()
        with self._changed:
            held, self._held = list(self._held.values()), {}
            self._changed.notify_all()
        for resident in held:
            _end(resident)

    # ---- while _changed is held ----

    def _wait(self, until: Callable[[], bool], gone: Gone) -> None:
        while not self._closed.is_set():
            if until():
                return
            if not self._changed.wait(ASK_SECONDS) and gone():
                raise ClientGone
        raise _shutting_down()

    def _can_have(self, entry: Entry) -> bool:
        """Whether the model is here, or nobody is bringing it and there is a place to be had."""
        if entry.name in self._held:
            return True
        if entry.name in self._coming:
            return False
        return self._places_left() > 0 or any(not r.users for r in self._held.values())

    def _refuse_full(self) -> None:
        """Refuse one more that waits where as many requests are here as may be.

        Who finds its model here is not counted out: its engine has a queue of its own. Since all
        wait their turn behind one who waits, no more than ``requests`` ever do.
        """
        here = sum(r.users for r in self._held.values()) + len(self._coming) + len(self._turns)
        if here >= self._requests:
            raise Refusal(
                f"{here} requests hold models or wait for one, and no more may: try again later, "
                "or start the server with a larger -queue",
                "unavailable_error",
                retry=True,
            )

    def _places_left(self) -> int:
        return self._most - len(self._held) - len(self._coming) - self._leaving

    def _check_files(self, resident: Resident, entry: Entry) -> None:
        pins = [e.manifest and e.manifest.pins.get(e.name) for e in (resident.entry, entry)]
        if entry.manifest is None or (
            pins[0] == pins[1] and _identities(entry) == resident.identities
        ):
            return
        resident.stale = True  # whoever uses it now may finish
        raise Refusal(
            f"{entry.path.name} changed since golem verified it: unloaded, and refused; the next "
            "request verifies it again",
            "unavailable_error",
            retry=True,
        )

    def _lease(self, resident: Resident, keep: float, load_seconds: float = 0.0) -> Lease:
        resident.users += 1
        resident.keep_alive = keep

        def release() -> None:
            with self._changed:
                resident.users -= 1
                resident.used_at = time.monotonic()
                over = not resident.users and resident.expires_in <= 0
                self._changed.notify_all()
            if over:
                self.reap()

        return Lease(resident, release, load_seconds)

    def _make_place(self, entry: Entry) -> Resident | None:
        """Keep a place for a model; the one that must leave for it, if any."""
        victim = None
        if self._places_left() <= 0:
            idle = [r for r in self._held.values() if not r.users]
            victim = min(idle, key=lambda resident: resident.used_at)
            del self._held[victim.entry.name]
        self._coming.add(entry.name)
        return victim

    # ---- without it ----

    def _bring(self, entry: Entry, keep: float, victim: Resident | None, gone: Gone) -> Lease:
        """Load a model whose place is kept."""
        resident = None
        try:
            if victim is not None:
                self._drop(victim)
            resident = self._loaded(entry, gone)
        finally:
            with self._changed:
                self._coming.discard(entry.name)
                kept = resident is not None and not self._closed.is_set()
                if kept:
                    self._held[entry.name] = resident
                    lease = self._lease(resident, keep, resident.load_seconds)
                self._changed.notify_all()
        if not kept:
            _end(resident)
            raise _shutting_down()
        return lease

    def _loaded(self, entry: Entry, gone: Gone) -> Resident:
        began = time.monotonic()
        before = _identities(entry)
        verified_at, seconds = None, 0.0
        if entry.manifest is not None:
            try:
                seconds = entry.manifest.verify(entry.name, lambda: gone() or self._closed.is_set())
            except PinError as error:
                if gone():
                    raise ClientGone from None
                raise Refusal(f"refuse: {error}") from None
            verified_at = datetime.now(UTC)
            if _identities(entry) != before:
                raise Refusal(
                    f"{entry.path} changed while it was being hashed: refused",
                    "unavailable_error",
                    retry=True,
                )
        try:
            engine = self._load(entry)
        except (ValueError, OSError) as error:
            if entry.manifest is None:
                raise
            raise Refusal(f"{entry.name}: golem does not play it: {error}") from error
        return Resident(
            entry,
            engine,
            before,
            datetime.now(UTC),
            time.monotonic() - began,
            verified_at,
            seconds,
        )

    def _drop(self, resident: Resident) -> None:
        self._ending(resident.engine)
        _end(resident)
        self._dropped = True

    def _reap_on(self) -> None:
        while not self._closed.wait(REAP_SECONDS):
            self.reap()
            if self._dropped:  # the thread of the last answer may have kept the map until now
                self._dropped = False
                gc.collect()


def _identities(entry: Entry) -> list[Identity]:
    """Of the files of a pinned model. Raises Refusal where one is not there."""
    if entry.manifest is None:
        return []
    try:
        return [identity(path) for path in entry.paths]
    except OSError as error:
        raise Refusal(
            f"{entry.name} is pinned but {error.filename} is not on this machine",
            "not_found_error",
        ) from None


def _end(resident: Resident) -> None:
    """End an engine and give its memory back, the map of the file too."""
    engine = resident.__dict__.pop("engine")  # whoever still has the resident must not keep it
    engine.close()
    engine.model.close()
    del engine
    gc.collect()  # a view of the map may hang in a cycle
    trim()


def _shutting_down() -> Refusal:
    return Refusal("this server is shutting down", "unavailable_error", retry=True)
