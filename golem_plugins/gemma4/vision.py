"""How Gemma 4 sees: the towers of its projectors' files, and what a picture is for them.

A picture is fitted to a canvas of whole units of 48 pixels. The small and large sizes have a
transformer over patches of 16 pixels, whose 3 x 3 blocks are pooled to one row each; the unified
size projects each unit as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.values import Dim, Value
from golem_core.media import MediaError, fit, fitted_size
from golem_core.model.media import Tower
from golem_core.model.tensors import Tensors

TOKENS = 70, 1120  # rows of a picture, as llama.cpp has it
LONGEST = 4096  # rows of a picture at most, whatever the operator asks for
MERGED = 3  # patches along each side of a row's unit
ROPE_BASE = 100.0
EPS = 1e-6


class Pictures(Tower):
    """What both towers do with a picture: they fit it to whole units, one row each."""

    kind = "image"

    def read(self) -> None:
        self.patch = self.hyper.integer("patch_size", high=256)
        self.unit = self.patch * MERGED
        self.out = self.hyper.integer("projection_dim")
        self.embedding = self.hyper.integer("embedding_length")
        self.least, self.most = self.bounds(*TOKENS, LONGEST)

    @property
    def width(self) -> int:
        return self.out

    @property
    def longest(self) -> int:
        return self.most

    def canvas(self, picture: np.ndarray) -> np.ndarray:
        """The picture fitted to whole units: (height, width, 3) u8."""
        height, width = picture.shape[:2]
        return fit(picture, fitted_size(width, height, self.unit, self.least, self.most))

    def tables(self, w: Tensors, longest: int) -> list:
        """The embeddings of columns and of rows, a matrix (places, embedding) each."""
        shape = w.linear("v.position_embd").shape
        if len(shape) != 3 or shape[0] != 2 or shape[2] != self.embedding:
            raise self.fail(
                f"tensor v.position_embd.weight has the shape {shape}; by the header it must be "
                f"(2, places, {self.embedding})"
            )
        self.places = shape[1]
        both = w.linear("v.position_embd")
        return [both.expert(axis) for axis in range(2)]

    def project(self, p: Builder, w: Tensors, x: Value) -> Value:
        """Rows as wide as the model's."""
        x = p.rms_norm(x, None, EPS)
        return p.linear(x, w.matrix("mm.input_projection", self.out, self.embedding))

    def units(self, canvas: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        """A canvas (h, w, 3) cut into squares, row by row: (squares, 3 · side²), (squares, 2).

        Channel after channel; and the column and row of each square.
        """
        high, wide = canvas.shape[0] // side, canvas.shape[1] // side
        cut = canvas.reshape(high, side, wide, side, 3).transpose(0, 2, 4, 1, 3)
        rows, columns = np.divmod(np.arange(high * wide), wide)
        where = np.stack([columns, rows], 1).astype(np.int32)
        if max(high, wide) > self.places:
            raise MediaError(
                f"a picture {max(high, wide)} squares long; this projector knows {self.places} "
                "places: send one that is less long for its width, or start the server with a "
                "smaller -image-max-tokens"
            )
        return cut.reshape(high * wide, -1), where


class Gemma4Vision(Pictures):
    """GGUF's ``gemma4v``: a transformer over all patches of a picture.

    ``act``: HF's implementation, which trained the model, has the tanh form of GELU. llama.cpp
    runs the quick form, because its files name none; its rows differ by some percent for it.
    """

    act: ClassVar[str] = "gelu_tanh"

    def read(self) -> None:
        super().read()
        hyper = self.hyper
        self.blocks = hyper.integer("block_count", high=1024)
        self.heads = hyper.integer("attention.head_count")
        self.hidden = hyper.integer("feed_forward_length")
        if self.embedding % (4 * self.heads):
            raise hyper.fail("attention.head_count", f"heads of {self.embedding} that are 4 wide")
        self.head = self.embedding // self.heads
        self.eps = hyper.number("attention.layer_norm_epsilon", EPS, low=0.0)

    def write(self, p: Builder, w: Tensors) -> Value:
        patches = p.axis("k", self.most) * MERGED**2
        pixels = p.input("patches", (patches, 3 * self.patch**2))
        where = p.input("where", (patches, 2), "i32")
        kernel = w.flattened("v.patch_embd", self.embedding, 3, self.patch, self.patch)
        x = p.add(p.linear(pixels, kernel), p.rows(self.tables(w, self.most), where))
        p.output("patch_embed", x)
        for i in range(self.blocks):
            with p.scope(f"v.blk.{i}"):
                x = self._block(p, w.below(f"v.blk.{i}"), x, where)
                p.output(f"blk.{i}", x)
        x = p.reduce(p.grouped(x, MERGED**2), "sum")
        x = p.mul(x, self.embedding**0.5 / MERGED**2)
        if "v.std_bias" in w:
            scale = w.vector("v.std_scale", self.embedding)
            x = p.fma(x, scale, -w.vector("v.std_bias", self.embedding) * scale)
        p.output("pooled", x)
        return self.project(p, w, x)

    def _block(self, p: Builder, b: Tensors, x: Value, where: Value) -> Value:
        width = self.embedding

        def norm(name: str, value: Value) -> Value:
            return p.rms_norm(value, b.vector(name, value.shape[-1]), self.eps)

        a = norm("ln1", x)
        q, k, v = (
            p.heads(p.linear(a, b.matrix(f"attn_{s}", width, width)), self.heads) for s in "qkv"
        )
        q, k = (
            p.rope(norm(f"attn_{s}_norm", t), where, self.rope) for s, t in (("q", q), ("k", k))
        )
        o = p.attend(q, k, p.rms_norm(v, None, self.eps), scale=1.0, ahead=None)
        o = p.linear(p.flat(o), b.matrix("attn_out", width, width))
        x = p.add(x, norm("attn_post_norm", o))
        f = norm("ln2", x)
        gate, up = (p.linear(f, b.matrix(f"ffn_{s}", self.hidden, width)) for s in ("gate", "up"))
        y = p.linear(p.gate(gate, up, self.act), b.matrix("ffn_down", width, self.hidden))
        return p.add(x, norm("ffn_post_norm", y))

    @property
    def rope(self) -> Rope:
        """The first half of a head turns by the patch's column, the second by its row."""
        pairs = self.head // 4
        freq = ROPE_BASE ** (-np.arange(pairs, dtype=np.float64) / pairs)
        axis = np.repeat(np.arange(2), pairs).astype(np.int32)
        return Rope(np.tile(freq, 2).astype(np.float32), "halves", axis, parts=2)

    def pieces(self, medium: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
        patches, where = self.cut(self.canvas(medium).astype(np.float32) / np.float32(255))
        yield {"patches": patches, "where": where}

    def cut(self, canvas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A canvas (h, w, 3) of values 0 to 1 as patches -1 to 1, and the place of each."""
        pixels, where = self.units(canvas, self.patch)
        order = _blocks(canvas.shape[0] // self.patch, canvas.shape[1] // self.patch)
        return 2 * pixels[order] - 1, where[order]


class Gemma4Patches(Pictures):
    """GGUF's ``gemma4uv``: a projection of each unit of 48 pixels, without a transformer."""

    def write(self, p: Builder, w: Tensors) -> Value:
        size, width = 3 * self.unit**2, self.embedding
        units: Dim = p.axis("k", self.most)
        x = p.input("patches", (units, size))
        where = p.input("where", (units, 2), "i32")

        def norm(number: int, value: Value, wide: int) -> Value:
            name = f"v.patch_norm.{number}"
            return p.layer_norm(value, w.vector(name, wide), w.vector(f"{name}.bias", wide), 1e-5)

        x = p.linear(norm(1, x, size), w.matrix("v.patch_embd", width, size))
        x = p.add(norm(2, x, width), p.rows(self.tables(w, self.most), where))
        x = norm(3, x, width)
        p.output("hidden", x)
        return self.project(p, w, x)

    def pieces(self, medium: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
        canvas = self.canvas(medium).astype(np.float32) / np.float32(255)
        pixels, where = self.units(canvas, self.unit)
        yield {"patches": pixels, "where": where}


def _blocks(high: int, wide: int) -> np.ndarray:
    """Places of patches, row by row in the canvas, in the order of the blocks that are pooled."""
    at = np.arange(high * wide).reshape(high // MERGED, MERGED, wide // MERGED, MERGED)
    return at.transpose(0, 2, 1, 3).reshape(-1)
