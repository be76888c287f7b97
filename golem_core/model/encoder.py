"""The base of every embedding architecture: what an encoder reads from its file, and its program.

A plugin subclasses ``Encoder`` and writes its blocks in ``write``; the numbers of the header, the
packed attention, the norms, both kinds of feed-forward and the pooling are here. A pass holds the
tokens of several texts one after the other, without padding: ``offsets`` says where each begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.program import Program
from golem_core.graph.values import Value
from golem_core.model.errors import ModelError
from golem_core.model.hyper import MAX_BLOCKS, Hyper
from golem_core.model.tensors import Tensors

POOLINGS = ("none", "mean", "cls", "last", "rank")  # by the number of the key pooling_type
LONGEST_TEXT = 1 << 20


def read_pooling(hyper: Hyper, default: str) -> str:
    """How a file makes one vector of a text's rows: one of POOLINGS, default where it is silent.

    Raises ModelError.
    """
    number = hyper.integer("pooling_type", -1, low=-1, high=len(POOLINGS) - 1)
    return default if number < 0 else POOLINGS[number]


class Encoder:
    """One file of one embedding architecture, before it is executed.

    Class attributes a plugin sets: ``activation`` of the feed-forward, ``gated`` whether it is
    ``down(act(gate x) · up x)``, ``pooling`` for files that do not say. Raises ModelError for a
    header that does not fit.
    """

    activation: ClassVar[str] = "gelu_erf"
    gated: ClassVar[bool] = False
    default_pooling: ClassVar[str] = "mean"

    def __init__(self, file: GGUF):
        self.file = file
        self.architecture = file.architecture
        hyper = self.hyper = Hyper(file.metadata, file.architecture, str(file.path))
        if hyper.flag("attention.causal", False):
            raise hyper.fail("attention.causal", "false: these encoders look both ways, so that")
        self.context_length = hyper.integer("context_length", high=LONGEST_TEXT)
        self.width = hyper.integer("embedding_length")
        self.blocks = hyper.integer("block_count", high=MAX_BLOCKS)
        self.heads = hyper.integer("attention.head_count")
        if self.width % self.heads:
            raise hyper.fail("attention.head_count", f"a divisor of the width {self.width}")
        self.head_size = self.width // self.heads
        self.eps = hyper.number("attention.layer_norm_epsilon", low=0.0)
        self.hidden = hyper.integer("feed_forward_length")
        self.experts = hyper.integer("expert_count", 0, low=0)
        self.experts_used = hyper.integer("expert_used_count", 0, low=0, high=self.experts)
        self.pooling = read_pooling(hyper, self.default_pooling)
        self.tensors = Tensors(file.tensors)
        self.read()

    # ---- what a plugin overrides

    def read(self) -> None:
        """Reads what only this architecture has; called last by the constructor."""

    def write(self, p: Builder, w: Tensors) -> Value:
        """Writes the forward pass. -> (n, width): one row for every token of the pass."""
        raise NotImplementedError(f"{type(self).__name__}.write")

    # ---- what the parts of a block have in common

    @cached_property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        return self.tensors.rows("token_embd")

    @cached_property
    def rope(self) -> Rope:
        """Angles over the whole head."""
        return Rope.of(self.head_size, self.hyper.number("rope.freq_base", 10000.0, low=2.0))

    @contextmanager
    def block(self, p: Builder, w: Tensors, i: int) -> Iterator[Tensors]:
        """The tensors of block i; what is written inside is named after it."""
        with p.scope(f"blk.{i}"):
            yield w.block(i)

    def embed(self, p: Builder, w: Tensors) -> Value:
        """(n, width): rows of the embedding plus the first row of the token types."""
        x = p.rows(w.matrix("token_embd", self.vocabulary, self.width), p.tokens)
        if "token_types" in w:
            x = p.add(x, np.ascontiguousarray(self._token_types(w)[0]))
        return x

    def _token_types(self, w: Tensors) -> np.ndarray:
        types = w["token_types"]
        if types.ndim != 2 or types.shape[0] < 1 or types.shape[1] != self.width:
            raise ModelError(
                f"{self.hyper.file}: tensor token_types.weight has the shape {types.shape}; "
                f"rows of {self.width} are expected"
            )
        return types

    def norm(self, p: Builder, b: Tensors, name: str, x: Value) -> Value:
        """Layer norm by the tensors of that name."""
        size = x.shape[-1]
        bias = b.vector(f"{name}.bias", size) if f"{name}.bias" in b else None
        return p.layer_norm(x, b.vector(name, size), bias, self.eps)

    def qkv(self, p: Builder, b: Tensors, x: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values (n, heads, head size), fused in the file or not."""
        width = self.width
        if "attn_qkv" in b:
            parts = p.split(p.linear(x, b.matrix("attn_qkv", 3 * width, width)), [width] * 3)
        else:
            parts = tuple(p.linear(x, b.matrix(f"attn_{s}", width, width)) for s in "qkv")
        q, k, v = (p.heads(part, self.heads) for part in parts)
        return q, k, v

    def attention(self, p: Builder, b: Tensors, q: Value, k: Value, v: Value) -> Value:
        """Every token of a text looks at all of that text: (n, width)."""
        scale = self.head_size**-0.5
        o = p.attend(q, k, v, scale=scale, ahead=None, offsets=p.offsets)
        return p.linear(p.flat(o), b.matrix("attn_output", self.width, self.width))

    def feed_forward(self, p: Builder, b: Tensors, x: Value) -> Value:
        """down(act(up x)), gated or by experts where the block is."""
        if "ffn_gate_inp" in b:
            return self._mixture(p, b, x)
        up = p.linear(x, b.matrix("ffn_up", self.hidden, self.width))
        if self.gated:
            gate = p.linear(x, b.matrix("ffn_gate", self.hidden, self.width))
            made = p.gate(gate, up, self.activation)
        else:
            made = p.unary(up, self.activation)
        return p.linear(made, b.matrix("ffn_down", self.width, self.hidden))

    def _mixture(self, p: Builder, b: Tensors, x: Value) -> Value:
        """The likeliest experts of each token, weighted by their probabilities as they are."""
        count, width, hidden = self.experts, self.width, self.hidden
        if not self.experts_used:
            raise self.hyper.fail("expert_used_count", "1 to the expert_count")
        logits = p.linear(x, b.matrix("ffn_gate_inp", count, width))
        chosen, weights = p.route(logits, self.experts_used, normalise=False)
        up = p.linear_by_expert(x, b.matrix("ffn_up_exps", count, hidden, width), chosen)
        down = b.matrix("ffn_down_exps", count, width, hidden)
        y = p.linear_by_expert(p.unary(up, self.activation), down, chosen)
        return p.combine(y, weights)

    # ---- the program

    def program(self, columns: int, texts: int) -> Program:
        """The program for passes of at most that many tokens, of that many texts.

        Inputs: tokens, positions (n,), offsets (s + 1,); picked (s,), the row of each text that
        stands for it, where the pooling takes one. Outputs: rows (n, width); vectors (s, width),
        and scores (s, labels) where the file ranks.
        """
        p = Builder(self.architecture)
        p.axis("n", columns)
        p.axis("s", texts)
        rows = self.write(p, self.tensors)
        p.output("rows", rows)
        if self.pooling == "mean":
            p.output("vectors", p.pool(rows, p.offsets))
        elif self.pooling != "none":
            vectors = p.pick(rows, p.picked)
            p.output("vectors", vectors)
            if self.pooling == "rank":
                p.output("scores", self._scores(p, self.tensors, vectors))
        return p.build()

    def _scores(self, p: Builder, w: Tensors, x: Value) -> Value:
        """The classification head: out(tanh(dense x)); either part may be missing."""
        if "cls" not in w and "cls.output" not in w:
            raise ModelError(
                f"{self.hyper.file}: pooling_type says that this file ranks, and it has neither "
                "cls.weight nor cls.output.weight"
            )
        with p.scope("cls"):
            if "cls" in w:
                x = p.unary(p.linear(x, w.matrix("cls", self.width, self.width)), "tanh")
            if "cls.output" in w:
                x = p.linear(x, w.linear("cls.output"))
        return x
