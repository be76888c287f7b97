"""The command line of golem-bench."""

from __future__ import annotations

import argparse
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from golem_core.model import open_decoder
from golem_core.model.decoder import LONGEST_CONTEXT
from golem_core.model.errors import MemoryShort
from golem_core.model.open import LEAST_SLOT
from golem_server.bench import arguments as kinds
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.measure import Bench, Case
from golem_server.bench.profile import lines
from golem_server.bench.quantised import MIXTURES
from golem_server.bench.report import FORMATS, MEANING, record, render
from golem_server.bench.shapes import SHAPES
from golem_server.commands import INTERRUPTED, Flags
from golem_server.serve import one_line
from golem_server.stderr import say

PROGRAM = "golem-bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; 0, or 1 after one line about what was wrong."""
    arguments = parser().parse_args(argv)
    try:
        with _model_path(arguments) as path:
            if path is not None:
                entries = _measure(path, arguments)
                print(render(entries, arguments.output))
                if arguments.output != "json":
                    for line in _profiles(entries):
                        print(line)
    except BrokenPipeError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        say(f"{PROGRAM}: {one_line(error)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def parser() -> Flags:
    """The command's flags."""
    made = Flags(
        prog=PROGRAM,
        description="Measures how fast a model reads prompts (pp) and draws tokens (tg).",
        epilog=f"{_columns()}\n{_names('shapes', SHAPES)}\n\n{_names('types', MIXTURES)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, cores = made.add_argument, kinds.several(kinds.threads(0))
    counts, numbers = kinds.several(kinds.whole(0)), kinds.several(kinds.whole())
    add("-m", "-model", "--model", metavar="FILE", help="a GGUF chat model")
    add("--random", metavar="SHAPE:TYPE", help="random weights, such as qwen3-4b:q4_0")
    add("--blocks", type=kinds.whole(), help="with --random: only so many of the shape's blocks")
    add("--write", metavar="FILE", help="with --random: keep the model there")
    add("-p", "--n-prompt", type=counts, default=[512], help="prompt lengths (512; 0 for none)")
    add("-n", "--n-gen", type=counts, default=[64], help="tokens to draw (64; 0 for none)")
    add("-d", "--n-depth", type=counts, default=[0], help="positions already there (0)")
    add("-b", "--conversations", type=numbers, default=[1], help="conversations drawing (1)")
    add("-t", "--threads", type=cores, default=[0], help="cores (0: those of this process)")
    add("-r", "--repetitions", type=kinds.whole(), default=5, help="repeats of each test (5)")
    add("-o", "--output", choices=FORMATS, default="table", help="format (table)")
    add("-w", "--pass-width", type=numbers, default=[None], help="most columns of a pass")
    add("--no-warmup", action="store_true", help="measure a test's first run too")
    add("--profile", action="store_true", help="tell where the time goes, by op and weight")
    add("--no-served", action="store_true", help="leave out served - C, which reads depths again")
    add("--executor", choices=("cpu", "reference"), default="cpu", help=argparse.SUPPRESS)
    add("--seed", type=kinds.whole(0), default=0, help="of random weights and tokens (0)")
    return made


def _columns() -> str:
    """What is in the table's columns."""
    return f"of tests that draw:\n{textwrap.indent(MEANING, '  ')}"


def _names(what: str, names: Iterable[str]) -> str:
    return textwrap.fill(f"{what}: {' '.join(names)}".lower(), 100, break_on_hyphens=False)


@contextmanager
def _model_path(arguments: argparse.Namespace) -> Iterator[Path | None]:
    """The file to measure; None when a model was only to be written."""
    if arguments.model is not None and arguments.random is not None:
        raise ValueError("-m and --random are two models to measure: give one of them")
    if arguments.model is None and arguments.random is None:
        raise ValueError("give a model with -m FILE, or random weights with --random SHAPE:TYPE")
    if arguments.model == "":
        raise ValueError("-m names no file")
    if arguments.model is not None:
        if arguments.write is not None:
            raise ValueError("--write keeps what --random made; there is nothing to write with -m")
        if arguments.blocks is not None:
            raise ValueError("--blocks cuts what --random makes; a file given with -m is whole")
        yield Path(arguments.model)
        return
    shape, mixture = parse(arguments.random)
    with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as folder:
        path = Path(arguments.write or Path(folder) / f"{shape}-{mixture.lower()}.gguf")
        whole = SHAPES[shape]
        cut = whole if arguments.blocks is None else whole.cut(arguments.blocks)
        write_invented(path, cut, mixture, arguments.seed)
        yield path if _cases(arguments) else None


def _cases(arguments: argparse.Namespace) -> list[Case]:
    cases = []
    for depth in arguments.n_depth:
        cases += [Case(n, 0, depth) for n in arguments.n_prompt if n]
        for n in filter(None, arguments.n_gen):
            cases += [Case(0, n, depth, batch) for batch in arguments.conversations]
    return cases


def _measure(path: Path, arguments: argparse.Namespace) -> list[dict]:
    cases = _cases(arguments)
    if not cases:
        raise ValueError("nothing to measure: -p and -n are both 0")
    slots = max(case.batch for case in cases)
    positions = max(LEAST_SLOT, *(case.positions for case in cases))
    if slots * positions > LONGEST_CONTEXT:
        raise ValueError(
            f"{slots} conversations (-b) of {positions} positions (-d, -p, -n) are more than "
            f"{LONGEST_CONTEXT} positions in all"
        )
    entries = []
    for threads, width in product(arguments.threads, arguments.pass_width):
        try:
            model = open_decoder(
                path,
                context=slots * positions,
                parallel=slots,
                threads=threads or None,
                pass_width=width,
                executor=arguments.executor,
            )
        except MemoryShort as error:
            raise ValueError(f"{error.needs}; {_smaller(error.context // slots)}") from None
        bench = Bench(model, arguments.seed)
        try:
            for case in cases:
                result = bench.run(
                    case,
                    arguments.repetitions,
                    warm=not arguments.no_warmup,
                    profile=arguments.profile,
                    engine=not arguments.no_served,
                )
                entries.append(record(model, bench.threads, result))
        finally:
            bench.close()
            model.close()
    return entries


def _smaller(positions: int) -> str:
    """What to ask for instead, in this command's flags; positions: that would fit each slot."""
    if positions > 0:
        return (
            f"-d, -p and -n that come to {positions} positions would fit, or fewer "
            "conversations (-b)"
        )
    return "fewer --blocks of --random, a narrower --pass-width or a smaller model would fit"


def _profiles(entries: list[dict]) -> Iterator[str]:
    """Lines of what --profile asked for, after the table."""
    for entry in entries:
        if entry["profile"] is not None:
            yield ""
            yield from lines(f"{entry['test']}, {entry['n_threads']} threads", entry["profile"])
