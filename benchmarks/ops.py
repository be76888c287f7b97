"""One line an op and shape: time, rate, and the ratio to the same in numpy, alternated in one run.

    python -m benchmarks.ops [--threads 2] [--repeats 30] [NAME ...]

Times are the best of the repeats, inside C for golem. GB/s counts what the op must read and write
once; GFLOP/s counts two operations a multiply-add, of attention only the keys a column sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from golem_core.cpu import CpuExecutor
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.program import Program
from golem_core.graph.weights import Rotation, Weight
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

RNG = np.random.default_rng(0)


@dataclass
class Case:
    """An op in a program of its own, a pass to run, and what numpy would do."""

    name: str
    program: Program
    inputs: dict[str, np.ndarray]
    numpy: Callable[[], object]
    bytes: int = 0
    flops: int = 0
    context: int = 64
    filled: int = 0  # positions the rings must hold before


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def one(name: str, write, x: np.ndarray, numpy, flops: int = 0, **inputs) -> Case:
    """An op of one input."""
    p = Builder(name)
    value = p.input("x", (p.axis("n", len(x)), *x.shape[1:]))
    others = {
        k: p.input(k, (p.columns, *a.shape[1:]), "i32" if a.dtype.kind == "i" else "f32")
        for k, a in inputs.items()
    }
    made = write(p, value, **others)
    p.output("y", made[0] if isinstance(made, tuple) else made)
    moved = 2 * x.nbytes + sum(a.nbytes for a in inputs.values())
    return Case(name, p.build(), {"x": x, **inputs}, numpy, moved, flops)


def linears() -> Iterator[Case]:
    out, width = 4096, 4096
    for kind in ("Q4_0", "Q4_K", "Q6_K", "Q8_0", "TQ2_0", "Q1_0", "F16", "F32"):
        blocks = random_blocks((out, width), by_name(kind), RNG, width**-0.5)
        w = Weight("w", (out, width), by_name(kind), blocks)
        full = w.numpy().T
        for n in (1, 8, 512):
            x = random(n, width)
            case = one(
                f"linear {kind} {out}x{width} n={n}",
                lambda p, v, w=w: p.linear(v, w),
                x,
                lambda x=x, full=full: x @ full,
                2 * n * out * width,
            )
            case.bytes += w.nbytes
            yield case


def attends() -> Iterator[Case]:
    for heads, kv, d in ((9, 3, 64), (32, 8, 128), (4, 1, 256)):
        for n, depth in ((1, 512), (1, 8192), (512, 0), (512, 4096)):
            yield attend(heads, kv, d, n, depth)


def attend(heads: int, kv: int, d: int, n: int, depth: int) -> Case:
    p = Builder("attend")
    p.axis("n", max(n, 512))
    ring = p.ring("kv", kv, d)
    q, k, v = (p.input(s, (p.columns, h, d)) for s, h in zip("qkv", (heads, kv, kv), strict=True))
    p.output("y", p.attend(q, k, v, ring, scale=d**-0.5))
    inputs = {s: random(n, h, d) for s, h in zip("qkv", (heads, kv, kv), strict=True)}
    inputs["runs"] = np.array([[0, 0, n, depth, int(n > 1)]], np.int32)
    keys, values = random(kv, d, depth + n), random(kv, depth + n, d)
    share = heads // kv

    def numpy():
        query = inputs["q"].reshape(n, kv, share, d).transpose(1, 2, 0, 3).reshape(kv, -1, d)
        s = query @ keys * np.float32(d**-0.5)
        s = np.exp(s - s.max(-1, keepdims=True))
        return s @ values / s.sum(-1, keepdims=True)

    seen = n * depth + n * (n + 1) // 2
    name = f"attend H={heads} KV={kv} D={d} n={n} depth={depth}"
    bytes, flops = 2 * 2 * kv * d * (depth + n), 4 * heads * d * seen
    return Case(name, p.build(), inputs, numpy, bytes, flops, depth + n, depth)


def rows() -> Iterator[Case]:
    for n in (1, 512):
        x, other = random(n, 2560), random(n, 2560)
        weight = random(2560)
        yield one(
            f"rms_norm 2560 n={n}",
            lambda p, v, weight=weight: p.rms_norm(v, weight, 1e-6),
            x,
            lambda x=x, w=weight: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
        )
        yield one(
            f"gate silu 2560 n={n}",
            lambda p, v, other: p.gate(v, other, "silu"),
            x,
            lambda x=x, other=other: x / (1 + np.exp(-x)) * other,
            other=other,
        )
        yield one(
            f"gelu_tanh 2560 n={n}",
            lambda p, v: p.unary(v, "gelu_tanh"),
            x,
            lambda x=x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
        )
        yield one(f"softmax 2560 n={n}", lambda p, v: p.softmax(v), x, lambda x=x: softmax(x))
        yield one(
            f"route 128 n={n}",
            lambda p, v: p.route(v, 8, normalise=True),
            x[:, :128].copy(),
            lambda x=x: np.sort(np.argpartition(-softmax(x[:, :128]), 8, -1)[:, :8]),
        )
        yield rope(n)
    logits = random(1, 151936)
    yield one(
        "top_k 40 of 151936",
        lambda p, v: p.top_k(v, 40),
        logits,
        lambda: np.argpartition(-logits, 40, -1)[:, :40],
    )


def rope(n: int) -> Case:
    heads, spec = random(n, 32, 128), Rope.of(128, 1e6)
    positions = np.arange(n, dtype=np.int32)

    def numpy():
        angle = positions[:, None, None].astype(np.float32) * spec.freq
        c, s, a, b = np.cos(angle), np.sin(angle), heads[..., :64], heads[..., 64:]
        return np.concatenate([a * c - b * s, a * s + b * c], -1)

    return one(
        f"rope 32x128 n={n}", lambda p, v, at: p.rope(v, at, spec), heads, numpy, at=positions
    )


def recurrent() -> Iterator[Case]:
    """Ops of a delta net, of the shapes the 27B has: 48 value heads of 128 x 128."""
    keys, values, size = 16, 48, 128
    mixed = (2 * keys + values) * size
    kernel = random(mixed, 1, 4)
    for n in (1, 512):
        x = random(n, mixed)
        runs = np.array([[0, 0, n, 0, int(n > 1)]], np.int32)

        def convolved(x=x):
            past = np.concatenate([np.zeros((3, mixed), np.float32), x])
            return sum(past[j : j + len(x)] * kernel[:, 0, j] for j in range(4))

        conv = one(
            f"conv1d {mixed}x4 n={n}",
            lambda p, v: p.conv1d(v, kernel, window="past", groups=mixed),
            x,
            convolved,
            8 * n * mixed,
        )
        conv.inputs["runs"], conv.context = runs, n
        yield conv
        yield delta_rule(n, keys, values, size, runs)
        wide, rotation = random(n, 5120), Rotation("sylvester", 1024)
        turn = np.ones((1, 1), np.float32)
        while len(turn) < 1024:
            turn = np.kron(np.array([[1, 1], [1, -1]], np.float32), turn)
        yield one(
            f"hadamard 5x1024 n={n}",
            lambda p, v, r=rotation: p.hadamard(v, r),
            wide,
            lambda x=wide, turn=turn: (x.reshape(-1, 1024) @ turn).reshape(x.shape) / 32,
        )


def delta_rule(n: int, keys: int, values: int, size: int, runs: np.ndarray) -> Case:
    p = Builder("delta_rule")
    p.axis("n", n)
    shapes = {"q": (keys, size), "k": (keys, size), "v": (values, size)}
    shapes |= {"decay": (values,), "beta": (values,)}
    inputs = {name: random(n, *inner) * np.float32(0.05) for name, inner in shapes.items()}
    given = [p.input(name, (p.columns, *inner)) for name, inner in shapes.items()]
    p.output("y", p.delta_rule(*given, "m", scale=size**-0.5))
    m = np.zeros((values, size, size), np.float32)
    head = np.arange(values) % keys

    def numpy():
        for c in range(n):
            k, q = inputs["k"][c, head], inputs["q"][c, head]
            m[...] *= np.exp(inputs["decay"][c])[:, None, None]
            seen = np.einsum("hvs,hs->hv", m, k)
            d = inputs["beta"][c][:, None] * (inputs["v"][c] - seen)
            m[...] += d[:, :, None] * k[:, None]
            np.einsum("hvs,hs->hv", m, q)

    moved = 2 * m.nbytes + sum(a.nbytes for a in inputs.values()) + inputs["v"].nbytes
    flops = 8 * n * values * size * size
    name = f"delta_rule {values}x{size}x{size} n={n}"
    return Case(name, p.build(), inputs | {"runs": runs}, numpy, moved, flops, context=n)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def measure(case: Case, threads: int, repeats: int) -> str:
    mine, theirs = [], []
    with CpuExecutor(case.program, context=case.context, threads=threads) as ex:
        fill(ex, case)
        for _ in range(repeats):
            ex.run(case.inputs, ("y",))
            mine.append(ex.stats.seconds)
            before = time.perf_counter()
            case.numpy()
            theirs.append(time.perf_counter() - before)
    best = min(mine)
    rates = f"{case.bytes / best / 1e9:8.1f} GB/s"
    rates += f" {case.flops / best / 1e9:8.1f} GFLOP/s" if case.flops else " " * 17
    return f"{case.name:40} {best * 1e6:10.1f} us {rates} {min(theirs) / best:8.2f} x numpy"


def fill(ex: CpuExecutor, case: Case) -> None:
    """Feeds the positions before the measured pass."""
    at = 0
    while at < case.filled:
        count = min(512, case.filled - at)
        inputs = {k: random(count, *a.shape[1:]) for k, a in case.inputs.items() if k != "runs"}
        ex.run({**inputs, "runs": np.array([[0, 0, count, at, 1]], np.int32)}, ("y",))
        at += count


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only ops whose line contains one of these")
    parser.add_argument("--threads", type=kinds.threads(), default=None)
    parser.add_argument("--repeats", type=kinds.whole(), default=30)
    asked = parser.parse_args()
    measured = 0
    for group in (linears, attends, rows, recurrent):
        for case in group():
            if not asked.names or any(name in case.name for name in asked.names):
                print(measure(case, asked.threads, asked.repeats), flush=True)
                measured += 1
    if not measured:
        parser.error(f"{' '.join(asked.names)}: no op's line contains that; without names all are")


if __name__ == "__main__":
    main()
