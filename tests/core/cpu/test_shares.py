"""Prompt rows are shared out among workers by columns: whoever takes them, their bits stay."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.weights import Weight

WIDTH, HIDDEN, MOST = 64, 160, 300


def decoder():
    """Two blocks whose products are plain, added to and gated, with codes in between."""
    rng = np.random.default_rng(5)

    def weight(name, rows, width, kind):
        return Weight(
            name,
            (rows, width),
            by_name(kind),
            random_blocks((rows, width), by_name(kind), rng, 0.1),
        )

    p = Builder("decoder")
    x = p.input("x", (p.axis("n", MOST), WIDTH))
    for i in range(2):
        h = p.rms_norm(x, None, 1e-6)
        q, k, v = (p.heads(p.linear(h, weight(f"{n}{i}", 64, WIDTH, "Q4_1")), 4) for n in "qkv")
        x = p.add(x, p.flat(p.attend(q, k, v, p.ring(f"kv{i}", 4, 16), scale=0.25)))
        h = p.rms_norm(x, None, 1e-6)
        gate, up = (p.linear(h, weight(f"{n}{i}", HIDDEN, WIDTH, "Q8_0")) for n in ("gate", "up"))
        x = p.add(x, p.linear(p.gate(gate, up, "silu"), weight(f"down{i}", WIDTH, HIDDEN, "Q4_0")))
    p.output("y", x)
    return p.build()


def read(executor, counts):
    """A pass of two drawn columns and of prompts, each of so many, in slots of their own."""
    runs, first = [], 0
    for slot, count in enumerate((1, 1, *counts)):
        runs.append([slot, first, count, 0, slot >= 2])
        first += count
    rows = np.random.default_rng(first).standard_normal((first, WIDTH)).astype(np.float32)
    return executor.run({"x": rows, "runs": np.array(runs, np.int32)}, ("y",))["y"].copy()


@pytest.mark.parametrize("counts", [(47,), (95,), (96,), (121,), (298,), (200, 61), (30, 100, 7)])
@pytest.mark.parametrize("threads", [2, 3, 5, 7])
def test_the_bits_of_a_pass_do_not_depend_on_how_many_workers_share_it(counts, threads):
    with CpuExecutor(decoder(), threads=1, slots=5, context=MOST) as executor:
        alone = read(executor, counts)
    with CpuExecutor(decoder(), threads=threads, slots=5, context=MOST) as executor:
        np.testing.assert_array_equal(read(executor, counts), alone)
    assert np.isfinite(alone).all() and (alone.std(axis=1) > 0).all()
