"""How a model family, or any other capability, joins golem: six hooks and who calls them.

golem's own families come in through the same hooks as anyone's package. A plugin is a module (or
an object) named by an entry point of the group ``golem``::

    [project.entry-points.golem]
    echo = "golem_echo"

and implements what it wants of the hooks below with :data:`hookimpl`, taking only the arguments it
needs. A plugin that cannot be loaded is not fatal: it is kept in :attr:`Plugins.failures` with its
error, so that the server can say what it lacks.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import pluggy

GROUP = "golem"
IN_TREE = "golem_plugins"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True)
class Runtime:
    """What a capability may use of the process that opens it."""

    threads: int  # cores to compute on; 0 = the executor's default
    pass_width: int  # most columns of one pass; 0 = the executor's default
    progress: Callable[[float], None] = lambda part: None  # called with 0 … 1 while loading


@dataclass(frozen=True)
class Description:
    """What a capability says about itself."""

    lines: tuple[str, ...] = ()  # for the start-up log, without a newline
    health: Mapping[str, Any] = field(default_factory=dict)  # members of /health, for key holders


# ---- the hooks ----


@hookspec
def golem_architectures() -> dict[str, type]:
    """Return the chat architectures served, ``{general.architecture of the GGUF: model class}``."""


@hookspec
def golem_embedders() -> dict[str, type]:
    """Return the embedding architectures served, ``{general.architecture: Encoder class}``."""


@hookspec
def golem_settings() -> type:
    """Return a dataclass of ``golem_core.settings.setting`` fields: the plugin's own settings."""


@hookspec
def golem_open(settings: Any, runtime: Runtime) -> Any:
    """Open and return what the settings ask to serve (anything with ``close()``), or None."""


@hookspec
def golem_routes(capability: Any) -> list[tuple[str, Any]]:
    """Return the Falcon routes of an opened capability, ``[(uri template, resource), …]``."""


@hookspec
def golem_describe(capability: Any) -> Description:
    """Return what an opened capability says about itself."""


# ---- the manager ----


class UnknownArchitecture(ValueError):
    """No installed plugin serves the architecture that a file names."""


@dataclass(frozen=True)
class Failure:
    """A plugin that is installed and could not be used."""

    name: str  # of the entry point
    source: str  # what it names: "package.module"
    error: BaseException

    def __str__(self) -> str:
        what = "; ".join(f"{type(self.error).__name__}: {self.error}".splitlines())
        return f"plugin {self.name} ({self.source}) could not be loaded: {what}"


@dataclass(frozen=True)
class Opened:
    """A capability and the plugin it came from."""

    plugin: str
    capability: Any


@dataclass
class Plugins:
    """The plugins of this process, asked one at a time so that an error has a name."""

    manager: pluggy.PluginManager = field(default_factory=lambda: _new_manager())
    failures: list[Failure] = field(default_factory=list)
    _architectures: dict[str, tuple[str, type]] = field(default_factory=dict)
    _embedders: dict[str, tuple[str, type]] = field(default_factory=dict)

    def add(self, name: str, load: Callable[[], Any], source: str = "") -> None:
        """Load and register one plugin; what goes wrong becomes a :class:`Failure`."""
        plugin = None
        try:
            plugin = load()
            if self.manager.register(plugin, name=name) is None:
                raise ValueError(f"the name {name!r} is blocked")
            self.manager.check_pending()
            self._claim(name)
        except (Exception, SystemExit) as error:  # a module that leaves takes nobody along
            if plugin is not None and self.manager.get_plugin(name) is plugin:
                self.manager.unregister(name=name)
            self.failures.append(Failure(name, source, error))

    def _claim(self, name: str) -> None:
        claims = [
            (self._architectures, self._ask(name, "golem_architectures") or {}),
            (self._embedders, self._ask(name, "golem_embedders") or {}),
        ]
        for known, served in claims:
            for architecture, model in served.items():
                if not isinstance(model, type):
                    raise TypeError(f"architecture {architecture!r}: {model!r} is not a class")
                owner = known.get(architecture)
                if owner is not None:
                    raise ValueError(
                        f"architecture {architecture!r} is already served by plugin {owner[0]}; "
                        "uninstall one of the two"
                    )
        for known, served in claims:
            known.update({key: (name, model) for key, model in served.items()})

    def _ask(self, name: str, hook: str, **arguments: Any) -> Any:
        """Call a hook of one plugin only; None when it does not implement it."""
        others = [p for other, p in self.manager.list_name_plugin() if other != name]
        answers = self.manager.subset_hook_caller(hook, others)(**arguments)
        return answers[0] if answers else None

    @property
    def names(self) -> list[str]:
        """The plugins that are loaded, in the order of loading."""
        return [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]

    def architectures(self) -> dict[str, type]:
        """``{general.architecture: model class}`` of all plugins."""
        return {key: model for key, (_, model) in self._architectures.items()}

    def embedders(self) -> dict[str, type]:
        """``{general.architecture: Encoder class}`` of all plugins."""
        return {key: model for key, (_, model) in self._embedders.items()}

    def architecture(self, name: str) -> type:
        """The model class for an architecture.

        Raises:
            UnknownArchitecture: with the list of those installed, and the plugins that failed.
        """
        found = self._architectures.get(name)
        if found is None:
            known = ", ".join(sorted(self._architectures)) or "none"
            lacking = "".join(f"; {failure}" for failure in self.failures)
            raise UnknownArchitecture(
                f'no installed plugin serves the architecture "{name}"; installed: {known}{lacking}'
            )
        return found[1]

    def settings(self) -> dict[str, type]:
        """``{plugin: its settings dataclass}`` of those that have settings."""
        found = {name: self._ask(name, "golem_settings") for name in self.names}
        return {name: table for name, table in found.items() if table is not None}

    def open(self, settings: dict[str, Any], runtime: Runtime) -> list[Opened]:
        """Open every capability that the settings (``{plugin: settings}``) ask for.

        What is already open is closed again when a later one fails.
        """
        opened: list[Opened] = []
        try:
            for name in self.names:
                capability = self._ask(
                    name, "golem_open", settings=settings.get(name), runtime=runtime
                )
                if capability is not None:
                    opened.append(Opened(name, capability))
        except BaseException:
            for one in opened:
                one.capability.close()
            raise
        return opened

    def routes(self, opened: Opened) -> list[tuple[str, Any]]:
        """The Falcon routes of a capability."""
        return list(self._ask(opened.plugin, "golem_routes", capability=opened.capability) or [])

    def describe(self, opened: Opened) -> Description:
        """What a capability says about itself; nothing when its plugin does not say."""
        said = self._ask(opened.plugin, "golem_describe", capability=opened.capability)
        return said if said is not None else Description()


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(sys.modules[__name__])
    return manager


def installed() -> Iterable[tuple[str, str, Callable[[], Any]]]:
    """``(name, source, load)`` of every plugin that can be found, in the order of loading.

    golem's own come first and the others by their names, wherever they are installed: which of two
    plugins that claim the same architecture has it must not depend on how a folder is listed.
    golem's own families are found by their entry points, like any other; a checkout that is run
    without being installed has none, and there they are found as the modules of the package.
    """
    points = sorted(metadata.entry_points(group=GROUP), key=_rank)
    if not any(map(_in_tree, points)):
        package = importlib.import_module(IN_TREE)
        for module in pkgutil.iter_modules(package.__path__):
            source = f"{IN_TREE}.{module.name}"
            yield module.name, source, lambda source=source: importlib.import_module(source)
    for point in points:
        yield point.name, point.value, point.load


def _in_tree(point: metadata.EntryPoint) -> bool:
    return point.module.split(".")[0] == IN_TREE


def _rank(point: metadata.EntryPoint) -> tuple[bool, str, str]:
    return not _in_tree(point), point.name, point.value


def load_plugins() -> Plugins:
    """Load every installed plugin; those that fail are named in ``failures``."""
    plugins = Plugins()
    for name, source, load in installed():
        plugins.add(name, load, source)
    return plugins
