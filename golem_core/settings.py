"""One table a program: typed fields that drive flags, environment, TOML, help and validation.

A table is a dataclass whose fields are made with :func:`setting`. The server has one, each plugin
may have one, and nothing about a setting is written anywhere else::

    @dataclass(frozen=True)
    class Settings:
        parallel: int = setting(1, "conversations at once", low=1, high=1024)
        cache_ttl: Duration = setting(0.0, "forget a conversation after this long idle")

gives ``-parallel 2`` (or ``--parallel=2``), ``GOLEM_PARALLEL=2``, ``parallel = 2`` in the TOML
file, a line of ``-help``, and a refusal of 0. A flag wins over the environment, that over the
file, that over the default. A name nobody knows is refused with the nearest one that exists.
"""

import dataclasses
import difflib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golem_core.setting_kinds import KINDS, MOST, Duration, Kind, Size

__all__ = [
    "Duration",
    "Given",
    "Setting",
    "Settings",
    "SettingsError",
    "Size",
    "Table",
    "help_text",
    "parse_flags",
    "read_toml",
    "resolve",
    "setting",
]

PREFIX = "GOLEM_"
# What a Kubernetes service named "golem" puts into the environment of every pod beside it.
SERVICE_LINK = re.compile(r"GOLEM\w*_(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")
NO_DEFAULT = "default"
LOOK = "-help lists what exists"


class SettingsError(ValueError):
    """A setting that is unknown, of the wrong type or out of range; the text says what to do."""


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    placeholder: str = "",
    own_name: bool = False,
    environment: bool = True,
    in_file: bool = True,
    secret: bool = False,
    guards: bool = False,
) -> Any:
    """A field of a settings table.

    Args:
        default: its value when nobody says otherwise.
        help: one sentence without a full stop.
        low, high: the range, inclusive, of a number.
        choices: the only texts allowed.
        placeholder: what the help calls the value.
        own_name: the flag is the plugin's name alone (``-krea2``), not ``-krea2-<field>``.
        environment: whether a ``GOLEM_*`` variable sets it.
        in_file: whether the TOML file may set it.
        secret: its value is never shown.
        guards: without it something stands open, so an empty variable is no way to leave it out.
    """
    detail = _Detail(
        help,
        low,
        high,
        tuple(choices),
        placeholder,
        own_name,
        environment,
        in_file,
        secret,
        guards,
    )
    return dataclasses.field(default=default, metadata={"golem": detail})


@dataclass(frozen=True)
class _Detail:
    help: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    placeholder: str
    own_name: bool
    environment: bool
    in_file: bool
    secret: bool
    guards: bool

    @property
    def chosen_from(self) -> str:
        """The choices that can be named; an empty one stands for saying nothing."""
        return ", ".join(filter(None, self.choices))


@dataclass(frozen=True)
class Setting:
    """One field of a table, under all its names."""

    table: str  # "server", or the plugin's name
    field: str
    flag: str  # "cache-ttl", without the dash
    key: str  # its name inside the TOML table
    variable: str | None  # "GOLEM_CACHE_TTL"
    kind: Kind
    optional: bool  # None is a value: nothing was said
    default: Any
    detail: _Detail

    def read(self, text: str, origin: str) -> Any:
        """The value of a text from a flag or the environment."""
        try:
            return self.check(self.kind.parse(text), origin)
        except SettingsError:
            raise
        except ValueError:
            shown = "this value" if self.detail.secret else f'"{text}"'
            raise SettingsError(f"{origin}: {shown} is not {self.kind.name}") from None

    def given(self, texts: Sequence[str]) -> Any:
        """The value of what a flag was given, in order; the last where it takes one."""
        if self.kind.each:
            return tuple(value for text in texts for value in self.read(text, f"-{self.flag}"))
        text = ",".join(texts) if self.kind is KINDS[tuple[str, ...]] else texts[-1]
        return self.read(text, f"-{self.flag}")

    def take(self, value: Any, origin: str) -> Any:
        """The value of a TOML entry."""
        wrong = isinstance(value, bool) is not (self.kind.toml == (bool,))
        if wrong or not isinstance(value, self.kind.toml):
            raise SettingsError(f"{origin} is {value!r}, and it takes {self.kind.name}")
        if isinstance(value, str):
            return self.read(value, origin)
        if isinstance(value, list):
            if not all(isinstance(item, str) for item in value):
                raise SettingsError(f"{origin}: every element must be a text")
            value = tuple(value)
        return self.check(value, origin)

    def check(self, value: Any, origin: str) -> Any:
        """The value itself, when it is in range and among the choices."""
        d = self.detail
        if d.choices and value not in d.choices:
            raise SettingsError(f'{origin}: "{value}" is none of {d.chosen_from}')
        high = d.high
        if high is None and isinstance(value, int | float):
            high = MOST.get(self.kind.placeholder)
        below = d.low is not None and not value >= d.low
        if below or (high is not None and not value <= high):
            show = self.kind.show
            span = f"at least {show(d.low)}" if d.low is not None else f"at most {show(high)}"
            if d.low is not None and high is not None and (d.high is not None or not below):
                span = f"from {show(d.low)} to {show(high)}"
            raise SettingsError(f"{origin}: {show(value)} is out of range, it may be {span}")
        return value

    def line(self, value: Any, origin: str) -> str:
        """A line of TOML that sets this value, commented out where TOML cannot."""
        if not self.detail.in_file or value is None or (self.detail.secret and value):
            shown = (
                "a secret"
                if self.detail.secret and value
                else ""
                if value is None
                else self.kind.show(value)
            )
            return f"# {self.key} = {shown}  # {origin}"
        if self.kind.toml[0] is not str:
            return f"{self.key} = {json.dumps(value)}  # {origin}"
        return f"{self.key} = {json.dumps(self.kind.show(value))}  # {origin}"


@dataclass(frozen=True)
class Table:
    """A settings dataclass under the name its TOML section has."""

    name: str
    cls: type
    plugin: bool = False  # flags carry the plugin's name, and the TOML section is required

    @property
    def settings(self) -> list[Setting]:
        """The fields, in the order they are declared."""
        hints = typing.get_type_hints(self.cls)
        return [self._setting(f, hints[f.name]) for f in dataclasses.fields(self.cls)]

    def _setting(self, field: dataclasses.Field, hint: Any) -> Setting:
        detail = field.metadata.get("golem")
        members = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        optional = type(None) in typing.get_args(hint)
        kind = KINDS.get(members[0] if optional and len(members) == 1 else hint)
        if detail is None or kind is None:
            raise TypeError(
                f"{self.cls.__qualname__}.{field.name}: a settings table takes fields made with "
                f"setting(), of type {', '.join(getattr(k, '__name__', str(k)) for k in KINDS)}"
            )
        key = field.name.replace("_", "-")
        flag = key
        if self.plugin:
            flag = self.name if detail.own_name else f"{self.name}-{key}"
        variable = PREFIX + flag.upper().replace("-", "_") if detail.environment else None
        return Setting(
            self.name, field.name, flag, key, variable, kind, optional, field.default, detail
        )


# ---- the sources ----


@dataclass(frozen=True)
class Given:
    """The command line, taken apart."""

    values: dict[str, list[str]]  # flag -> the texts given, in order
    actions: set[str]  # flags that are verbs: help, version, …


def parse_flags(
    settings: Iterable[Setting],
    arguments: Sequence[str],
    actions: Iterable[str] = (),
    hints: Mapping[str, str] | None = None,
) -> Given:
    """Take a command line apart, Go style: ``-flag value``, ``--flag=value``, ``-switch``.

    hints: what to say of flags that do not exist, where that is not the nearest one's name.

    Raises:
        SettingsError: for a flag that does not exist, one without its value, or a stray word.
    """
    known = {s.flag: s for s in settings}
    verbs = set(actions)
    values: dict[str, list[str]] = {}
    asked: set[str] = set()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            raise SettingsError(f'"{word}" is not a flag; flags begin with a dash, -model FILE')
        name, equals, text = word.lstrip("-").partition("=")
        if name == "h" and "h" not in known:
            name = "help"
        if name in verbs:
            if equals:
                raise SettingsError(f"-{name} takes no value: write -{name} alone")
            asked.add(name)
        elif name in known:
            if not equals:
                if known[name].kind is KINDS[bool]:
                    text = "true"
                elif rest:
                    text = rest.pop(0)
                else:
                    raise SettingsError(f"-{name} needs a value: {known[name].kind.name}")
            values.setdefault(name, []).append(text)
        else:
            hint = (hints or {}).get(name)
            more = f"; {hint}" if hint else _nearest(name, [*known, *verbs], "-")
            raise SettingsError(f"there is no flag -{name}{more}")
    return Given(values, asked)


def _nearest(name: str, names: Iterable[str], dash: str = "") -> str:
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    # A longer or a shorter word for the same: -temperature and -temp.
    close = close or [one for one in names if len(one) > 2 and (one in name or name in one)][:1]
    return f"; did you mean {dash}{close[0]}?" if close else f"; {LOOK}"


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict.

    Raises:
        SettingsError: when it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path} is nested too deeply to be settings") from None


@dataclass(frozen=True)
class Settings:
    """The effective settings: a dataclass a table, and where each value came from."""

    tables: tuple[Table, ...]
    values: dict[str, Any]  # table name -> its dataclass
    origins: dict[tuple[str, str], str]  # (table, field) -> "-context", "GOLEM_CONTEXT", …

    def __getitem__(self, table: str) -> Any:
        return self.values[table]

    def report(self) -> str:
        """Every setting with its value and where it came from, as TOML that would set it again."""
        lines = []
        for table in self.tables:
            lines.append(f"[{table.name}]")
            for s in table.settings:
                value = getattr(self.values[table.name], s.field)
                lines.append(s.line(value, self.origins[table.name, s.field]))
        return "\n".join(lines)


def resolve(
    tables: Sequence[Table],
    *,
    given: Given,
    environ: Mapping[str, str],
    toml: Mapping[str, Any] | None = None,
    toml_name: str = "",
    other_variables: Iterable[str] = (),
) -> Settings:
    """Put the sources together: flag over environment over TOML file over default.

    Args:
        tables: the first is the program's own; its keys may stand at the top level of the TOML.
        given: what :func:`parse_flags` found.
        environ: the environment; every ``GOLEM_*`` in it must be known.
        toml: the file's content, and ``toml_name`` what messages call it.
        other_variables: ``GOLEM_*`` variables that exist and are not settings.

    Raises:
        SettingsError: for the first setting that is unknown or wrong.
    """
    everything = [s for table in tables for s in table.settings]
    _refuse_unknown_variables(everything, environ, other_variables)
    from_file = _from_toml(tables, toml or {}, toml_name)
    chosen: dict[tuple[str, str], tuple[Any, str]] = {}
    for s in everything:
        place = (s.table, s.field)
        if s.flag in given.values:
            chosen[place] = (s.given(given.values[s.flag]), f"-{s.flag}")
        elif s.variable is not None and environ.get(s.variable):
            chosen[place] = (s.read(environ[s.variable], s.variable), s.variable)
        elif s.detail.guards and s.variable in environ:
            raise SettingsError(
                f"{s.variable} is set and empty: give it a value, or unset it to leave -{s.flag} "
                "out"
            )
        elif place in from_file:
            chosen[place] = from_file[place]
        else:
            chosen[place] = (s.default, NO_DEFAULT)
    values = {
        table.name: table.cls(**{s.field: chosen[table.name, s.field][0] for s in table.settings})
        for table in tables
    }
    return Settings(tuple(tables), values, {place: origin for place, (_, origin) in chosen.items()})


def _refuse_unknown_variables(
    settings: list[Setting], environ: Mapping[str, str], others: Iterable[str]
) -> None:
    known = {s.variable for s in settings if s.variable} | set(others)
    for name in environ:
        if name.startswith(PREFIX) and name not in known and not SERVICE_LINK.fullmatch(name):
            raise SettingsError(f"there is no setting {name}{_nearest(name, sorted(known))}")


def _from_toml(
    tables: Sequence[Table], toml: Mapping[str, Any], file: str
) -> dict[tuple[str, str], tuple[Any, str]]:
    own, found = tables[0].name, {}
    by_name = {
        table.name: {s.key: s for s in table.settings if s.detail.in_file} for table in tables
    }
    entries = [(own, key, value) for key, value in toml.items() if not isinstance(value, dict)]
    for name, section in toml.items():
        if isinstance(section, dict):
            if name not in by_name:
                near = _nearest(name, by_name)
                raise SettingsError(f"{file}: there is no section [{name}]{near}")
            entries += [(name, key, value) for key, value in section.items()]
    for name, key, value in entries:
        s = by_name[name].get(key)
        if s is None:
            near = _nearest(key, by_name[name])
            raise SettingsError(f'{file}: [{name}] has no setting "{key}"{near}')
        place = (name, s.field)
        origin = f"{file}: [{name}] {key}"
        if place in found:
            raise SettingsError(f"{origin} is also set at the top of the file; keep one of them")
        found[place] = (s.take(value, origin), origin)
    return found


# ---- help ----


def help_text(
    program: str, tables: Sequence[Table], actions: Mapping[str, str], other: Mapping[str, str]
) -> str:
    """The text of ``-help``: every flag with its variable, its default and what it means.

    Args:
        actions: ``{flag: help}`` of the flags that are verbs.
        other: ``{variable: help}`` of environment variables that are not settings.
    """
    lines = [f"usage: {program} [options]", ""]
    for table in tables:
        if table.plugin:
            lines += [f"plugin {table.name}:", ""]
        for s in table.settings:
            value = s.detail.placeholder or s.kind.placeholder
            lines.append(f"  -{s.flag} {value}".rstrip())
            notes = [s.detail.help]
            if s.detail.choices:
                notes.append(f"one of {s.detail.chosen_from}")
            if s.default not in (None, "", False, ()):
                notes.append(f"default {s.kind.show(s.default)}")
            if s.variable:
                notes.append(f"${s.variable}")
            lines.append(f"        {'; '.join(notes)}")
        lines.append("")
    lines += [f"  -{flag}\n        {text}" for flag, text in actions.items()]
    if other:
        lines += ["", "environment variables that are no settings:", ""]
        lines += [f"  {name}\n        {text}" for name, text in other.items()]
    return "\n".join(lines)
