"""How near the linear kernels come to memory and to arithmetic: one thread, type by type.

    python -m benchmarks.linear [--types Q4_0,Q4_K] [--isas avx512] [--megabytes 400] [--rounds 9]

One column is limited by reading the weights once: its bytes a second over those of a plain read of
the same pages, the two alternating in one run, median of the rounds' ratios. More columns are
limited by arithmetic: multiply-adds a second, by kernels of two groups where there are such. Other
work on the machine spoils both; the plain read's spread is printed beside, and a run in which it
exceeds 15 % says nothing.
"""

import statistics
import time

import numpy as np

from golem_core.cpu import _linear as linear
from golem_core.formats.blocks import by_id, random_blocks
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

WIDTH = 4096
TYPES = [name for _, name, *_ in linear.types()]
CODED = [name for _, name, _, _, codes in linear.types() if codes]  # by quantised columns
COLUMNS = (4, 8, 16, 64)


def matrices(type: int, total: int) -> np.ndarray:
    """Groups of random blocks of one type, about ``total`` bytes, starting on a page."""
    rows = random_blocks((16, WIDTH), by_id(type), np.random.default_rng(0))
    group = np.empty(linear.group_bytes(type, WIDTH), np.uint8)
    linear.repack(type, rows, WIDTH, group)
    count = max(16, total // group.size)
    raw = np.empty(count * group.size + 4096, np.uint8)
    data = raw[-raw.ctypes.data % 4096 :][: count * group.size]
    data.reshape(count, -1)[:] = group
    return data


def seconds(call, *args) -> float:
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


def product(isa: str, type: int, codes: bool, data: np.ndarray, n: int):
    """The arguments of one product of the matrices with ``n`` random columns."""
    x = np.random.default_rng(1).standard_normal((n, WIDTH)).astype(np.float32)
    if codes:
        columns = np.empty((WIDTH // 32, n, linear.Q8_BYTES), np.uint8)
        linear.quantise(isa, x, columns.reshape(-1))
    else:
        columns = x
    out = np.empty((data.size // linear.group_bytes(type, WIDTH), n, 16), np.float32)
    return isa, type, data, WIDTH, columns, 0, n, out


def one_column(call, data: np.ndarray, rounds: int) -> tuple[float, float, float]:
    """Median GB/s of the product, its median share of a plain read, the plain read's spread."""
    reads, shares, rates = [], [], []
    for _ in range(rounds):
        read = seconds(linear.read, data)
        taken = seconds(linear.dot, *call)
        again = seconds(linear.read, data)
        reads += [read, again]
        rates.append(data.size / taken / 1e9)
        shares.append((read + again) / 2 / taken)
    spread = np.quantile(reads, 0.75) / np.quantile(reads, 0.25) - 1
    return statistics.median(rates), statistics.median(shares), float(spread)


def many_columns(call, data: np.ndarray, rounds: int) -> float:
    """Best multiply-adds a second, in units of 1e12."""
    out = call[-1]
    best = min(seconds(linear.dot, *call, "pairs") for _ in range(rounds))
    return out.size * WIDTH / best / 1e12


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    types = kinds.several(kinds.among(TYPES))
    parser.add_argument("--types", type=types, default=TYPES, help="separated by commas (all)")
    isas = kinds.several(kinds.among(linear.isas()))
    parser.add_argument("--isas", type=isas, default=linear.isas()[1:] or ["portable"])
    parser.add_argument(
        "--megabytes", type=kinds.mebibytes, default=400, help="weights read a pass"
    )
    parser.add_argument("--rounds", type=kinds.whole(), default=9)
    args = parser.parse_args()
    heads = " ".join(f"{n:>6}" for n in COLUMNS)
    print(f"{'type':8} {'isa':8} {'GB/s':>6} {'of read':>8} {'spread':>7}   T mul-add/s at {heads}")
    for type, name, _, _, codes in linear.types():
        if name not in args.types:
            continue
        data = matrices(type, args.megabytes << 20)
        few = data[: max(1, (4 << 20) // linear.group_bytes(type, WIDTH))
                   * linear.group_bytes(type, WIDTH)]  # fmt: skip
        for isa in args.isas:
            rate, share, spread = one_column(product(isa, type, codes, data, 1), data, args.rounds)
            rates = [
                many_columns(product(isa, type, codes, few, n), few, args.rounds) for n in COLUMNS
            ]
            row = " ".join(f"{rate:6.3f}" for rate in rates)
            print(
                f"{name:8} {isa:8} {rate:6.1f} {share:8.1%} {spread:7.1%}   {'':14} {row}",
                flush=True,
            )


if __name__ == "__main__":
    main()
