"""How Gemma 4 hears: the towers of its projectors' files, and what a recording is for them.

The small sizes have a conformer over mel spectra, a row for every 40 ms; the unified size projects
frames of 40 ms of the wave as they are. Long recordings are heard in pieces, each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from golem_core.graph.builder import Builder
from golem_core.graph.values import Value
from golem_core.media import RATE, Mel
from golem_core.model.media import Tower
from golem_core.model.tensors import Tensors

PIECE = 30 * RATE  # samples heard at once
EPS = 1e-6
CONTEXT = 12  # rows a row attends to, itself included
CAP = 50.0
TAPS = 5  # of the convolution along time


class Recordings(Tower):
    """What both towers do with a recording: cut it into pieces."""

    kind = "audio"

    def read(self) -> None:
        self.out = self.hyper.integer("projection_dim")
        self.embedding = self.hyper.integer("embedding_length")

    @property
    def width(self) -> int:
        return self.out

    @property
    def longest(self) -> int:
        return math.ceil(self.limits.seconds / 0.04) + 1

    def cut(self, samples: np.ndarray) -> Iterator[np.ndarray]:
        """The pieces that are heard each by itself."""
        for first in range(0, len(samples), PIECE):
            yield samples[first : first + PIECE]


class Gemma4Audio(Recordings):
    """GGUF's ``gemma4a``: a conformer whose rows see 12 rows back."""

    def read(self) -> None:
        super().read()
        hyper = self.hyper
        self.blocks = hyper.integer("block_count", high=1024)
        self.heads = hyper.integer("attention.head_count")
        self.hidden = hyper.integer("feed_forward_length")
        self.mel = Mel(hyper.integer("num_mel_bins", high=1024))
        if self.embedding % (2 * self.heads):
            raise hyper.fail("attention.head_count", f"even heads of {self.embedding}")
        self.head = self.embedding // self.heads

    def write(self, p: Builder, w: Tensors) -> Value:
        frames = p.axis("f", self.mel.frames(PIECE))
        x = self._subsampled(p, w, p.input("mel", (frames, self.mel.bands)))
        p.output("subsampled", x)
        for i in range(self.blocks):
            with p.scope(f"a.blk.{i}"):
                x = self._block(p, w.below(f"a.blk.{i}"), x)
                p.output(f"blk.{i}", x)
        inner = w.linear("a.pre_encode.out").out
        x = p.linear(x, w.matrix("a.pre_encode.out", inner, self.embedding))
        p.output("out", x)
        weight = w.vector("mm.a.soft_emb_norm", inner) if "mm.a.soft_emb_norm" in w else None
        x = p.rms_norm(x, weight, EPS)
        return p.linear(x, w.matrix("mm.a.input_projection", self.out, inner))

    def _subsampled(self, p: Builder, w: Tensors, mel: Value) -> Value:
        """A row for every four frames: two convolutions of the spectrum as a map of one channel."""
        x = p.reshape(mel, (self.mel.bands, 1))
        for i in range(2):
            kernel = w[f"a.conv1d.{i}"]
            if kernel.shape[1:] != (x.shape[2], 3, 3):
                raise self.fail(f"tensor a.conv1d.{i}.weight has the shape {kernel.shape}")
            x = p.conv2d(x, kernel, stride=2, pad=1)
            norm = w.vector(f"a.conv1d.{i}.norm", x.shape[2])
            x = p.unary(p.layer_norm(x, norm, None, EPS), "relu")
        x = p.flat(x)
        return p.linear(x, w.matrix("a.input_projection", self.embedding, x.shape[1]))

    def _block(self, p: Builder, b: Tensors, x: Value) -> Value:
        x = p.add(x, self._feed_forward(p, b, x, ""))
        x = p.add(x, self._attention(p, b, x))
        x = p.add(x, self._convolution(p, b, x))
        x = p.add(x, self._feed_forward(p, b, x, "_1"))
        return self._norm(p, b, "ln2", x)

    def _norm(self, p: Builder, b: Tensors, name: str, x: Value, scale: float = 1.0) -> Value:
        return p.rms_norm(x, b.vector(name, x.shape[-1]) * np.float32(scale), EPS)

    def _feed_forward(self, p: Builder, b: Tensors, x: Value, which: str) -> Value:
        """Half of what the network gives."""
        h = self._norm(p, b, f"ffn_norm{which}", x)
        h = p.unary(p.linear(h, b.matrix(f"ffn_up{which}", self.hidden, self.embedding)), "silu")
        h = p.linear(h, b.matrix(f"ffn_down{which}", self.embedding, self.hidden))
        return self._norm(p, b, f"ffn_post_norm{which}", h, 0.5)

    def _attention(self, p: Builder, b: Tensors, x: Value) -> Value:
        width = self.embedding
        a = self._norm(p, b, "attn_pre_norm", x)
        q, k, v = (
            p.heads(p.linear(a, b.matrix(f"attn_{s}", width, width)), self.heads) for s in "qkv"
        )
        scale = b.vector("per_dim_scale", self.head) * (self.head**-0.5 / math.log(2))
        q, k = p.mul(q, scale), p.mul(k, math.log(1 + math.e) / math.log(2))
        rel = b.vector("attn_k_rel", width, width)
        rel = (self.distances @ rel.T).reshape(CONTEXT, self.heads, self.head)
        o = p.attend(q, k, v, scale=1.0, back=CONTEXT - 1, rel=rel, softcap=CAP)
        o = p.linear(p.flat(o), b.matrix("attn_out", width, width))
        return self._norm(p, b, "attn_post_norm", o)

    @property
    def distances(self) -> np.ndarray:
        """(CONTEXT, embedding) f32: the embedding of each distance back, sines then cosines."""
        half = self.embedding // 2
        by = np.exp(-np.arange(half) * (math.log(10000.0) / max(half - 1, 1)))
        angle = np.arange(CONTEXT)[:, None] * by
        return np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)

    def _convolution(self, p: Builder, b: Tensors, x: Value) -> Value:
        width = self.embedding
        c = p.linear(self._norm(p, b, "conv_norm", x), b.matrix("conv_pw1", 2 * width, width))
        first, second = p.split(c, (width, width))
        c = p.gate(second, first, "sigmoid")
        kernel = b.vector("conv_dw", width, TAPS)
        c = p.conv1d(c, kernel[:, None], groups=width)
        c = p.unary(self._norm(p, b, "norm_conv", c), "silu")
        return p.linear(c, b.matrix("conv_pw2", width, width))

    def pieces(self, medium: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
        for samples in self.cut(medium):
            mel = self.mel(samples)
            if len(mel):
                yield {"mel": mel}


class Gemma4Wave(Recordings):
    """GGUF's ``gemma4ua``: frames of the wave, normed and projected."""

    def write(self, p: Builder, w: Tensors) -> Value:
        matrix = w.linear("mm.a.input_projection")
        self.frame = matrix.width
        x = p.input("frames", (p.axis("f", -(-PIECE // self.frame)), self.frame))
        return p.linear(
            p.rms_norm(x, None, EPS), w.matrix("mm.a.input_projection", self.out, self.frame)
        )

    def pieces(self, medium: np.ndarray) -> Iterator[Mapping[str, np.ndarray]]:
        for samples in self.cut(medium):
            count = -(-len(samples) // self.frame)
            frames = np.zeros(count * self.frame, np.float32)
            frames[: len(samples)] = samples
            yield {"frames": frames.reshape(count, self.frame)}
