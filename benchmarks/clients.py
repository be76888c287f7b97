"""Several clients at once against an OpenAI endpoint, timed from the outside.

The clients share the machine with the server they measure, so they do little: one asyncio thread,
no JSON decoded before the last frame. Every client streams ``/v1/completions``. Prompts are ids of
tokens, so that they are as long as they say whatever the vocabulary. Answers are sampled: random
weights repeat themselves when they are not, and who drafts would be praised for nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from golem_core.formats.gguf import GGUF

SEED = 1
NORMAL = 1  # the type of a token that is text


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


def words_of(model: Path) -> list[int]:
    """Ids of a model's ordinary tokens."""
    with GGUF.open(model) as file:
        types = file.metadata.get("tokenizer.ggml.token_type")
        count = len(file.metadata["tokenizer.ggml.tokens"])
    return [id for id in range(count) if types is None or types[id] == NORMAL]


def prompt(words: list[int], length: int, seed: int) -> list[int]:
    """Tokens in an order nobody has sent before."""
    return random.Random(seed).choices(words, k=length)


class Together:
    """Tells when every one of several clients has its first token, and when one has its last."""

    def __init__(self, clients: int):
        self.waiting = clients
        self.all_drawing, self.one_done = asyncio.Event(), asyncio.Event()

    def first(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.all_drawing.set()


async def ask(port: int, text: list[int], length: int, together: Together | None = None) -> Answer:
    """Streams one completion of ``length`` tokens. Raises ClientError for anything but a 200."""
    body = json.dumps(
        {
            "prompt": text,
            "max_tokens": length,
            "temperature": 1,
            "top_k": 40,
            "seed": SEED,
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
        if together is not None and not first:
            together.first()
        first, last = first or now, now
        if b'"usage"' in line:
            usage = json.loads(line[6:]).get("usage") or usage
    writer.close()
    if together is not None:
        together.all_drawing.set()
        together.one_done.set()
    if b" 200 " not in status or not usage:
        raise ClientError(f"answered {status.decode(errors='replace').strip() or 'nothing'!r}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Answer(asked, first, last, usage["prompt_tokens"], cached, usage["completion_tokens"])


async def _busy(port: int) -> tuple[float, float]:
    """Passes so far, and conversations that were in them; as both servers' metrics tell."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    found = dict(re.findall(r"^llamacpp:(\S+) (\S+)$", text, re.MULTILINE))
    passes = float(found.get("n_decode_total", 0))
    return passes, passes * float(found.get("n_busy_slots_per_decode", 0))


async def _shared(port: int, together: Together) -> float | None:
    """Conversations a pass, the mean while all of them draw."""
    await together.all_drawing.wait()
    passes, busy = await _busy(port)
    await together.one_done.wait()
    passes_after, busy_after = await _busy(port)
    return (busy_after - busy) / (passes_after - passes) if passes_after > passes else None


async def _together(port: int, texts: list[list[int]], length: int):
    together = Together(len(texts))
    asked = (ask(port, text, length, together) for text in texts)
    *answers, shared = await asyncio.gather(*asked, _shared(port, together))
    return answers, shared


@dataclass(frozen=True)
class Round:
    """What one round of clients saw.

    total: drawn tokens a second from the first request to the last token. drawing: the sum of the
    clients' own rates, each between its first and its last token. reading: prompt tokens a second
    until the last client has its first token. first: median seconds to a first token. shared:
    conversations a pass while all draw, None where the server does not tell.
    """

    total: float
    drawing: float
    reading: float
    first: float
    shared: float | None


def round_of(
    port: int, words: list[int], *, clients: int, read: int, drawn: int, seed: int
) -> Round:
    """``clients`` new prompts of ``read`` tokens at once, each answered with ``drawn``."""
    texts = [prompt(words, read, seed * 1000 + i) for i in range(clients)]
    answers, shared = asyncio.run(_together(port, texts, drawn))
    start = min(a.asked for a in answers)
    all_reading = max(a.first for a in answers)
    rates = [(a.drawn - 1) / (a.last - a.first) for a in answers if a.last > a.first]
    waits = sorted(a.first - a.asked for a in answers)
    return Round(
        total=sum(a.drawn for a in answers) / (max(a.last for a in answers) - start),
        drawing=sum(rates),
        reading=sum(a.prompt - a.cached for a in answers) / (all_reading - start),
        first=waits[len(waits) // 2],
        shared=shared,
    )


def first_tokens(port: int, words: list[int], length: int, seed: int) -> tuple[float, float]:
    """Milliseconds to the first token of a new prompt, and of the turn after its answer.

    The second turn repeats the first and adds 64 tokens of an answer and a question, so that a
    server which kept what it read has a tenth or less to read.
    """
    text = prompt(words, length, seed)
    once = asyncio.run(ask(port, text, 8))
    again = asyncio.run(ask(port, text + prompt(words, 64, seed + 1), 8))
    return 1000 * (once.first - once.asked), 1000 * (again.first - again.asked)
