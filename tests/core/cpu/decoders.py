"""Small decoders with random weights, written without any plugin, for tests of the executor."""

import numpy as np

from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.program import Program
from golem_core.graph.weights import Weight

VOCABULARY = 96


class Maker:
    """Random weights of one block type."""

    def __init__(self, kind: str, seed: int = 0):
        self.kind = by_name(kind)
        self.rng = np.random.default_rng(seed)
        self.made = 0

    def matrix(self, *shape: int, kind=None) -> Weight:
        kind = self.kind if kind is None else by_name(kind)
        rows = int(np.prod(shape[:-1]))
        blocks = random_blocks((rows, shape[-1]), kind, self.rng, shape[-1] ** -0.5)
        self.made += 1
        return Weight(f"w{self.made}", shape, kind, blocks.reshape(*shape[:-1], -1))

    def norm(self, width: int) -> np.ndarray:
        return (1 + 0.1 * self.rng.standard_normal(width)).astype(np.float32)


def decoder(
    kind: str = "Q4_0",
    *,
    blocks: int = 2,
    width: int = 256,
    heads: int = 4,
    kv: int = 2,
    d: int = 64,
    hidden: int = 512,
    window: int | None = None,
    head_norms: bool = False,
    experts: int = 0,
    post_norms: bool = False,
    n: int = 128,
) -> Program:
    """A decoder in the manner of llama (or qwen3, qwen3moe, gemma3 by its options)."""
    p, w = Builder("tiny"), Maker(kind)
    p.axis("n", n)
    p.axis("m", n)
    table = w.matrix(VOCABULARY, width)
    rope = Rope.of(d, 10000.0)
    x = p.rows(table, p.tokens)
    for i in range(blocks):
        with p.scope(f"blk.{i}"):
            ring = p.ring(f"kv.{i}", kv, d, window=window if i % 2 else None)
            back = None if ring.window is None else ring.window - 1
            h = p.rms_norm(x, w.norm(width), 1e-6)
            q, k, v = (p.heads(p.linear(h, w.matrix(c * d, width)), c) for c in (heads, kv, kv))
            if head_norms:
                q, k = (p.rms_norm(t, w.norm(d), 1e-6) for t in (q, k))
            q, k = (p.rope(t, p.positions, rope) for t in (q, k))
            y = p.flat(p.attend(q, k, v, ring, scale=d**-0.5, back=back))
            y = p.linear(y, w.matrix(width, heads * d))
            x = p.add(x, p.rms_norm(y, w.norm(width), 1e-6) if post_norms else y)
            h = p.rms_norm(x, w.norm(width), 1e-6)
            y = _mixture(p, w, h, experts, hidden) if experts else _dense(p, w, h, hidden)
            x = p.add(x, p.rms_norm(y, w.norm(width), 1e-6) if post_norms else y)
    x = p.rms_norm(p.pick(x, p.outputs), w.norm(width), 1e-6)
    p.output("logits", p.linear(x, table))
    return p.build()


def _dense(p: Builder, w: Maker, h, hidden: int):
    width = h.width
    gate, up = (p.linear(h, w.matrix(hidden, width)) for _ in "gu")
    return p.linear(p.gate(gate, up, "silu"), w.matrix(width, hidden))


def _mixture(p: Builder, w: Maker, h, experts: int, hidden: int):
    width = h.width
    chosen, weights = p.route(p.linear(h, w.matrix(experts, width, kind="F32")), 2, normalise=True)
    gate, up = (p.linear_by_expert(h, w.matrix(experts, hidden, width), chosen) for _ in "gu")
    y = p.linear_by_expert(p.gate(gate, up, "silu"), w.matrix(experts, width, hidden), chosen)
    return p.combine(y, weights)


def one_pass(*runs: tuple[int, int, int, int], seed: int = 0, scored: str = "all") -> dict:
    """The inputs of a pass from (slot, count, first index, role). A slot's token at an index is
    the same in every pass. scored: "all", "last" columns of the runs, or "none"."""
    rows, tokens, last, first = [], [], [], 0
    for slot, count, index, role in runs:
        rows.append((slot, first, count, index, role))
        rng = np.random.default_rng((seed, slot))
        tokens.append(rng.integers(0, VOCABULARY, index + count)[index:])
        first += count
        last.append(first - 1)
    outputs = {"all": range(first), "last": last, "none": ()}[scored]
    return {
        "runs": np.array(rows, np.int32),
        "tokens": np.concatenate(tokens).astype(np.int32),
        "outputs": np.array(list(outputs), np.int32),
    }
