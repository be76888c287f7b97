"""Several clients at once against an OpenAI endpoint, timed from the outside.

The clients share the machine with the server they measure, so they do little: one asyncio thread,
no JSON decoded before the last frame. Every client streams ``/v1/completions``. Prompts are ids of
tokens, so that they are as long as they say whatever the vocabulary. Answers are sampled: random
weights repeat themselves when they are not, and who drafts would be praised for nothing. Some
guesses come true of sampled answers too, so that servers are to be started with drafts off.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from golem_core.formats.gguf import GGUF

LIMIT_SECONDS = 3600  # for one answer
SEED = 1
NORMAL = 1  # the type of a token that is text


class ClientError(RuntimeError):
    """A server did not answer whole."""


@dataclass(frozen=True)
class Answer:
    """One answer: when it was asked for, its first and last token (seconds), and its counts.

    read: tokens of the prompt that the server had to read, because no slot held them.
    """

    asked: float
    first: float
    last: float
    read: int
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
    """Streams one completion of ``length`` tokens.

    Raises ClientError for anything but a 200, and after LIMIT_SECONDS.
    """
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await _ask(port, text, length, together)
    except TimeoutError:
        raise ClientError(f"no whole answer within {LIMIT_SECONDS} s") from None
    finally:
        if together is not None:
            together.all_drawing.set()
            together.one_done.set()


async def _ask(port: int, text: list[int], length: int, together: Together | None) -> Answer:
    body = json.dumps(
        {
            "prompt": text,
            "max_tokens": length,
            "temperature": 1,
            "top_k": 40,
            "seed": SEED,
            "stream": True,
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
    refusal = end = b""
    status = await reader.readline()
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            refusal = line[:300]
            continue
        now = time.perf_counter()
        if together is not None and not first:
            together.first()
        first, last = first or now, now
        if b'"timings"' in line:
            end = line
    writer.close()
    if b" 200 " not in status or not end:
        what = status.decode(errors="replace").strip() or "nothing"
        raise ClientError(f"answered {what!r} to {len(text)} tokens and {length} more: {refusal!r}")
    timings = json.loads(end[6:])["timings"]
    if timings["predicted_n"] < length:
        raise ClientError(f"drew {timings['predicted_n']} of {length} tokens")
    return Answer(asked, first, last, timings["prompt_n"], timings["predicted_n"])


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

    total: drawn tokens a second from the first request to the last token. reading: prompt tokens
    a second until the last client has its first token. Of the same prompts asked again, which
    the server then holds, so that all begin to draw together: drawing: the sum of the clients' own
    rates, each between its first and its last token; shared: conversations a pass while all draw,
    None where the server does not tell.
    """

    total: float
    reading: float
    drawing: float
    shared: float | None


def round_of(port: int, words: list[int], *, read: int, drawn: int, seeds: Iterable[int]) -> Round:
    """A new prompt of ``read`` tokens a seed, all at once, each answered with ``drawn``; twice."""
    texts = [prompt(words, read, seed) for seed in seeds]
    new, _ = asyncio.run(_together(port, texts, drawn))
    held, shared = asyncio.run(_together(port, texts, drawn))
    start = min(a.asked for a in new)
    return Round(
        total=sum(a.drawn for a in new) / (max(a.last for a in new) - start),
        reading=sum(a.read for a in new) / (max(a.first for a in new) - start),
        drawing=sum((a.drawn - 1) / (a.last - a.first) for a in held),
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


def at_depth(
    port: int, words: list[int], depth: int, *, read: int, drawn: int, repeats: int
) -> tuple[list[float], list[float]]:
    """Tokens a second read and drawn behind ``depth`` positions, which are read once before.

    Each of the repeats goes on from the last with ``read`` tokens more: who attends through a
    window might have to read all again to go back further.
    """
    text = prompt(words, depth, 0)
    asyncio.run(ask(port, text, 1))
    reading, drawing = [], []
    for seed in range(1, repeats + 1):
        text = text + prompt(words, read, seed)
        answer = asyncio.run(ask(port, text, drawn))
        reading.append(answer.read / (answer.first - answer.asked))
        drawing.append((answer.drawn - 1) / (answer.last - answer.first))
    return reading, drawing
