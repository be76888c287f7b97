"""Drawing's share of memory's rate, type by type: passes against a plain read of the same pages.

    python -m benchmarks.shares [--types Q4_0,Q4_K] [--threads 2] [--columns 1] [--megabytes 1000]
    python -m benchmarks.shares --models FILE,FILE [--threads 2] [--columns 1]

A pass is a few feed-forward layers of the shape given, every matrix of one type; or, with --models,
a whole pass of a GGUF chat model that draws, its attention and all else included. Its weights'
bytes over its time are compared with a plain read of the pages they lie in, by the same threads,
passes and reads in turns; best against best. A line is void where the reads' best and median are
more than 15 % apart. One thread is timed by its processor time, which others on the machine
disturb little.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bandwidth import PlainRead
from benchmarks.linear import TYPES
from golem_core.cpu import CpuExecutor
from golem_core.cpu.weights import WeightStore
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.program import Program
from golem_core.graph.weights import Weight
from golem_core.model import open_decoder
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

REPEATED = 32  # rows that are random; the others repeat them
HEAD = 256  # a multiple of every block


def layers(kind: str, width: int, hidden: int, total: int) -> Program:
    """Feed-forward layers of about ``total`` bytes in all, behind one small attention: programs
    without states multiply float weights otherwise."""
    block = by_name(kind)
    rng = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> Weight:
        some = random_blocks((REPEATED, columns), block, rng, columns**-0.5)
        return Weight(name, (rows, columns), block, np.tile(some, (rows // REPEATED, 1)))

    p = Builder("layers")
    p.axis("n", 16)
    x = p.input("x", (p.columns, width))
    q, k, v = (p.heads(p.linear(x, matrix(name, HEAD, width)), 1) for name in "qkv")
    y = p.flat(p.attend(q, k, v, p.ring("kv", 1, HEAD), scale=HEAD**-0.5))
    x = p.add(x, p.linear(y, matrix("o", width, HEAD)))
    for i in range(max(1, round(total * block.weights / (3 * width * hidden * block.bytes)))):
        h = p.rms_norm(x, np.ones(width, np.float32), 1e-6)
        gate, up = (p.linear(h, matrix(f"{name}.{i}", hidden, width)) for name in ("gate", "up"))
        x = p.add(x, p.linear(p.gate(gate, up, "silu"), matrix(f"down.{i}", width, hidden)))
    p.output("y", x)
    return p.build()


def pages_of(store: WeightStore, program: Program) -> list[np.ndarray]:
    """The repacked matrices where they lie."""
    matrices = [store[w] for w in program.weights.values()]
    return [
        np.ctypeslib.as_array((ctypes.c_uint8 * m.bytes).from_address(m.address)) for m in matrices
    ]


def of_type(kind: str, args: Any) -> str:
    """The line of feed-forward layers of one type."""
    width, hidden = args.shape
    program = layers(kind, width, hidden, args.megabytes << 20)
    inputs = {
        "x": np.random.default_rng(1).standard_normal((args.columns, width)).astype(np.float32),
        "runs": np.array([(0, 0, args.columns, 0, 0)], np.int32),
    }
    with CpuExecutor(program, threads=args.threads, context=64) as executor:
        return line(executor, inputs, "y", args.threads, args.rounds)


def of_model(path: Path, args: Any) -> str:
    """The line of a model that draws, each column of a conversation of its own."""
    columns = np.arange(args.columns, dtype=np.int32)
    context, n = 64 * args.columns, args.columns
    with closing(open_decoder(path, threads=args.threads, context=context, parallel=n)) as model:
        inputs = {
            "runs": np.array([(i, i, 1, 0, 0) for i in columns], np.int32),
            "tokens": columns,
            "outputs": columns,
        }
        return line(model.executor, inputs, "logits", args.threads, args.rounds)


def line(
    executor: CpuExecutor, inputs: Mapping[str, np.ndarray], wanted: str, threads: int, rounds: int
) -> str:
    """GB/s of passes and plain reads in turns, and the share."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    while executor.settle():
        pass
    reader = PlainRead(pages_of(executor.weights, executor.program), threads)
    passes, reads = [], []
    for _ in range(rounds):
        started = clock()
        seconds = reader.read()  # without the making of threads
        reads.append(reader.bytes / (clock() - started if threads == 1 else seconds) / 1e9)
        started = clock()
        executor.run(inputs, (wanted,))
        passes.append(executor.stats.weight_bytes / (clock() - started) / 1e9)
    void = "" if np.median(reads) >= 0.85 * max(reads) else "  void: reads vary by over 15 %"
    best, read = max(passes), max(reads)
    return f"{best:6.1f} {read:6.1f} {best / read:7.1%} {np.median(reads):7.1f}{void}"


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--types", type=kinds.several(kinds.among(TYPES)), default=TYPES, help="by commas (all)"
    )
    parser.add_argument(
        "--models", type=kinds.several(kinds.file), default=[], help="GGUF files, not types"
    )
    parser.add_argument("--threads", type=kinds.threads(), default=2)
    parser.add_argument(
        "--columns", type=kinds.whole(1, 16), default=1, help="conversations drawing, 1 to 16"
    )
    parser.add_argument("--megabytes", type=kinds.mebibytes, default=1000, help="weights of a pass")
    parser.add_argument("--rounds", type=kinds.whole(), default=20)
    parser.add_argument("--shape", type=kinds.sizes(256), default="4096x12288", help="widths")
    args = parser.parse_args()
    print(f"{'':8} {'GB/s':>6} {'read':>6} {'share':>7} {'median':>7}")
    for path in args.models:
        print(f"{path.stem[:24]:8} {of_model(path, args)}", flush=True)
    for kind in [] if args.models else args.types:
        print(f"{kind:8} {of_type(kind, args)}", flush=True)


if __name__ == "__main__":
    main()
