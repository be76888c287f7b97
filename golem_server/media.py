"""Pictures and sound in a request: from content parts to bytes, and on to a model's rows.

Bytes come in the request, as base64, or from a file below ``-media-root``; nothing is fetched from
anywhere else. What is wrong is said before the request waits for a slot.
"""

import base64
import binascii
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import falcon

from golem_core.media import MediaError
from golem_core.model.projector import Rows
from golem_core.schedule import ContextExceeded, Engine
from golem_core.schedule.places import refuse_overlong_media
from golem_server.disconnect import client_gone
from golem_server.errors import ClientGone, Refusal

KINDS = {
    "image_url": "image",
    "input_audio": "audio",
    "input_video": "video",
    "video_url": "video",
}
NAMES = {"image": "picture", "audio": "recording", "video": "video"}
FETCHED = {
    "image": "pictures over the network; send the bytes as a data: URI",
    "audio": "audio over the network; send the bytes as base64",
    "video": "videos over the network",
}
LEAST_BASE64 = 16  # characters below which a text is a file's name rather than bytes
LONGEST_NAME = 1024  # characters above which it is bytes


class Where(str):
    """Where in a request of another dialect a content part was, for messages about it."""


@dataclass(frozen=True)
class Medium:
    """A picture or a recording, and where in the request it was.

    data: its bytes, or the name of a file that holds them: a request may name many, often, so that
    each is read when it is its turn.
    """

    kind: str
    where: str
    data: bytes | str


class Sight:
    """What a request's media are read with, and the media it has, in order.

    check: says what else is wrong with the request before any medium is looked at.
    """

    def __init__(
        self,
        engine: Engine,
        root: Path | None,
        gone: Callable[[], bool] = lambda: False,
        check: Callable[[], object] = lambda: None,
    ):
        self._engine = engine
        self._root = root
        self._gone = gone
        self._check = check
        self.media: list[Medium] = []

    @classmethod
    def of(
        cls,
        service: Any,
        engine: Engine,
        req: falcon.Request,
        check: Callable[[], object] = lambda: None,
    ) -> "Sight":
        """Of a request to an engine; a client that leaves is not looked for any longer."""
        return cls(engine, service.server.media_root, client_gone(req.env), check)

    def part(self, place: int, part: Mapping[str, Any]) -> dict[str, str]:
        """A content part with a medium, as templates know it; its bytes are kept in ``media``.

        Raises:
            Refusal: for one that cannot be taken.
        """
        kind = KINDS[part["type"]]
        told = part.get("where")
        where = told if isinstance(told, Where) else f"message {place}"
        address = _address(part)
        if isinstance(address, str) and address.lower().startswith(("http://", "https://")):
            raise Refusal(f"{where}: this server does not fetch {FETCHED[kind]}")
        projector = self._engine.model.projector
        if projector is None or kind not in projector.kinds:
            raise unsupported(kind)
        if not isinstance(address, str) or not address:
            names = "'url'" if kind == "image" else "'data'"
            raise Refusal(
                f"{where}: a part of type {part['type']} needs a {names} that is a string"
            )
        medium = Medium(kind, where, self._data(where, address))
        if isinstance(medium.data, str):
            os.close(self._open(medium))  # what is wrong with it is said before anything is read
        self.media.append(medium)
        return {"type": kind}

    def _data(self, where: str, address: str) -> bytes | str:
        if address.startswith("data:"):
            return _of_data(where, address)
        if not address.startswith("file://") and len(address) >= LEAST_BASE64:
            data = _decoded(address)
            if data is not None and not self._names_a_file(address):
                return data
        return address.removeprefix("file://")

    def _names_a_file(self, address: str) -> bool:
        """Whether what reads as base64 is the name of a file below the media root, as many are."""
        if self._root is None or len(address) > LONGEST_NAME:
            return False
        return (self._root / address.lstrip("/")).is_file()

    def _open(self, medium: Medium) -> int:
        """The descriptor of a file below the media root.

        Raises:
            Refusal: where there is none, for what is no file, and for one that is too large.
        """
        where, kind, most = medium.where, medium.kind, self._engine.model.projector.limits.bytes
        if self._root is None:
            raise Refusal(
                f"{where}: this server reads no files; start it with -media-root, or send a data: "
                "URI"
            )
        missing = Refusal(f"{where}: there is no such {NAMES[kind]} below -media-root")
        try:
            root = self._root.resolve(strict=True)
            path = (root / medium.data.lstrip("/")).resolve(strict=True)
            if not path.is_relative_to(root):
                raise missing
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, ValueError):
            raise missing from None
        found = os.fstat(file)
        refusal = missing if not stat.S_ISREG(found.st_mode) else None
        if refusal is None and found.st_size > most:
            refusal = Refusal(
                f"{where}: a {NAMES[kind]} of {found.st_size / 1e6:.1f} MB, and "
                f"{most / 1e6:.1f} MB is the most"
            )
        if refusal is not None:
            os.close(file)
            raise refusal
        return file

    def rows(self) -> list[Rows]:
        """The rows of every medium.

        Raises:
            Whatever the check of the request raises, before any work.
            Refusal: for one that cannot be decoded or is too large.
            ContextExceeded: for more than a slot holds, before the rest is looked at.
            ClientGone: when whoever asked has left.
            QueueFull: where the request could not wait for a slot.
            RequestTimeout: when it takes longer than a request may.
        """
        if len(self.media) >= self._engine.context:  # each has a row at least
            raise ContextExceeded(len(self.media), self._engine.context, counted=False)
        self._check()
        found: list[Rows] = []
        look = self._engine.timer()
        for medium in self.media:
            found.append(self._rows(medium, look))
            refuse_overlong_media(found, self._engine.context)
        return found

    def _rows(self, medium: Medium, look: Callable[[], None]) -> Rows:
        def waiting() -> None:
            look()
            if self._gone():
                raise ClientGone

        data = medium.data
        try:
            if isinstance(data, str):
                with open(self._open(medium), "rb") as file:
                    data = file.read(self._engine.model.projector.limits.bytes + 1)
            return self._engine.rows(medium.kind, data, waiting)
        except OSError as error:
            raise Refusal(f"{medium.where}: {error.strerror or error}") from None
        except MediaError as error:
            raise Refusal(f"{medium.where}: {error}") from None


def has_media(messages: Any) -> bool:
    """Whether any message has a content part with a medium."""
    if not isinstance(messages, list):
        return False
    contents = (message.get("content") for message in messages if isinstance(message, Mapping))
    return any(
        isinstance(part, Mapping) and part.get("type") in KINDS
        for content in contents
        if isinstance(content, list)
        for part in content
    )


def unsupported(kind: str) -> Refusal:
    """The refusal of a medium that the model cannot take, in llama-server's words."""
    return Refusal(
        f"{kind} input is not supported - hint: if this is unexpected, you may need to provide the "
        "mmproj"
    )


def _address(part: Mapping[str, Any]) -> Any:
    """Where a part's bytes are: a data: URI, base64, or a file's name."""
    given = part.get(part["type"])
    if isinstance(given, Mapping):
        given = given.get("url") if part["type"] == "image_url" else _either(given, "data", "url")
    return given


def _either(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


def _of_data(where: str, uri: str) -> bytes:
    head, comma, text = uri.partition(",")
    if not comma or "," in text:
        raise Refusal(f"{where}: Invalid uri-encoded base64 value")
    if not head.startswith(("data:image/", "data:audio/", "data:video/", "data:application/")):
        raise Refusal(f"{where}: Invalid uri format: {head[:60]}")
    if not head.endswith("base64"):
        raise Refusal(f"{where}: uri must be base64 encoded")
    data = _decoded(text)
    if data is None:
        raise Refusal(f"{where}: Invalid base64 value")
    return data


def _decoded(text: str) -> bytes | None:
    """The bytes of base64 with or without its padding, in either alphabet; None for other text."""
    try:
        plain = "".join(text.split()).rstrip("=").translate(_ALPHABET).encode("ascii")
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


_ALPHABET = str.maketrans("-_", "+/")
