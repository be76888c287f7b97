"""How near the kernels of prompt columns come to what a core can multiply: one thread, by type.

    python -m benchmarks.prompts [--types Q4_0,Q4_K] [--isas avx512] [--width 2560] [--rounds 100]

A few groups of weights, small enough for a core's own cache, meet as many columns as a call takes.
Printed are multiply-adds a second, and their share of what the same core does when it multiplies
bytes in registers and nothing else (AVX-512 VNNI; blank without it); at last what it takes to
quantise a column, in nanoseconds for 256 values. A call takes a fraction of a millisecond and the
best one counts, so that other work on the machine matters little: rounds go from type to type, each
with a few calls in a row, and the peak is measured between them. Types of floats are multiplied by
other means (``benchmarks.ops``).
"""

import numpy as np

from benchmarks.linear import CODED, seconds
from golem_core.cpu import _linear as linear
from golem_core.formats.blocks import by_id, random_blocks
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

GROUPS, COLUMNS, TURNS, CALLS = 16, linear.PROMPT_COLUMNS, 10_000, 4


class Product:
    """A product of one type with random columns, and the best times seen."""

    def __init__(self, isa: str, type: int, name: str, width: int) -> None:
        self.isa, self.name = isa, name
        self.x = np.random.default_rng(1).standard_normal((COLUMNS, width)).astype(np.float32)
        size = linear.group_bytes(type, width)
        raw = np.empty(GROUPS * size + 8192, np.uint8)
        groups = raw[-raw.ctypes.data % 64 :][: GROUPS * size]
        rows = random_blocks((16 * GROUPS, width), by_id(type), np.random.default_rng(0))
        linear.repack(type, rows, width, groups)
        self.records = np.empty(
            (width // 32, COLUMNS * linear.prompt_records(isa), linear.Q8_BYTES), np.uint8
        )
        out = np.empty((GROUPS, COLUMNS, 16), np.float32)
        self.quantise()
        self.call = (isa, type, groups, width, self.records, 0, COLUMNS, out, "prompt")
        self.done = out.size * width
        self.best = self.rounding = float("inf")

    def quantise(self) -> None:
        linear.quantise(self.isa, self.x, self.records.reshape(-1), "prompt")

    def round(self) -> None:
        for _ in range(CALLS):
            self.rounding = min(self.rounding, seconds(self.quantise))
        for _ in range(CALLS):
            self.best = min(self.best, seconds(linear.dot, *self.call))

    def line(self, peak: float) -> str:
        rate = self.done / self.best
        share = f"{rate / peak:8.1%}" if peak else f"{'':8}"
        each = self.rounding / self.x.size * 256e9
        return f"{self.name:8} {self.isa:8} {rate / 1e12:8.3f} {share} {each:9.1f}"


def peak_rate(best: float) -> float:
    """Multiply-adds a second of the core, the better of ``best`` and a new measurement."""
    taken = seconds(linear.multiply, TURNS)
    return max(best, linear.multiply(1) * TURNS / taken)


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--types", type=kinds.several(kinds.among(CODED)), default=CODED, help="by commas (all)"
    )
    isas = kinds.several(kinds.among(linear.isas()))
    parser.add_argument("--isas", type=isas, default=linear.isas()[-1])
    parser.add_argument(
        "--width", type=kinds.whole(256, of=256), default=2560, help="a multiple of 256"
    )
    parser.add_argument("--rounds", type=kinds.whole(), default=100)
    args = parser.parse_args()
    products = [
        Product(isa, type, name, args.width)
        for type, name, *_ in linear.types()
        if name in args.types
        for isa in args.isas
    ]
    peak = 0.0
    for _ in range(args.rounds):
        for product in products:
            peak = peak_rate(peak)
            product.round()
    print(f"peak {peak / 1e12:.3f} T multiply-adds a second")
    print(f"{'type':8} {'isa':8} {'T/s':>8} {'of peak':>8} {'ns/256':>9}")
    for product in products:
        print(product.line(peak))


if __name__ == "__main__":
    main()
