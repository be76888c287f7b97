"""The lines of benchmarks/compare.py: what each is, and how a program's samples of it are made.

Lines that one run of a program can give together are measured together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clients import first_tokens, round_of, words_of
from benchmarks.programs import Golem, Llama, bench_samples, serving

CLIENTS = (1, 2, 4, 8)
WIDTHS = (16, 32, 64, 128, 256, 512)
DEPTHS = (0, 448)  # of conversations that draw together without HTTP
PROMPT, DRAWN = 256, 64  # of a client
LONG = 2000  # tokens of the prompt whose first token is waited for
REPETITIONS = 3


@dataclass(frozen=True)
class Line:
    """better: 1 where more is, -1 where less is, 0 where there is no ratio."""

    name: str
    unit: str
    better: int
    what: str


def _lines() -> Iterator[Line]:
    for name, what in (
        ("pp512", "a prompt of 512"),
        ("pp4096", "a prompt of 4096"),
        ("tg64", "64 drawn by one conversation"),
        ("tg64@4096", "the same at depth 4096"),
        ("pp512@32768", "a prompt of 512 at depth 32768"),
        ("tg64@32768", "64 drawn at depth 32768"),
    ):
        yield Line(name, "t/s", 1, what)
    for width in WIDTHS:
        yield Line(f"pp512/{width}", "t/s", 1, f"a prompt of 512 in passes of {width} columns")
    for depth in DEPTHS:
        for count in CLIENTS:
            what = f"{count} conversations drawing 32 each at depth {depth}, without HTTP"
            yield Line(f"{count}x tg32@{depth}", "t/s", 1, what)
    for count in CLIENTS:
        who = f"{count} client{'s' * (count > 1)}"
        yield Line(f"{who} total", "t/s", 1, "HTTP: drawn, over the time from request to the end")
        yield Line(f"{who} drawing", "t/s", 1, "HTTP: the sum of the clients' rates of drawing")
        yield Line(f"{who} reading", "t/s", 1, "HTTP: prompts, until all have a first token")
        yield Line(f"{who} a pass", "", 0, "HTTP: conversations a pass while all draw")
    yield Line("first token", "ms", -1, f"HTTP: to the first token of a prompt of {LONG} tokens")
    yield Line("second turn", "ms", -1, "HTTP: to the first token of that and 64 tokens more")


LINES = tuple(_lines())
Program = Golem | Llama
Made = Iterator[tuple[str, list[float]]]


def measure(program: Program, model: Path, lines: list[Line], threads: int, number: int) -> Made:
    """(line, samples) of one turn of a program. number: of the turn, so that prompts are new."""
    wanted = {line.name for line in lines}
    for part in (_bench, _widths, _conversations, _clients, _first_tokens):
        for name, values in part(program, model, wanted, threads, number):
            if name in wanted and values:
                yield name, values


def _bench(program: Program, model: Path, wanted: set[str], threads: int, number: int) -> Made:
    for flags in bench_flags([n for n in wanted if n[:2] in ("pp", "tg") and "/" not in n]):
        common = ["-t", threads, "-r", REPETITIONS]
        yield from bench_samples(program, model, [*flags, *common]).items()


def bench_flags(tests: list[str]) -> Iterator[list]:
    """The fewest bench runs that cover the tests, as flags of llama-bench and golem-bench."""
    by_depth = defaultdict(lambda: ([], []))
    for test in tests:
        kind, _, depth = test.partition("@")
        by_depth[depth or "0"][kind.startswith("tg")].append(kind[2:])
    for depth, (prompts, draws) in sorted(by_depth.items()):
        flags = ["-p", ",".join(sorted(prompts)) or "0", "-n", ",".join(sorted(draws)) or "0"]
        yield flags if depth == "0" else [*flags, "-d", depth]


def _widths(program: Program, model: Path, wanted: set[str], threads: int, number: int) -> Made:
    for width in WIDTHS:
        if f"pp512/{width}" in wanted:
            flags = ["-p", 512, "-n", 0, "-t", threads, "-r", REPETITIONS, *program.width(width)]
            yield f"pp512/{width}", bench_samples(program, model, flags)["pp512"]


def _conversations(
    program: Program, model: Path, wanted: set[str], threads: int, number: int
) -> Made:
    for depth in DEPTHS:
        counts = [count for count in CLIENTS if f"{count}x tg32@{depth}" in wanted]
        if counts:
            samples = program.conversations(model, counts, depth, 32, threads)
            yield from ((f"{count}x tg32@{depth}", samples[count]) for count in counts)


def _clients(program: Program, model: Path, wanted: set[str], threads: int, number: int) -> Made:
    """A server for each number of clients: a short round to warm up, then the repetitions."""
    for count in CLIENTS:
        who = f"{count} client{'s' * (count > 1)}"
        if not any(name.startswith(f"{who} ") for name in wanted):
            continue
        words = words_of(model)
        with serving(program, model, parallel=count, context=1024, threads=threads) as port:
            round_of(port, words, clients=count, read=16, drawn=8, seed=number)
            seeds = range(1 + number * 100, 1 + number * 100 + REPETITIONS)
            made = [
                round_of(port, words, clients=count, read=PROMPT, drawn=DRAWN, seed=seed)
                for seed in seeds
            ]
        yield f"{who} total", [r.total for r in made]
        yield f"{who} drawing", [r.drawing for r in made]
        yield f"{who} reading", [r.reading for r in made]
        yield f"{who} a pass", [r.shared for r in made if r.shared is not None]


def _first_tokens(
    program: Program, model: Path, wanted: set[str], threads: int, number: int
) -> Made:
    if not wanted & {"first token", "second turn"}:
        return
    with serving(program, model, parallel=1, context=8192, threads=threads) as port:
        seeds = range(1 + number * 100, 1 + number * 100 + 10 * REPETITIONS, 10)
        made = [first_tokens(port, words_of(model), LONG, seed) for seed in seeds]
    yield "first token", [first for first, _ in made]
    yield "second turn", [second for _, second in made]
