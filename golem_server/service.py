"""What one process serves: a chat model, the plugins' capabilities, and how far along it is.

Building a Service starts no thread and opens no file, so that it may be built before a fork.
"""

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

from golem_core.model import Model, open_decoder
from golem_core.model.describe import name_of
from golem_core.plugins import Opened, Plugins, Runtime
from golem_core.schedule import Engine
from golem_core.schedule.durations import go_duration
from golem_core.settings import Settings
from golem_server.config import ServerSettings
from golem_server.errors import Refusal


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
        builtin_template=server.builtin_template,
        rope_scaling=server.rope_scaling or None,
        rope_scale=server.rope_scale or None,
        rope_freq_base=server.rope_freq_base or None,
        rope_original_context=server.rope_original_context or None,
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
        self.opened: list[Opened] = []
        self.lines: list[str] = []  # of the start-up log
        self._opener = opener
        self._engine: Engine | None = None
        self._add_route: Callable[[str, Any], None] = lambda template, resource: None

    @property
    def chats(self) -> bool:
        """Whether a chat model was asked for."""
        return self.server.model is not None

    @property
    def name(self) -> str:
        """What the chat model, or else the first capability, is called."""
        if self.server.alias:
            return self.server.alias
        if self.server.model is not None:
            return name_of(self.server.model)
        return self.opened[0].plugin if self.opened else "golem"

    @property
    def engine(self) -> Engine:
        """The chat model's engine.

        Raises:
            Refusal: before it is there.
        """
        if self._engine is None:
            raise self.unavailable()
        return self._engine

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
        engine = self._open_chat(began) if self.chats else None
        try:
            self._open_capabilities()
        except BaseException:
            if engine is not None:
                engine.close()
                engine.model.close()
            raise
        self._engine = engine
        self.phase = Phase.READY

    def _open_chat(self, began: float) -> Engine:
        server = self.server
        model = self._opener(server, self.plugins, self._report)
        try:
            engine = Engine(
                model,
                queue=server.queue,
                cache_ttl=server.cache_ttl,
                default_length=server.n,
                queue_timeout=server.queue_timeout,
                request_timeout=server.request_timeout,
            )
        except BaseException:
            model.close()
            raise
        engine.start()
        slots = server.parallel
        cores = model.executor.threads
        took = go_duration(time.monotonic() - began, round_to=0.001)
        self.lines += [
            f"{self.name}: {model.architecture}, {model.blocks} blocks, "
            f"{engine.context * slots} positions in {slots} slot(s) of {engine.context}, "
            f"all on cpu, loaded in {took} on {cores} cores",
            "template: " + ("the file's" if model.template_source == "file" else "built in"),
        ]
        return engine

    def _open_capabilities(self) -> None:
        server = self.server
        runtime = Runtime(server.threads, server.pass_width, self._report)
        chosen = {t.name: self.settings[t.name] for t in self.settings.tables if t.plugin}
        self.opened = self.plugins.open(chosen, runtime)
        for one in self.opened:
            self.lines += self.plugins.describe(one).lines
            for template, resource in self.plugins.routes(one):
                self._add_route(template, resource)

    def _report(self, part: float) -> None:
        self.progress = part

    def drain(self) -> None:
        """Take no new request; those that are here go on."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.DRAINING

    def close(self) -> None:
        """End everything; answers that are not finished fail."""
        self.drain()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
            engine.model.close()
        opened, self.opened = self.opened, []
        for one in opened:
            one.capability.close()
