"""Keys and values that drawn attention reads in a second, beside a plain read of the same memory.

    python -m benchmarks.depth [--threads 2] [--depths 4096,32768] [--types f16,q8_0] [NAME ...]

A program of nothing but attentions, each over a ring of its own, as many as make the rings a good
deal larger than any cache; one drawn column a pass. Passes and plain reads alternate in one run,
and the best of each count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.bandwidth import PlainRead
from golem_core.cpu import CpuExecutor
from golem_core.graph.builder import Builder
from golem_core.graph.program import Program
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

LINES = {"f16": 2.0, "bf16": 2.0, "f32": 4.0, "q8_0": 34 / 32, "q4_0": 18 / 32}  # bytes a number
BLOCK = 64  # keys that are really computed; the others are copies of them


@dataclass(frozen=True)
class Shape:
    """Of the attention of a model."""

    name: str
    heads: int
    kv: int
    size: int


SHAPES = (
    Shape("SmolLM2-135M", 9, 3, 64),
    Shape("Gemma 3 270M", 4, 1, 256),
    Shape("Qwen3-0.6B", 16, 8, 128),
    Shape("Qwen3-4B", 32, 8, 128),
)


def attentions(shape: Shape, count: int) -> Program:
    """So many attentions, the results of each the queries of the next."""
    p = Builder("depth")
    p.axis("n", BLOCK)
    inputs = (("q", shape.heads), ("k", shape.kv), ("v", shape.kv))
    q, k, v = (p.input(name, (p.columns, heads, shape.size)) for name, heads in inputs)
    for i in range(count):
        ring = p.ring(f"kv{i}", shape.kv, shape.size)
        q = p.attend(q, k, v, ring, scale=shape.size**-0.5)
    p.output("y", q)
    return p.build()


def columns(shape: Shape, count: int, index: int, read: int) -> dict[str, np.ndarray]:
    """A pass of ``count`` columns from ``index`` on, of a prompt or drawn."""
    rng = np.random.default_rng(0)
    heads = {"q": shape.heads, "k": shape.kv, "v": shape.kv}
    made = {k: rng.standard_normal((count, h, shape.size), np.float32) for k, h in heads.items()}
    return made | {"runs": np.array([[0, 0, count, index, read]], np.int32)}


def measure(
    shape: Shape, depth: int, kind: str, threads: int | None, megabytes: int, repeats: int
) -> Iterator[str]:
    """A line for a person. megabytes: of keys and values, at least."""
    each = 2 * shape.kv * shape.size * LINES[kind] * depth
    program = attentions(shape, max(1, round(megabytes * 2**20 / each)))
    with CpuExecutor(program, context=depth, threads=threads, cache=(kind, kind)) as ex:
        ex.run(columns(shape, BLOCK, 0, 1), ("y",))
        for ring in ex.states.rings.values():
            ring.k[:, 1:] = ring.k[:, :1]
            ring.v[:, 1:] = ring.v[:, :1]
        plain = PlainRead(ex.states.memory, ex.threads)
        drawn, seconds = columns(shape, 1, depth - 1, 0), []
        for _ in range(repeats):
            plain.read()
            ex.run(drawn, ("y",))
            seconds.append(ex.stats.seconds)
        rate = plain.bytes / min(seconds) / 1e9
    yield (
        f"{shape.name:14} {kind:5} depth {depth:6} {rate:6.1f} GB/s, plain read {plain.best:6.1f}: "
        f"{100 * rate / plain.best:3.0f} %{'' if plain.steady else '  (unsteady)'}"
    )


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only shapes whose name contains one of these")
    parser.add_argument("--threads", type=kinds.threads(), default=None)
    parser.add_argument(
        "--depths",
        type=kinds.several(kinds.whole(BLOCK)),
        default="4096,32768",
        help="comma-separated",
    )
    caches = kinds.several(kinds.among(LINES))
    parser.add_argument("--types", type=caches, default="f16,q8_0,q4_0", help="of the cache")
    parser.add_argument("--megabytes", type=kinds.mebibytes, default=256, help="of keys and values")
    parser.add_argument("--repeats", type=kinds.whole(), default=20)
    asked = parser.parse_args()
    shapes = [s for s in SHAPES if not asked.names or any(name in s.name for name in asked.names)]
    if not shapes:
        parser.error(f"{' '.join(asked.names)}: there are {', '.join(s.name for s in SHAPES)}")
    for shape in shapes:
        for depth in asked.depths:
            for kind in asked.types:
                lines = measure(shape, depth, kind, asked.threads, asked.megabytes, asked.repeats)
                print(*lines, flush=True)


if __name__ == "__main__":
    main()
