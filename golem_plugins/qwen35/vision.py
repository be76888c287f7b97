"""How Qwen3.5 and its successors see: the tower of their projectors' files.

A picture keeps its shape: it is fitted to a canvas of whole units of two by two patches, each a row
for the model. Places come from a learned square of embeddings that is stretched over the canvas,
and from rotary angles of row and column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.values import Value
from golem_core.graph.weights import Weight
from golem_core.media import fit, fitted_size
from golem_core.model.media import Positions, Tower
from golem_core.model.tensors import Tensors

TOKENS = 8, 4096  # rows of a picture, as llama.cpp has it
LONGEST = 16384  # rows of a picture at most, whatever the operator asks for
ROPE_BASE = 10000.0
EPS = 1e-6


class Qwen35Vision(Tower):
    """GGUF's ``qwen3vl_merger``, of models that take its last layer alone."""

    kind = "image"

    def read(self) -> None:
        hyper = self.hyper
        self.patch = hyper.integer("patch_size", high=256)
        self.merged = hyper.integer("spatial_merge_size", 2, high=16)
        self.unit = self.patch * self.merged
        self.out = hyper.integer("projection_dim")
        self.embedding = hyper.integer("embedding_length")
        self.blocks = hyper.integer("block_count", high=1024)
        self.heads = hyper.integer("attention.head_count")
        self.hidden = hyper.integer("feed_forward_length")
        if self.embedding % (4 * self.heads):
            raise hyper.fail("attention.head_count", f"heads of {self.embedding} that are 4 wide")
        self.eps = hyper.number("attention.layer_norm_epsilon", EPS, low=0.0)
        if any(hyper.flags("is_deepstack_layers", self.blocks, [False] * self.blocks)):
            raise hyper.fail(
                "is_deepstack_layers", "false for every block: Qwen3-VL's files differ"
            )
        self.mean, self.spread = (self._channels(f"image_{name}") for name in ("mean", "std"))
        if not (self.spread > 0).all():
            raise hyper.fail("image_std", "three numbers above 0")
        self.least, self.most = self.bounds(*TOKENS, LONGEST)

    def _channels(self, key: str) -> np.ndarray:
        """(3,) f32: a number for each colour."""
        found = np.asarray(self.hyper.metadata.get(self.hyper.key(key), (0.5, 0.5, 0.5)))
        if found.shape != (3,) or found.dtype.kind not in "if" or not np.isfinite(found).all():
            raise self.hyper.fail(key, "three numbers")
        return found.astype(np.float32)

    @property
    def width(self) -> int:
        return self.out

    @property
    def longest(self) -> int:
        return self.most

    # ---- the pass

    def write(self, p: Builder, w: Tensors) -> Value:
        block = self.merged**2
        patches = p.axis("k", self.most) * block
        pixels = p.input("patches", (patches, 3 * self.patch**2))
        corners = p.input("corners", (patches, 4), "i32")
        shares = p.input("shares", (patches, 4))
        where = p.input("where", (patches, 2), "i32")
        x = p.linear(pixels, self._kernel(w))
        x = p.add(x, p.rows(self._places(w), corners, shares))
        p.output("patch_embed", x)
        for i in range(self.blocks):
            with p.scope(f"v.blk.{i}"):
                x = self._block(p, w.below(f"v.blk.{i}"), x, where)
                p.output(f"blk.{i}", x)
        x = p.flat(p.grouped(self._norm(p, w, "v.post_ln", x), block))
        inner = self.embedding * block
        x = p.unary(p.linear(x, w.matrix("mm.0", inner, inner)), "gelu_erf")
        return p.linear(x, w.matrix("mm.2", self.out, inner))

    def _kernel(self, w: Tensors) -> Weight:
        """A still is two equal frames, so the kernels of both moments add up."""
        shape = (self.embedding, 3, self.patch, self.patch)
        kernel = w.vector("v.patch_embd", *shape)
        if "v.patch_embd.weight.1" in w:
            kernel = kernel + w.vector("v.patch_embd.weight.1", *shape)
        bias = w.vector("v.patch_embd.bias", self.embedding)
        return Weight.of("v.patch_embd", kernel.reshape(self.embedding, -1), bias)

    def _places(self, w: Tensors) -> Weight:
        """The square of embeddings, a row a place."""
        table = w.linear("v.position_embd")
        self.side = math.isqrt(table.shape[0])
        if table.shape != (self.side**2, self.embedding):
            raise self.fail(
                f"tensor v.position_embd.weight has the shape {table.shape}; by the header it must "
                f"be (a square number, {self.embedding})"
            )
        return table

    def _norm(self, p: Builder, b: Tensors, name: str, x: Value) -> Value:
        wide = self.embedding
        return p.layer_norm(x, b.vector(name, wide), b.vector(f"{name}.bias", wide), self.eps)

    def _block(self, p: Builder, b: Tensors, x: Value, where: Value) -> Value:
        wide, size = self.embedding, self.embedding // self.heads
        both = p.linear(self._norm(p, b, "ln1", x), b.matrix("attn_qkv", 3 * wide, wide))
        q, k, v = (p.heads(t, self.heads) for t in p.split(both, (wide, wide, wide)))
        q, k = (p.rope(t, where, self.rope) for t in (q, k))
        y = p.attend(q, k, v, scale=size**-0.5, ahead=None)
        x = p.add(x, p.linear(p.flat(y), b.matrix("attn_out", wide, wide)))
        y = p.linear(self._norm(p, b, "ln2", x), b.matrix("ffn_up", self.hidden, wide))
        y = p.linear(p.unary(y, "gelu_tanh"), b.matrix("ffn_down", wide, self.hidden))
        return p.add(x, y)

    @property
    def rope(self) -> Rope:
        """The first half of the pairs turns by the patch's row, the second by its column."""
        pairs = self.embedding // self.heads // 4
        freq = ROPE_BASE ** (-np.arange(pairs, dtype=np.float64) / pairs)
        axis = np.repeat(np.arange(2), pairs).astype(np.int32)
        return Rope(np.tile(freq, 2).astype(np.float32), "halves", axis)

    # ---- what a pass takes

    def size_of(self, medium: np.ndarray) -> tuple[int, int]:
        """(width, height) of the canvas of a picture."""
        height, width = medium.shape[:2]
        return fitted_size(width, height, self.unit, self.least, self.most)

    def pieces(self, medium: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
        canvas, side = fit(medium, self.size_of(medium)), self.patch
        high, wide = canvas.shape[0] // side, canvas.shape[1] // side
        cut = canvas.reshape(high, side, wide, side, 3).transpose(0, 2, 4, 1, 3)
        values = cut.reshape(high * wide, 3, -1).astype(np.float32) / np.float32(255)
        values = (values - self.mean[:, None]) / self.spread[:, None]
        yield self.inputs(values.reshape(high * wide, -1), high, wide)

    def inputs(self, patches: np.ndarray, high: int, wide: int) -> dict[str, np.ndarray]:
        """The inputs of a pass. patches: (high · wide, values), row by row in the canvas."""
        m = self.merged
        order = np.arange(high * wide).reshape(high // m, m, wide // m, m)
        order = order.transpose(0, 2, 1, 3).reshape(-1)  # unit by unit
        where = np.stack([order // wide, order % wide], 1).astype(np.int32)
        corners, shares = stretched(where, (high, wide), self.side)
        return {"patches": patches[order], "corners": corners, "shares": shares, "where": where}

    def positions(self, medium: np.ndarray, rows: int) -> Positions:
        """Rows lie in a plane at one time; text goes on behind the longer side of it."""
        wide, high = (side // self.unit for side in self.size_of(medium))
        row, column = np.divmod(np.arange(rows), wide)
        offsets = np.stack([np.zeros(rows, np.int64), row, column], 1)
        return Positions(offsets.astype(np.int32), max(high, wide))


def stretched(where: np.ndarray, grid: tuple[int, int], side: int) -> tuple[np.ndarray, np.ndarray]:
    """A square table stretched over a grid, corner to corner: what is read for each place.

    where: (n, 2) rows and columns. -> ((n, 4) i32 rows of the table, (n, 4) f32 their weights).
    """
    low, high, part = [], [], []
    for axis in range(2):
        at = np.linspace(0, side - 1, grid[axis], dtype=np.float32)[where[:, axis]]
        low.append(at.astype(np.int32))
        high.append(np.minimum(low[-1] + 1, side - 1))
        part.append(at - low[-1])
    (y0, x0), (y1, x1), (dy, dx) = low, high, part
    corners = np.stack([y0 * side + x0, y0 * side + x1, y1 * side + x0, y1 * side + x1], 1)
    shares = np.stack([(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx], 1)
    return corners.astype(np.int32), shares.astype(np.float32)
