"""What one process serves: a chat model, the plugins' capabilities, and how far along it is.

Building a Service starts no thread and opens no file, so that it may be built before a fork.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import falcon

from golem_core.cpu.cores import shown_threads
from golem_core.cpu.executor import told_set
from golem_core.embedding import Embedding, open_embedding
from golem_core.model import Model, ModelError, open_decoder
from golem_core.model.describe import name_of
from golem_core.model.media import Limits
from golem_core.model.memory import checkpoint_memory
from golem_core.pins import Manifest, PinError, UnknownModel
from golem_core.plugins import Opened, Plugins, Runtime
from golem_core.schedule import Engine, Records, Stats
from golem_core.schedule.batcher import BatchStats
from golem_core.schedule.durations import go_duration
from golem_core.settings import Settings
from golem_core.state import States
from golem_server.access_log import NOTE
from golem_server.card import Card, Cards
from golem_server.config import ServerSettings
from golem_server.derived import FolderStore, Store
from golem_server.disconnect import client_gone
from golem_server.errors import Refusal
from golem_server.llama_slot_files import SlotFiles
from golem_server.loading import LoadingBar
from golem_server.residency import Entry, Lease, Residency


class Phase(Enum):
    """Where a service is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


# Opens the chat model of ``-model``: (settings, plugins, progress) -> Model.
Opener = Callable[[ServerSettings, Plugins, Callable[[float], None]], Model]


def open_chat_model(
    server: ServerSettings, plugins: Plugins, progress: Callable[[float], None]
) -> Model:
    """The model that the server's settings name.

    Raises:
        ValueError: for a file that cannot be served, or one that does not fit; one line.
        OSError: when it cannot be read.
    """
    return open_decoder(
        server.model,
        context=server.context,
        parallel=server.parallel,
        threads=server.threads or None,
        pass_width=server.pass_width or None,
        progress=progress,
        mapped=not server.no_mmap,
        mlock=server.mlock,
        cache_type_k=server.cache_type_k,
        cache_type_v=server.cache_type_v,
        builtin_template=server.builtin_template,
        rope_scaling=server.rope_scaling or None,
        rope_scale=server.rope_scale or None,
        rope_freq_base=server.rope_freq_base or None,
        rope_original_context=server.rope_original_context or None,
        mmproj=server.mmproj,
        media=Limits(
            (server.image_min_tokens, server.image_max_tokens),
            server.media_max_pixels,
            server.media_max_seconds,
            server.media_max_bytes,
        ),
        media_cache=server.media_cache,
        draft=server.draft,
        plugins=plugins,
    )


class Service:
    """The model and capabilities of a process, and their life: loading, ready, draining.

    ``start`` and ``close`` belong to the thread that serves; everything else may be called from
    any thread.
    """

    def __init__(self, settings: Settings, plugins: Plugins, opener: Opener = open_chat_model):
        self.settings = settings
        self.server: ServerSettings = settings["server"]
        self.plugins = plugins
        self.phase = Phase.LOADING
        self.progress = 0.0  # of loading, 0 … 1
        self._bar = LoadingBar()
        self.opened: list[Opened] = []
        self.embedding: Embedding | None = None  # the model of -embed
        self.lines: list[str] = []  # of the start-up log
        self.health: dict[str, Any] = {}  # what capabilities tell in /health
        self.records = Records()  # of the answers of every engine there was
        self.cards = Cards(plugins)
        kept = self.server.models
        self.derived: Store | None = FolderStore(kept) if kept else None
        folder = self.server.slot_save_path
        self.slot_files = None if folder is None else SlotFiles(folder)
        self.residency = Residency(
            self._engine_of,
            most=self.server.models_max,
            requests=self.server.most_requests,
            ending=self._ended,
        )
        self._past = Stats()  # of engines that were dropped
        self._opener = opener
        self._startup: Entry | None = None  # the model of -model
        self._manifest = Manifest(self.server.models) if self.server.models else None
        self._manifest_read = 0  # its mtime when it was read
        self._add_route: Callable[[str, Any], None] = lambda template, resource: None

    @property
    def chats(self) -> bool:
        """Whether a chat model, or a folder of them, was asked for."""
        return self.server.model is not None or self.server.models is not None

    @property
    def name(self) -> str:
        """What the model of ``-model``, or else the first capability, is called."""
        if self.server.alias:
            return self.server.alias
        if self.server.model is not None:
            return name_of(self.server.model)
        residents = self.residency.residents()
        if residents:
            return residents[0].entry.name
        if self.server.embed is not None:
            return name_of(self.server.embed)
        return self.opened[0].plugin if self.opened else "golem"

    @property
    def carries(self) -> list[str]:
        """What is served besides chat, as the start-up log calls it."""
        embeds = ["embeddings"] if self.server.embed is not None else []
        return embeds + [one.plugin for one in self.opened]

    @property
    def batches(self) -> dict[str, BatchStats]:
        """What the model of ``-embed`` and those of capabilities have computed, by what they do."""
        found = {} if self.embedding is None else {"embeddings": self.embedding.stats}
        told = {one.plugin: getattr(one.capability, "stats", None) for one in self.opened}
        return found | {name: s for name, s in told.items() if isinstance(s, BatchStats)}

    @property
    def engine(self) -> Engine:
        """The engine in memory, or of several the one that stays longest.

        Raises:
            Refusal: when there is none.
        """
        residents = self.residency.residents()
        if self.phase is not Phase.READY or not self.chats:
            raise self.unavailable()
        if not residents:
            raise Refusal(
                "no model is in memory: name one in the request", "unavailable_error", retry=True
            )
        return residents[0].engine

    def resident(self, name: str = "") -> Engine | None:
        """The engine of a model that is in memory, loading none; the one that stays longest where
        no name is given.

        Raises:
            Refusal: as ``find`` does for a name.
        """
        names = (
            [self.find(name).name] if name else [r.entry.name for r in self.residency.residents()]
        )
        return next((e for e in map(self.residency.engine, names) if e is not None), None)

    # ---- which model a request means ----

    def entries(self) -> list[Entry]:
        """Every model that can be asked for, that of ``-model`` first."""
        own = self._startup
        pinned = self._pinned()
        others = [self._pinned_entry(name) for name in (pinned.pins if pinned else ())]
        return ([own] if own else []) + [e for e in others if own is None or e.name != own.name]

    def find(self, asked: str | None) -> Entry:
        """The model that a request's ``model`` means.

        Without ``-models`` any name means the one model. With it an empty name means that of
        ``-model``, or the only one there is.

        Raises:
            Refusal: 404 for a name that nothing has, 400 for none where one is needed.
        """
        asked = (asked or "").strip()
        own, pinned = self._startup, self._pinned()
        if pinned is None or not asked:
            if own is not None:
                return own
            if pinned is None:
                raise self.unavailable()
            if len(pinned.pins) != 1:
                names = ", ".join(pinned.pins) or "none is pinned yet: golem-models add"
                raise Refusal(f"model is required: this server has several ({names})")
            return self._pinned_entry(next(iter(pinned.pins)))
        if own is not None and asked.lower().removesuffix(":latest") == own.name.lower():
            return own
        try:
            return self._pinned_entry(pinned.resolve(asked))
        except UnknownModel as error:
            raise Refusal(str(error), "not_found_error") from None

    def acquire(
        self,
        req: falcon.Request,
        asked: str | None,
        keep_alive: float | None = None,
        *,
        looks: bool = False,
    ) -> Engine:
        """The engine that a request means, its own until the answer has left.

        keep_alive: seconds the model stays after that; None = as ``-keep-alive`` says. looks:
        nothing is drawn, and how long a model that is here stays does not change.

        Raises:
            Refusal, ClientGone: as ``find`` and ``Residency.acquire`` do.
        """
        lease = self.lease(asked, keep_alive, client_gone(req.env), looks=looks)
        note = req.env[NOTE]
        note.release, before = lease.release, note.release
        before()
        note.load_seconds = lease.load_seconds
        return lease.engine

    def lease(
        self,
        asked: str | None = None,
        keep_alive: float | None = None,
        gone: Callable[[], bool] = lambda: False,
        *,
        looks: bool = False,
    ) -> Lease:
        """The same outside a request: whoever calls releases it."""
        if self.phase is not Phase.READY:
            raise self.unavailable()
        entry = self.find(asked)
        return self.residency.acquire(entry, keep_alive=keep_alive, looks=looks, gone=gone)

    @property
    def stats(self) -> Stats:
        """What all engines have done since the start, those that were dropped too."""
        now = (resident.engine.stats for resident in self.residency.residents())
        return sum(now, start=self._past)

    def _ended(self, engine: Engine) -> None:
        self._past += engine.stats.over()

    def _pinned(self) -> Manifest | None:
        """The folder of ``-models``, read again when its manifest has changed."""
        if self._manifest is None:
            return None
        try:
            changed = self._manifest.modified()
            if changed != self._manifest_read:
                self._manifest = Manifest.read(self._manifest.folder)
                self._manifest_read = changed
        except PinError as error:
            raise Refusal(str(error), "server_error") from None
        return self._manifest

    def _pinned_entry(self, name: str) -> Entry:
        manifest, keep = self._manifest, self.server.keep_alive
        first = manifest.path(manifest.pins[name].files[0])
        return Entry(name, first, manifest, math.inf if keep < 0 else keep)

    def _startup_entry(self, path: Path) -> Entry:
        """The model of ``-model``: verified as well where the folder pins that very file."""
        pinned = self._pinned()
        for name in pinned.pins if pinned else ():
            entry = self._pinned_entry(name)
            if entry.path.resolve() == path.resolve():
                return replace(entry, keep_alive=math.inf)
        return Entry(self.name, path)

    @property
    def broken(self) -> str:
        """Why a model in memory answers no more; empty while all do."""
        for resident in self.residency.residents():
            if (changed := resident.engine.changed) is not None:
                return str(changed)
        return ""

    def unavailable(self) -> Refusal:
        """The refusal of every request that comes at the wrong time of life."""
        if self.phase is Phase.LOADING:
            return Refusal(
                "Loading model", "unavailable_error", retry=True, progress=round(self.progress, 3)
            )
        return Refusal("this server is shutting down", "unavailable_error", retry=True)

    def attach(self, add_route: Callable[[str, Any], None]) -> None:
        """Say how the routes of capabilities are added once those are open."""
        self._add_route = add_route

    def start(self, ready: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """Load on a thread of its own; then one of the two is called, on that thread."""

        def run() -> None:
            try:
                self.load()
            except BaseException as error:
                self.phase = Phase.FAILED
                failed(error)
            else:
                ready()

        threading.Thread(target=run, name="golem-loader", daemon=True).start()

    def load(self) -> None:
        """Open what the settings ask for; the service is ready when this returns."""
        began = time.monotonic()
        self.lines += [str(failure) for failure in self.plugins.failures]
        try:
            with self._bar:
                self._open_chat(began)
                self._open_embedding()
                self._open_capabilities()
        except BaseException as error:
            self._close_models()
            if isinstance(error, Refusal):
                raise ModelError(error.message) from error
            raise
        self.residency.start()
        self.phase = Phase.READY

    def _open_chat(self, began: float) -> None:
        server = self.server
        if server.models is not None:
            pinned = self._pinned()
            names = ", ".join(pinned.pins) or "none yet (golem-models add)"
            self.lines.append(f"{server.models}: {len(pinned.pins)} pinned model(s): {names}")
        if server.model is None:
            return
        self._startup = self._startup_entry(server.model)
        with self.residency.acquire(self._startup) as engine:
            model = engine.model
            slots = server.parallel
            cores = shown_threads(model.executor.threads)
            took = go_duration(time.monotonic() - began, round_to=0.001)
            self.lines += [
                f"{self.name}: {model.architecture}, {model.blocks} blocks, "
                f"{engine.context * slots} positions in {slots} slot(s) of {engine.context}, "
                f"all on cpu, loaded in {took} on {cores}",
                f"kernels: {told_set()}",
                _cache_line(model.executor.states),
                "template: " + ("the file's" if model.template_source == "file" else "built in"),
            ]
            if engine.checkpoint_bytes:
                self.lines.append(self._checkpoints(engine))
            if model.prediction is not None:
                self.lines.append("drafts: by the file's prediction block, where that is faster")

    def _checkpoints(self, engine: Engine) -> str:
        """What a recurrent model's slots may go back to."""
        asked, granted = self.server.checkpoints, engine.checkpoints
        size = f"{engine.checkpoint_bytes / 2**20:.1f} MiB each"
        if granted == asked:
            return f"checkpoints: {granted} a slot, {size}"
        return (
            f"checkpoints: {granted} a slot, {size}, of {asked} asked for: memory is short; "
            "-checkpoint-memory allows more, -parallel or -context leave more"
        )

    def _open_embedding(self) -> None:
        server = self.server
        if server.embed is None:
            return
        self.embedding = open_embedding(
            server.embed,
            queue=server.queue,
            threads=server.threads or None,
            mapped=not server.no_mmap,
            progress=self._report,
            plugins=self.plugins,
        )
        model = self.embedding.model
        gives = "scores of pairs" if model.ranks else f"vectors of {model.width}"
        took = go_duration(model.seconds, round_to=0.001)
        self.lines.append(
            f"{model.name}: {model.architecture}, {model.blocks} blocks, {gives}, "
            f"texts of {model.context} tokens, {model.pooling} pooling, on cpu, loaded in {took}"
        )

    def _close_models(self) -> None:
        self.residency.close()
        if self.embedding is not None:
            self.embedding.close()

    def _projector(self, entry: Entry) -> Path | None:
        if entry.mmproj is None and entry.path == self.server.model:  # a projector is one model's
            return self.server.mmproj
        return entry.mmproj

    def card(self, entry: Entry) -> Card:
        """What a model is called and what it can do, in memory or not."""
        return self.cards.of(entry, self._projector(entry))

    @property
    def embedder(self) -> Card | None:
        """The card of the model of ``-embed``, under ``-alias`` where it is served alone."""
        path = self.server.embed
        if path is None:
            return None
        name = name_of(path) if self.chats else self.name
        return replace(self.cards.of(Entry(name, path)), can=("embedding",), reason="")

    def _engine_of(self, entry: Entry) -> Engine:
        """Open the model of an entry and start its engine."""
        server = replace(self.server, model=entry.path, mmproj=self._projector(entry))
        model = self._opener(server, self.plugins, self._report)
        try:
            engine = Engine(
                model,
                queue=server.queue,
                cache_ttl=server.cache_ttl,
                cache_ram=server.cache_bytes,
                default_length=server.n,
                queue_timeout=server.queue_timeout,
                request_timeout=server.request_timeout,
                records=self.records,
                name=entry.name,
                draft=server.draft,
                draft_n=server.draft_n,
                checkpoints=server.checkpoints,
                checkpoint_memory=checkpoint_memory(model.estimate, server.checkpoint_memory),
            )
        except BaseException:
            model.close()
            raise
        engine.start()
        return engine

    def _open_capabilities(self) -> None:
        server = self.server
        runtime = Runtime(server.threads, server.pass_width, self._report)
        chosen = {t.name: self.settings[t.name] for t in self.settings.tables if t.plugin}
        self.opened = self.plugins.open(chosen, runtime)
        for one in self.opened:
            said = self.plugins.describe(one)
            self.lines += said.lines
            self.health |= said.health
            for template, resource in self.plugins.routes(one):
                self._add_route(template, resource)

    def _report(self, part: float) -> None:
        self.progress = part
        if self.phase is Phase.LOADING:
            self._bar(part)

    def drain(self) -> None:
        """Take no new request; those that are here go on."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.DRAINING

    def close(self) -> None:
        """End everything; answers that are not finished fail."""
        self.drain()
        self._close_models()
        opened, self.opened = self.opened, []
        for one in opened:
            one.capability.close()


def _cache_line(states: States) -> str:
    """What the slots' memory takes when all of it is in use, and what it holds."""
    size = f"{states.nbytes / 2**20:.1f} MiB"
    return f"cache: {size}, keys in {states.type_k}, values in {states.type_v}"
