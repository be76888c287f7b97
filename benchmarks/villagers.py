"""Five villagers who talk: what copies of a recurrent state save of reading.

    python -m benchmarks.villagers [--random qwen35-9b:q4_k] [--blocks 4] [--width 1024]
        [--sheet 3800] [--threads 2] [--checkpoints 3]

Each villager is asked three times; every prompt is a long sheet with another short ending. Twice,
with and without copies in turns: in one slot, all of them on one sheet, and in five slots at once,
each on a sheet of its own. A delta net cannot be rewound, so without copies every prompt is read
whole; with copies the requests tell how long their endings are, as the chat routes do. Weights are
random: what is said means nothing, how long it takes does. Beside other work on the machine the
processor's seconds say more than the clock's.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from golem_core.model import open_decoder
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_server.bench import arguments as kinds
from golem_server.bench.invented import parse, write_invented
from golem_server.bench.shapes import SHAPES
from golem_server.commands import Flags

VILLAGERS, TURNS, ENDING, DRAWN = 5, 3, 40, 8
GREEDY = SamplerParams(temperature=0.0)


@dataclass
class Village:
    """seconds of all answers, by the clock and of processors, positions that were read for them,
    and the longest wait for one."""

    seconds: float = 0.0
    cpu: float = 0.0
    read: int = 0
    longest: float = 0.0


def prompts(vocabulary: int, sheet: int, shared: bool, seed: int) -> list[list[np.ndarray]]:
    """Tokens of every villager's turns."""
    rng = np.random.default_rng(seed)

    def tokens(count: int) -> np.ndarray:
        return rng.integers(0, vocabulary, count)

    sheets = [tokens(sheet)] * VILLAGERS if shared else [tokens(sheet) for _ in range(VILLAGERS)]
    return [[np.concatenate([s, tokens(ENDING)]) for _ in range(TURNS)] for s in sheets]


def talk(model, talks: list[list[np.ndarray]], slots: int, checkpoints: int) -> Village:
    """Every villager's turns in order: the villagers at once, or after each other in one slot."""
    found, door = Village(), threading.Lock()

    def ask(engine: Engine, tokens: np.ndarray) -> None:
        began = time.monotonic()
        request = Request(tokens=tokens.tolist(), max_tokens=DRAWN, params=GREEDY, ending=ENDING)
        result = engine.submit(request).wait(3600)
        with door:
            found.read += result.prompt_tokens - result.cached_tokens
            found.longest = max(found.longest, time.monotonic() - began)

    def all_turns(engine: Engine, turns: list[np.ndarray]) -> None:
        for tokens in turns:
            ask(engine, tokens)

    memory = 1 << 40  # what is granted is asked for, so that figures compare
    with Engine(model, slots=slots, checkpoints=checkpoints, checkpoint_memory=memory) as engine:
        began, busy = time.monotonic(), time.process_time()
        if slots == 1:
            for turn in range(TURNS):
                for turns in talks:
                    ask(engine, turns[turn])
        else:
            threads = [threading.Thread(target=all_turns, args=(engine, t)) for t in talks]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found.seconds, found.cpu = time.monotonic() - began, time.process_time() - busy
    return found


def table(cases: dict[str, tuple[Village, Village]]) -> str:
    """Without and with copies, and their ratio, in Markdown."""
    each = "read | seconds | of processors | longest wait"
    lines = [f"| | {each} | {each} | ratio | of processors |", "|---" * 11 + "|"]
    for name, (without, with_copies) in cases.items():
        cells = [
            f"{v.read} | {v.seconds:.1f} | {v.cpu:.1f} | {v.longest:.1f}"
            for v in (without, with_copies)
        ]
        ratios = without.seconds / with_copies.seconds, without.cpu / with_copies.cpu
        lines.append(f"| {name} | {' | '.join(cells)} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--random",
        type=kinds.weights,
        default="qwen35-9b:q4_k",
        help="shape and type of the weights",
    )
    parser.add_argument("--blocks", type=kinds.whole(), default=4, help="of the shape's blocks (4)")
    parser.add_argument(
        "--width", type=kinds.whole(0, of=256), default=0, help="another than the shape's; 0: that"
    )
    parser.add_argument(
        "--sheet", type=kinds.whole(), default=3800, help="tokens of a sheet (3800)"
    )
    parser.add_argument("--threads", type=kinds.threads(), default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--checkpoints", type=kinds.whole(0), default=3, help="copies a slot keeps (3)"
    )
    args = parser.parse_args()
    name, mixture = parse(args.random)
    try:
        shape = SHAPES[name].cut(args.blocks)
    except ValueError as error:
        parser.error(str(error))
    if args.width:
        hidden = shape.feed_forward * args.width // shape.width
        shape = replace(shape, width=args.width, feed_forward=hidden)
    with tempfile.TemporaryDirectory(prefix="villagers-") as folder:
        path = write_invented(Path(folder) / "village.gguf", shape, mixture)
        slot = args.sheet + ENDING + DRAWN + 64
        model = open_decoder(
            path, context=VILLAGERS * slot, parallel=VILLAGERS, threads=args.threads
        )
        cases = {}
        for label, shared in (("one sheet, one slot", True), ("sheets of their own", False)):
            talks = prompts(shape.vocabulary, args.sheet, shared, seed=1)
            slots = 1 if shared else VILLAGERS
            found = [talk(model, talks, slots, count) for count in (0, args.checkpoints)]
            cases[label] = tuple(found)
        model.close()
    both = [
        Village(
            *(sum(getattr(v, f) for v in column) for f in ("seconds", "cpu", "read")),
            max(v.longest for v in column),
        )
        for column in zip(*cases.values(), strict=True)
    ]
    print(
        f"{args.random}, {args.blocks} blocks, {args.threads} threads: without copies, then with\n"
    )
    print(table(cases | {"both": tuple(both)}))


if __name__ == "__main__":
    main()
