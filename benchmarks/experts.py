"""An expert's weights once for all its columns, or once for each: where would the other be better?

    python -m benchmarks.experts [--types Q4_0,Q4_K] [--isa avx512] [--megabytes 80] [--rounds 8]

Weights come from memory in chunks as a unit of work takes them. By expert, a chunk meets its
columns in one call; by column, in a call for each, the first of which brings it into the cache.
Printed: time by expert over time by column, best of the rounds, which alternate on one thread.
"""

import time

import numpy as np

from benchmarks.linear import CODED, WIDTH, matrices
from golem_core.cpu import _linear as linear
from golem_core.cpu.lower import CHUNK_BYTES
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

COLUMNS = (1, 2, 3, 4, 8)
TYPES = "Q4_0,Q4_K,Q8_0,Q6_K,MXFP4"


def share(isa: str, type: int, data: np.ndarray, columns: int, rounds: int) -> float:
    """Time by expert over time by column."""
    size = linear.group_bytes(type, WIDTH)
    groups = max(1, CHUNK_BYTES // size)
    chunks = [data[at : at + groups * size] for at in range(0, data.size, groups * size)]
    chunks = [chunk for chunk in chunks if chunk.size == groups * size]
    x = np.random.default_rng(1).standard_normal((columns, WIDTH)).astype(np.float32)
    codes = np.empty((WIDTH // 32, columns, linear.Q8_BYTES), np.uint8)
    linear.quantise(isa, x, codes.reshape(-1))
    each = [np.ascontiguousarray(codes[:, c : c + 1]) for c in range(columns)]
    out = np.empty((groups, columns, 16), np.float32)
    one = np.empty((groups, 1, 16), np.float32)

    def by_expert() -> None:
        for chunk in chunks:
            linear.dot(isa, type, chunk, WIDTH, codes, 0, columns, out)

    def by_column() -> None:
        for chunk in chunks:
            for column in each:
                linear.dot(isa, type, chunk, WIDTH, column, 0, 1, one)

    taken: dict = {by_expert: [], by_column: []}
    for _ in range(rounds):
        for way, times in taken.items():
            start = time.thread_time()
            way()
            times.append(time.thread_time() - start)
    return min(taken[by_expert]) / min(taken[by_column])


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--types",
        type=kinds.several(kinds.among(CODED)),
        default=TYPES,
        help="names, separated by commas",
    )
    parser.add_argument("--isa", type=kinds.among(linear.isas()), default=linear.isas()[-1])
    parser.add_argument(
        "--megabytes", type=kinds.mebibytes, default=80, help="weights: more than the caches"
    )
    parser.add_argument("--rounds", type=kinds.whole(), default=8)
    args = parser.parse_args()
    print(f"{'type':8} " + " ".join(f"{n:>5}" for n in COLUMNS) + " columns")
    for type, name, *_ in linear.types():
        if name in args.types:
            data = matrices(type, args.megabytes << 20)
            shares = [share(args.isa, type, data, n, args.rounds) for n in COLUMNS]
            print(f"{name:8} " + " ".join(f"{value:5.2f}" for value in shares), flush=True)


if __name__ == "__main__":
    main()
