"""What a model is called and what it can do: for listings, whether or not it is in memory."""

import gc
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.model.about import about
from golem_core.plugins import Plugins
from golem_server.residency import Entry

HEAD_BYTES = 1 << 20  # of a file, that a digest without a pin is made of
LONGEST_ARRAY = 8  # of a header's arrays, that a card holds
_KEPT = 64  # cards of files


@dataclass(frozen=True)
class Card:
    """A model that can be asked for.

    digest: 64 hexadecimal digits. Of a file that nobody pinned they are not its checksum, which
    would take reading it all, but that of its first MiB and its size. modified: of the file, ns
    since 1970. context: positions it was trained on. can: "completion", "tools", "thinking",
    "insert", and with its projector "vision" and "audio". reason: why golem cannot play it, ""
    when it can.
    """

    name: str
    path: Path
    digest: str
    pinned: bool
    size: int
    modified: int
    architecture: str
    quantization: str
    parameters: str
    context: int
    template: str
    can: tuple[str, ...]
    reason: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def details(self) -> dict[str, Any]:
        """``details`` of Ollama's listings."""
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.architecture,
            "families": [self.architecture] if self.architecture else [],
            "parameter_size": self.parameters,
            "quantization_level": self.quantization,
        }


class Cards:
    """The cards of files, read from their headers; the latest are kept. Any thread may ask."""

    def __init__(self, plugins: Plugins):
        self._plugins = plugins
        self._kept: OrderedDict[tuple[Any, ...], Card] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, entry: Entry, projector: Path | None = None) -> Card:
        """The card of a model; one whose file is not there says so.

        projector: the file that sees or hears for it.
        """
        pin = entry.manifest.pins.get(entry.name) if entry.manifest else None
        try:
            status = entry.path.stat()
            key = (entry.name, entry.path, status.st_ino, status.st_size, status.st_mtime_ns, pin)
        except OSError:
            key = (entry.name, entry.path, pin)
        key = (*key, projector)
        with self._lock:
            if (card := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return card
        card = self._read(entry, pin, projector)
        with self._lock:
            self._kept[key] = card
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return card

    def _read(self, entry: Entry, pin: Any, projector: Path | None) -> Card:
        told = about(entry.path, self._plugins)
        info: dict[str, Any] = {}
        fills = False
        try:
            with GGUF.open(entry.path) as file:
                info = {key: _short(value) for key, value in file.metadata.items()}
                fills = _fills_gaps(file.metadata)
        except (ValueError, OSError):
            pass  # told.reason says why
        gc.collect()  # the program that was tried hangs in a cycle, and holds the map of the file
        return Card(
            name=entry.name,
            path=entry.path,
            digest=pin.sha256 if pin else _head_digest(entry.path),
            pinned=pin is not None,
            size=told.size or (pin.size if pin else 0),
            modified=_modified(entry.path),
            architecture=told.architecture,
            quantization=told.quantisation,
            parameters=told.parameters,
            context=told.context,
            template=told.template,
            can=(
                *_abilities(self._plugins, told.architecture, told.template, fills),
                *_senses(projector),
            ),
            reason=told.reason,
            info=info,
        )


def _abilities(plugins: Plugins, architecture: str, template: str, fills: bool) -> tuple[str, ...]:
    try:
        model: Any = plugins.architecture(architecture)
    except ValueError:
        return ("completion",)
    found = ["completion"]
    if model.call is not None and "tools" in template:
        found.append("tools")
    if thinks(model.reasoning, template):
        found.append("thinking")
    if fills:
        found.append("insert")
    return tuple(found)


def _senses(projector: Path | None) -> list[str]:
    """What the header of a projector says that it takes."""
    if projector is None:
        return []
    try:
        with GGUF.open(projector) as file:
            metadata = file.metadata
            return [s for s in ("vision", "audio") if metadata.get(f"clip.has_{s}_encoder") is True]
    except (ValueError, OSError):
        return []


def thinks(marks: tuple[str, str] | None, template: str) -> bool:
    """Whether a model of these marks, or None, writes thoughts by this template."""
    return marks is not None and any(
        word in template for word in ("enable_thinking", "reasoning_effort", *marks)
    )


def _fills_gaps(metadata: Mapping[str, Any]) -> bool:
    named = ("prefix", "suffix", "middle"), ("fim_pre", "fim_suf", "fim_mid")
    return any(
        all(f"tokenizer.ggml.{part}_token_id" in metadata for part in parts) for parts in named
    )


def fim_tokens(tokenizer: Any) -> tuple[int, int, int] | None:
    """The tokens before what comes before a gap, after it, and before what fills it."""
    found = tuple(getattr(tokenizer, f"fim_{part}", None) for part in ("pre", "suf", "mid"))
    return None if None in found else found


def _short(value: Any) -> Any:
    """A header's value as JSON has it, None for a long array."""
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if len(value) > LONGEST_ARRAY:
        return None
    return [_short(item) for item in value]


def _head_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        size = path.stat().st_size
    except OSError:
        head, size = str(path).encode(), 0
    return hashlib.sha256(head + size.to_bytes(8, "little")).hexdigest()


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
