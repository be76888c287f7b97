"""Models made of another one: its file, under a name of their own, with words and settings.

``POST /api/create`` makes them. They hold no weights. Each is one file of JSON in a folder,
written whole or not at all; one that was edited by hand is refused, since nobody checked it.
"""

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from golem_core.pins import replace_file
from golem_server.errors import Refusal

SUFFIX = ".model.json"
MOST = 1000  # models a folder may hold
LARGEST = 1 << 20  # bytes of one
_LONGEST = 180  # characters of a name in its file's


@dataclass(frozen=True)
class Derived:
    """One of them.

    name: as it is shown, with its tag. key: its canonical name. base: the served model's name, and
    base_digest its card's. template: Jinja, "" = the file's. parameters: options by Ollama's
    names. messages: come before a conversation's own. created: seconds since 1970.
    """

    name: str
    key: str
    base: str
    base_digest: str
    system: str = ""
    template: str = ""
    license: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    created: float = 0.0

    @property
    def digest(self) -> str:
        """64 hexadecimal digits over everything that is in it but its name and age."""
        told = asdict(self)
        for own in ("name", "key", "created"):
            del told[own]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


class Store(Protocol):
    """Where derived models are kept, by canonical name. Any thread may call."""

    def all(self) -> list[Derived]:
        """Every one, by name."""

    def get(self, key: str) -> Derived | None:
        """One of them. Raises Refusal when it cannot be trusted."""

    def put(self, derived: Derived) -> None:
        """Keeps one, in the place of another of its name."""

    def remove(self, key: str) -> bool:
        """Forgets one; False when there is none."""


class FolderStore:
    """A Store in the files of a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def all(self) -> list[Derived]:
        """Every one that can be read and was not edited, by name."""
        found = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(Refusal, FileNotFoundError):
                found.append(self._read(path))
        return found

    def get(self, key: str) -> Derived | None:
        try:
            return self._read(self._path(key))
        except FileNotFoundError:
            return None

    def put(self, derived: Derived) -> None:
        """Raises Refusal when it is too large, one too many, or the folder cannot be written."""
        text = json.dumps(asdict(derived) | {"digest": f"sha256:{derived.digest}"}, indent=1)
        if len(text) > LARGEST:
            raise Refusal(f"a made model may take {LARGEST >> 20} MiB, this one is larger")
        if len(list(self.folder.glob(f"*{SUFFIX}"))) >= MOST:
            raise Refusal(f"{self.folder} holds {MOST} made models already: delete some")
        try:
            replace_file(self._path(derived.key), text.encode())
        except OSError as error:
            raise Refusal(
                f"the model cannot be kept in {self.folder}: {error.strerror}", "server_error"
            ) from None

    def remove(self, key: str) -> bool:
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, key: str) -> Path:
        quoted = quote(key, safe="")
        if len(quoted) > _LONGEST:
            quoted = f"{quoted[: _LONGEST - 65]}~{hashlib.sha256(key.encode()).hexdigest()}"
        return self.folder / (quoted + SUFFIX)

    def _read(self, path: Path) -> Derived:
        try:
            told = json.loads(path.read_text())
            digest = told.pop("digest")
            derived = Derived(**told)
            whole = digest == f"sha256:{derived.digest}" and path == self._path(derived.key)
        except (ValueError, TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            raise Refusal(f"{path.name} was edited by hand, and is refused: create it again")
        return derived
