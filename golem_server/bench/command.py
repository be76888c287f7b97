"""The command line of golem-bench."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from golem_core.cpu.cores import check_threads
from golem_core.model import open_decoder
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.measure import Bench, Case
from golem_server.bench.profile import lines
from golem_server.bench.quantised import MIXTURES
from golem_server.bench.report import FORMATS, record, render
from golem_server.bench.shapes import SHAPES
from golem_server.commands import INTERRUPTED, Flags
from golem_server.serve import one_line
from golem_server.stderr import say

PROGRAM = "golem-bench"
MOST = 1 << 24  # of any count


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; 0, or 1 after one line about what was wrong."""
    arguments = _parser().parse_args(argv)
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


def _parser() -> argparse.ArgumentParser:
    parser = Flags(
        prog=PROGRAM,
        description="Measures how fast a model reads prompts (pp) and draws tokens (tg).",
        epilog=f"shapes: {' '.join(SHAPES)}; types: {' '.join(MIXTURES)}".lower(),
    )
    add = parser.add_argument
    add("-m", "-model", "--model", metavar="FILE", help="a GGUF chat model")
    add("--random", metavar="SHAPE:TYPE", help="random weights, such as qwen3-4b:q4_0")
    add("--blocks", type=int, help="with --random: only so many of the shape's blocks")
    add("--write", metavar="FILE", help="with --random: keep the model there")
    add("-p", "--n-prompt", type=_counts, default=[512], help="prompt lengths (512; 0 for none)")
    add("-n", "--n-gen", type=_counts, default=[64], help="tokens to draw (64; 0 for none)")
    add("-d", "--n-depth", type=_counts, default=[0], help="positions already there (0)")
    add("-b", "--conversations", type=_positive, default=[1], help="conversations drawing (1)")
    add("-t", "--threads", type=_counts, default=[0], help="cores (0: those of this process)")
    add("-r", "--repetitions", type=_number, default=5, help="repeats of each test (5)")
    add("-o", "--output", choices=FORMATS, default="table", help="format (table)")
    add("-w", "--pass-width", type=_positive, default=[None], help="most columns of a pass")
    add("--no-warmup", action="store_true", help="measure a test's first run too")
    add("--profile", action="store_true", help="tell where the time goes, by op and weight")
    add("--executor", choices=("cpu", "reference"), default="cpu", help=argparse.SUPPRESS)
    add("--seed", type=_seed, default=0, help="of random weights and tokens (0)")
    return parser


def _counts(text: str) -> list[int]:
    """ "1,2,4" as numbers."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 1,2,4")
    if max(numbers) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: a number may be at most {MOST}")
    return numbers


def _positive(text: str) -> list[int]:
    numbers = _counts(text)
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: each must be at least 1")
    return numbers


def _number(text: str) -> int:
    return _single(_positive(text), text)


def _seed(text: str) -> int:
    return _single(_counts(text), text)


def _single(numbers: list[int], text: str) -> int:
    if len(numbers) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no single number")
    return numbers[0]


@contextmanager
def _model_path(arguments: argparse.Namespace) -> Iterator[Path | None]:
    """The file to measure; None when a model was only to be written."""
    if arguments.model is not None and arguments.random is not None:
        raise ValueError("-m and --random are two models to measure: give one of them")
    if arguments.model is None and arguments.random is None:
        raise ValueError("give a model with -m FILE, or random weights with --random SHAPE:TYPE")
    check_threads(max(arguments.threads))
    if arguments.model == "":
        raise ValueError("-m names no file")
    if arguments.model is not None:
        if arguments.write is not None:
            raise ValueError("--write keeps what --random made; there is nothing to write with -m")
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
    positions = max(case.positions for case in cases)
    entries = []
    for threads, width in product(arguments.threads, arguments.pass_width):
        model = open_decoder(
            path,
            context=slots * positions,
            parallel=slots,
            threads=threads or None,
            pass_width=width,
            executor=arguments.executor,
        )
        bench = Bench(model, arguments.seed)
        try:
            for case in cases:
                result = bench.run(
                    case, arguments.repetitions, not arguments.no_warmup, arguments.profile
                )
                entries.append(record(model, bench.threads, result))
        finally:
            bench.close()
            model.close()
    return entries


def _profiles(entries: list[dict]) -> Iterator[str]:
    """Lines of what --profile asked for, after the table."""
    for entry in entries:
        if entry["profile"] is not None:
            yield ""
            yield from lines(f"{entry['test']}, {entry['n_threads']} threads", entry["profile"])
