"""The lines of benchmarks/compare.py: what each is, and how a program's samples of it are made.

Lines that one start of a program can give together are a part, and are measured together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path

from benchmarks.clients import at_depth, first_tokens, round_of, words_of
from benchmarks.programs import Golem, Llama, serving
from golem_core.formats.gguf import GGUF

CLIENTS = (1, 2, 4, 8)
WIDTHS = (16, 32, 64, 128, 256, 512)
DEPTHS = (0, 448)  # of conversations that draw together without HTTP
LONG_PROMPT = 4096
DEEP = 30720  # so that models trained on 32,768 positions have room for three turns more
DEEP_TURNS = 3
DEEP_CONTEXT = DEEP + 512 * (DEEP_TURNS + 1)
PROMPT, DRAWN = 256, 64  # of a client
LONG = 2000  # tokens of the prompt whose first token is waited for
SLOT = 1024  # positions of a client's slot
SMALL = 300 << 20  # bytes of a file up to which a turn repeats what is short


@dataclass(frozen=True)
class Line:
    """better: 1 where more is, -1 where less is, 0 where there is no ratio."""

    name: str
    unit: str
    better: int
    what: str


@dataclass(frozen=True)
class Turn:
    """One turn of a program. wanted: names of lines. number: counts rounds, from 0."""

    program: Golem | Llama
    model: Path
    wanted: frozenset[str]
    threads: int
    number: int

    @property
    def repeats(self) -> int:
        return 2 if self.model.stat().st_size < SMALL else 1


Made = Iterator[tuple[str, list[float]]]


@dataclass(frozen=True)
class Part:
    """Lines that are measured together. once: in one round, because they take long.

    positions: the model must have been trained on so many.
    """

    lines: tuple[Line, ...]
    measure: Callable[[Turn], Made]
    once: bool = False
    positions: int = 0


def _rate(name: str, what: str) -> Line:
    return Line(name, "t/s", 1, what)


def _bench(turn: Turn) -> Made:
    prompts, draws = [512] * ("pp512" in turn.wanted), [64] * ("tg64" in turn.wanted)
    yield from turn.program.bench(turn.model, prompts, draws, turn.threads, 3).items()


def _long(turn: Turn) -> Made:
    rates = turn.program.deep(turn.model, LONG_PROMPT, 64, turn.threads, turn.repeats)
    yield f"pp{LONG_PROMPT}", rates.reading
    yield f"tg64@{LONG_PROMPT}", rates.drawing


def _widths(turn: Turn) -> Made:
    widths = [width for width in WIDTHS if f"pp512/{width}" in turn.wanted]
    rates = turn.program.widths(turn.model, 512, widths, turn.threads, turn.repeats)
    yield from ((f"pp512/{width}", values) for width, values in rates.items())


def _conversations(turn: Turn) -> Made:
    names = {(d, n): f"{n}x tg32@{d}" for d in DEPTHS for n in CLIENTS}
    wanted = [key for key, name in names.items() if name in turn.wanted]
    depths, counts = (sorted({key[i] for key in wanted}) for i in (0, 1))
    rates = turn.program.conversations(turn.model, depths, counts, 32, turn.threads)
    yield from ((names[d, n], rates[d][n]) for d, n in wanted)


def _who(count: int) -> str:
    return f"{count} client{'s' * (count > 1)}"


def _clients(turn: Turn) -> Made:
    """One server for all numbers of clients: a short round to warm up, then prompts all new."""
    words, seeds = words_of(turn.model), counting(1_000_000 * turn.number)
    counts = [n for n in CLIENTS if any(w.startswith(f"{_who(n)} ") for w in turn.wanted)]

    def one(port: int, clients: int, read: int, drawn: int):
        mine = [next(seeds) for _ in range(clients)]
        return round_of(port, words, read=read, drawn=drawn, seeds=mine)

    with serving(
        turn.program, turn.model, parallel=max(counts), context=SLOT, threads=turn.threads
    ) as port:
        one(port, max(counts), 16, 8)
        for count in counts:
            made = [one(port, count, PROMPT, DRAWN) for _ in range(turn.repeats)]
            yield f"{_who(count)} total", [r.total for r in made]
            yield f"{_who(count)} reading", [r.reading for r in made]
            yield f"{_who(count)} drawing", [r.drawing for r in made]
            yield f"{_who(count)} a pass", [r.shared for r in made if r.shared is not None]


def _first_tokens(turn: Turn) -> Made:
    words, seeds = words_of(turn.model), range(2, 2 + 2 * turn.repeats, 2)
    with serving(
        turn.program, turn.model, parallel=1, context=2 * SLOT + LONG, threads=turn.threads
    ) as port:
        first_tokens(port, words, 64, 0)
        made = [first_tokens(port, words, LONG, 1000 * turn.number + seed) for seed in seeds]
    yield "first token", [first for first, _ in made]
    yield "second turn", [second for _, second in made]


def _deep(turn: Turn) -> Made:
    words = words_of(turn.model)
    with serving(
        turn.program, turn.model, parallel=1, context=DEEP_CONTEXT, threads=turn.threads
    ) as port:
        reading, drawing = at_depth(port, words, DEEP, read=512, drawn=64, repeats=DEEP_TURNS)
    yield f"pp512@{DEEP}", reading
    yield f"tg64@{DEEP}", drawing


def _parts() -> Iterator[Part]:
    lines = _rate("pp512", "a prompt of 512"), _rate("tg64", "64 drawn by one conversation")
    yield Part(lines, _bench)
    lines = (
        _rate(f"pp{LONG_PROMPT}", f"a prompt of {LONG_PROMPT}"),
        _rate(f"tg64@{LONG_PROMPT}", f"64 drawn behind {LONG_PROMPT} positions"),
    )
    yield Part(lines, _long)
    named = ((w, f"a prompt of 512 in passes of {w} columns") for w in WIDTHS)
    yield Part(tuple(_rate(f"pp512/{w}", what) for w, what in named), _widths)
    drawing = tuple(
        _rate(f"{n}x tg32@{d}", f"{n} conversations drawing 32 each at depth {d}, without HTTP")
        for d in DEPTHS
        for n in CLIENTS
    )
    yield Part(drawing, _conversations)
    clients = (
        (
            _rate(f"{_who(n)} total", "HTTP: drawn, over the time from request to the end"),
            _rate(f"{_who(n)} reading", "HTTP: prompts, until all have a first token"),
            _rate(f"{_who(n)} drawing", "HTTP: sum of the clients' rates, prompts already read"),
            Line(f"{_who(n)} a pass", "", 0, "HTTP: conversations a pass while all draw"),
        )
        for n in CLIENTS
    )
    yield Part(tuple(line for four in clients for line in four), _clients)
    lines = (
        Line("first token", "ms", -1, f"HTTP: to the first token of a prompt of {LONG} tokens"),
        Line("second turn", "ms", -1, "HTTP: to the first token of that and 64 tokens more"),
    )
    yield Part(lines, _first_tokens)
    lines = (
        _rate(f"pp512@{DEEP}", f"HTTP: a prompt of 512 behind {DEEP} positions"),
        _rate(f"tg64@{DEEP}", "HTTP: 64 drawn behind that prompt"),
    )
    yield Part(lines, _deep, once=True, positions=DEEP_CONTEXT)


PARTS = tuple(_parts())
LINES = tuple(line for part in PARTS for line in part.lines)


def measure(part: Part, turn: Turn) -> dict[str, list[float]]:
    """Samples of the part's lines that are wanted, by line."""
    return {name: list(v) for name, v in part.measure(turn) if name in turn.wanted and v}


def trained_on(model: Path) -> int:
    """Positions a model was trained on; 0 where its file does not say."""
    with GGUF.open(model) as file:
        keys = file.metadata
        return int(keys.get(f"{keys.get('general.architecture')}.context_length", 0))
