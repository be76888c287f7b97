"""A capability: the words of a file, found by how they begin."""

import bisect
import json
from dataclasses import dataclass
from pathlib import Path

import falcon

from golem_core.settings import setting

LIMIT = 10


@dataclass(frozen=True)
class WordsSettings:
    """``-words FILE``, ``GOLEM_WORDS`` or ``[words] file = "…"``."""

    file: Path | None = setting(None, "serve the words of this file, one a line", own_name=True)


class Words:
    """The sorted words of a file.

    Raises:
        OSError: when it cannot be read. ValueError: when it holds no word.
    """

    def __init__(self, path: Path):
        self.path = path
        self.words = sorted({line.strip() for line in path.read_text("utf-8").splitlines()} - {""})
        if not self.words:
            raise ValueError(f"{path} holds no word: write one a line")

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        """At most ``limit`` words, in order."""
        start = bisect.bisect_left(self.words, prefix)
        found = self.words[start : start + limit]
        return [word for word in found if word.startswith(prefix)]

    def close(self) -> None:
        """Every capability is closed when the server ends; this one holds nothing open."""


class Complete:
    """``POST /v1/words {"prefix": "go", "limit": 3}``."""

    def __init__(self, words: Words):
        self.words = words

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        try:
            asked = json.loads(req.bounded_stream.read())
            prefix, limit = asked["prefix"], asked.get("limit", LIMIT)
            found = self.words.beginning_with(prefix, limit)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise falcon.HTTPBadRequest(
                description='send {"prefix": "go", "limit": 3}; limit may be left out'
            ) from None
        resp.media = {"words": found}
