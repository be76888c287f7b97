"""Several clients at once against an OpenAI endpoint, timed from the outside.

The clients share the machine with the server they measure, so they do little: one asyncio thread,
no JSON decoded before the last frame. Every client streams ``/v1/completions``.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass

WORDS = ["river", "stone", "harbour", "lantern", "winter", "market", "engine", "paper"]


class ClientError(RuntimeError):
    """A server did not answer whole."""


@dataclass(frozen=True)
class Answer:
    """One answer: when it was asked for, its first and last token (seconds), and its counts."""

    asked: float
    first: float
    last: float
    prompt: int
    cached: int
    drawn: int


def prompt(words: int, seed: int) -> str:
    """A text nobody has sent before, about ``words`` tokens long for a trained vocabulary."""
    draw = random.Random(seed)
    return f"{seed}: " + " ".join(draw.choice(WORDS) for _ in range(words))


async def ask(port: int, text: str, length: int) -> Answer:
    """Streams one completion of ``length`` tokens. Raises ClientError for anything but a 200."""
    body = json.dumps(
        {
            "prompt": text,
            "max_tokens": length,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = time.perf_counter()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    first = last = 0.0
    usage: dict = {}
    status = await reader.readline()
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        now = time.perf_counter()
        first, last = first or now, now
        if b'"usage"' in line:
            usage = json.loads(line[6:]).get("usage") or usage
    writer.close()
    if b" 200 " not in status or not usage:
        raise ClientError(f"answered {status.decode(errors='replace').strip() or 'nothing'!r}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Answer(asked, first, last, usage["prompt_tokens"], cached, usage["completion_tokens"])


async def _together(port: int, texts: list[str], length: int) -> list[Answer]:
    return await asyncio.gather(*(ask(port, text, length) for text in texts))


@dataclass(frozen=True)
class Round:
    """What one round of clients saw.

    total: drawn tokens a second from the first request to the last token. drawing: the sum of the
    clients' own rates, each between its first and its last token. reading: prompt tokens a second
    until the last client has its first token. first: median seconds to a first token.
    """

    total: float
    drawing: float
    reading: float
    first: float


def round_of(port: int, clients: int, words: int, length: int, seed: int) -> Round:
    """``clients`` new prompts at once, each answered with ``length`` tokens."""
    texts = [prompt(words, seed * 1000 + i) for i in range(clients)]
    answers = asyncio.run(_together(port, texts, length))
    start = min(a.asked for a in answers)
    all_reading = max(a.first for a in answers)
    rates = [(a.drawn - 1) / (a.last - a.first) for a in answers if a.last > a.first]
    waits = sorted(a.first - a.asked for a in answers)
    return Round(
        total=sum(a.drawn for a in answers) / (max(a.last for a in answers) - start),
        drawing=sum(rates),
        reading=sum(a.prompt - a.cached for a in answers) / (all_reading - start),
        first=waits[len(waits) // 2],
    )
