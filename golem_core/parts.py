"""Content parts of a conversation in Python: text, and media wherever a program has them.

A picture may be a file's path, its bytes, a data: URI, a PIL image or an array; a recording a path,
bytes, base64, a data: URI or samples with their rate. Whoever calls Python may read files, so paths
need no leave here; the server has rules of its own (golem_server/media.py).
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.media import MediaError, picture_of, sound_of
from golem_core.model.projector import ABILITIES

# Types of parts with a medium, which is under the same name, and what they hold.
TYPES = {"image": "image", "image_url": "image", "audio": "audio", "input_audio": "audio"}
KINDS = ", ".join(["text", *TYPES])
TAKEN = {
    "image": "a path, bytes, a data: URI, a PIL image or an array (height, width, channels)",
    "audio": 'a path, bytes, a data: URI, or an array of samples with a "rate" beside it',
}
WAYS = {"image": "url", "audio": "data"}  # where OpenAI's parts have it


@dataclass(frozen=True, eq=False)
class Medium:
    """A picture or a recording: bytes of a file, or decoded, as Engine.rows takes them."""

    kind: str
    where: str
    data: bytes | np.ndarray


def read_parts(
    messages: Sequence[Mapping[str, Any]], projector: Any
) -> tuple[list[Mapping[str, Any]], list[Medium]]:
    """The messages as chat templates take them, and their media in order.

    projector: of the model; None where it has none. Raises TypeError and ValueError (MediaError is
    one), which name the part; OSError for a file that cannot be read.
    """
    media: list[Medium] = []
    found = []
    for place, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str) or content is None:
            found.append(message)
            continue
        parts = [
            _part(f"messages[{place}], part {i}", part, projector, media)
            for i, part in enumerate(content)
        ]
        found.append({**message, "content": parts})
    return found, media


def _part(where: str, part: Mapping[str, Any], projector: Any, media: list[Medium]) -> Mapping:
    name = part.get("type")
    if name == "text":
        if not isinstance(part.get("text"), str):
            raise TypeError(f'{where}: a part of the type "text" has a "text" that is one')
        return part
    kind = TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"{where} has the type {name!r}; the types are {KINDS}")
    if projector is None or kind not in projector.kinds:
        raise MediaError(f"{where}: {no_way(kind, projector)}")
    given = part.get(name)
    try:
        if isinstance(given, Mapping):
            given = given.get(WAYS[kind])
            given = _of_base64(given) if name == "input_audio" else given
        data = _image(given) if kind == "image" else _audio(given, part.get("rate"))
    except MediaError as error:
        raise MediaError(f"{where}: {error}") from None
    if data is None:
        raise TypeError(f"{where} holds a {type(given).__name__}; it takes {TAKEN[kind]}")
    media.append(Medium(kind, where, data))
    return {"type": kind}


def no_way(kind: str, projector: Any) -> str:
    """Why a model cannot take a medium."""
    if projector is None:
        return f"the model was opened without a projector that can {ABILITIES[kind]} (mmproj=FILE)"
    return f"{projector.path} is a projector that cannot {ABILITIES[kind]}"


def _image(given: Any) -> bytes | np.ndarray | None:
    if isinstance(given, np.ndarray):
        return picture_of(given)
    pillow = sys.modules.get("PIL.Image")  # whoever has a picture of its has imported it
    if pillow is not None and isinstance(given, pillow.Image):
        return picture_of(given)
    return _bytes(given)


def _audio(given: Any, rate: Any) -> bytes | np.ndarray | None:
    if not isinstance(given, np.ndarray):
        return _bytes(given)
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer):
        raise MediaError('samples need their "rate" in the same part, a whole number a second')
    return sound_of(given, int(rate))


def _bytes(given: Any) -> bytes | None:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if isinstance(given, Path):
        return given.read_bytes()
    if not isinstance(given, str):
        return None
    start = given[:8].lower()
    if start.startswith(("http://", "https://")):
        raise MediaError("nothing is fetched over the network; read it and give the bytes")
    if start.startswith("data:"):
        head, comma, text = given.partition(",")
        if not comma or not head.endswith(";base64"):
            raise MediaError("a data: URI that is not base64")
        return _of_base64(text)
    return Path(given.removeprefix("file://")).read_bytes()


def _of_base64(given: Any) -> Any:
    """The bytes of base64; what is no text, or an address, as it is."""
    if not isinstance(given, str) or given.startswith("data:"):
        return given
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise MediaError("base64 that cannot be decoded") from None
