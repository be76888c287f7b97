"""The forward pass of the gated delta nets: Qwen3.5 and its successors, and Qwen3-Next.

Most blocks keep a matrix a head instead of keys and values: a short convolution over the columns,
then the delta rule. Every few blocks attend over everything, with a gate on what they found. Which
a block is, its tensors say. A file may have one more block that guesses the token after the next:
from what the last block made of a token, and from the embedding of the token drawn for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.values import Value
from golem_core.graph.weights import Weight
from golem_core.model import Decoder, Tensors
from golem_core.model.media import Marks
from golem_core.text.tagged_calls import TaggedCalls
from golem_plugins.qwen35.template import QWEN35, QWEN38
from golem_plugins.qwen35.vision import Qwen35Vision


class Qwen35(Decoder):
    """GGUF's ``qwen35`` and ``qwen35moe``. Norm weights are used as stored."""

    reasoning = ("<think>", "</think>")
    call = TaggedCalls()
    efforts = MappingProxyType({"minimal": "low", "high": "xhigh"})
    towers = MappingProxyType({"qwen3vl_merger": Qwen35Vision})
    marks = MappingProxyType({"image": Marks("<|image_pad|>")})  # the template writes the others
    value_heads = "tiled"  # how the converter ordered them: value head h reads key head h mod NK

    def read(self) -> None:
        hyper = self.hyper
        self.taps = hyper.integer("ssm.conv_kernel", high=64)
        self.state_size = hyper.integer("ssm.state_size", high=4096)
        self.delta_keys = hyper.integer("ssm.group_count", high=4096)
        self.delta_values = hyper.integer("ssm.time_step_rank", high=4096)
        if self.delta_values % self.delta_keys:
            raise hyper.fail("ssm.time_step_rank", f"a multiple of the {self.delta_keys} groups")
        self.inner = self.delta_values * self.state_size
        if hyper.integer("ssm.inner_size", self.inner) != self.inner:
            raise hyper.fail("ssm.inner_size", f"the {self.inner} of its heads")
        self.attention_scale = hyper.number("attention.scale", 0.0, low=0.0)
        if self.predicts:  # its block has numbers of its own where the header gives one for each
            every = self.blocks + 1
            self.heads = hyper.integers("attention.head_count", every)
            self.kv_heads = hyper.integers("attention.head_count_kv", every, self.heads)
            if self.heads[-1] % self.kv_heads[-1]:
                raise hyper.fail("attention.head_count_kv", f"a divisor of {self.heads[-1]} heads")

    def fallback_template(self) -> str:
        return QWEN38 if self.architecture == "qwen3.8" else QWEN35

    @property
    def predicts(self) -> bool:
        return self.prediction_blocks > 0 and "nextn.eh_proj" in self.tensors.block(self.blocks)

    @cached_property
    def feed_forward_widths(self) -> tuple[int, ...]:
        return self.hyper.integers("feed_forward_length", self.blocks + self.predicts)

    @property
    def scale(self) -> float:
        return self.attention_scale or super().scale

    @property
    def mixed(self) -> int:
        """Channels of the convolution: queries, keys and values of a delta net."""
        return 2 * self.delta_keys * self.state_size + self.inner

    @cached_property
    def rope(self) -> Rope:
        """Angles of three positions once a projector is open: time, row and column in turn."""
        plain = super().rope
        if not self.sees or "rope.dimension_sections" not in self.hyper:
            return plain
        _, rows, columns = self.hyper.integers("rope.dimension_sections", 3, low=0)
        pair = np.arange(len(plain.freq))
        axis = np.where((pair % 3 == 1) & (pair < 3 * rows), 1, 0)
        axis[(pair % 3 == 2) & (pair < 3 * columns)] = 2
        return replace(plain, axis=axis.astype(np.int32))

    def positions(self, p: Builder) -> Value:
        """(n,), or (n, 3) once a projector is open."""
        return (
            p.positions if self.rope.axis is None else p.input("positions", (p.columns, 3), "i32")
        )

    # ---- the pass

    def write(self, p: Builder, w: Tensors) -> Value:
        x = embedded = self.embed(p, w)
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                x = self._block(p, b, i, x)
                self.tap(p, i, x)
        if self.predicting:
            self._remember(p, w, embedded, x)
        return self.head(p, w, x)

    def _block(self, p: Builder, b: Tensors, i: int, x: Value) -> Value:
        h = self.norm(p, b, "attn_norm", x)
        mix = self._delta if "ssm_out" in b else self._attend
        x = p.add(x, mix(p, b, i, h))
        h = self.norm(p, b, "post_attention_norm", x)
        return p.add(x, self._feed_forward(p, b, i, h))

    def _attend(self, p: Builder, b: Tensors, i: int, x: Value) -> Value:
        """Attention whose result is gated: every query head comes with a gate of its size."""
        heads, kv, size = self.heads[i], self.kv_heads[i], self.head_size
        both = p.heads(self.linear(p, b, "attn_q", x, 2 * heads * size), heads)
        q, gate = p.split(both, (size, size))
        k = p.heads(self.linear(p, b, "attn_k", x, kv * size), kv)
        v = p.heads(self.linear(p, b, "attn_v", x, kv * self.value_size), kv)
        at = self.positions(p)
        q, k = (
            p.rope(self.norm(p, b, f"attn_{s}_norm", t), at, self.rope)
            for s, t in (("q", q), ("k", k))
        )
        y = p.attend(q, k, v, self.ring(p, i), scale=self.scale)
        y = p.flat(p.gate(gate, y, "sigmoid"))
        return self.linear(p, b, "attn_output", y, self.width)

    def _delta(self, p: Builder, b: Tensors, i: int, x: Value) -> Value:
        """The delta net of a block: convolution, recurrence, a norm gated by z."""
        keys, values, size = self.delta_keys, self.delta_values, self.state_size
        u, z, beta, alpha = self._projections(p, b, x)
        beta = p.unary(beta, "sigmoid")
        decay = p.mul(p.unary(alpha, "softplus"), b.vector("ssm_a", values))
        kernel = b.vector("ssm_conv1d", self.mixed, self.taps)[:, None]
        u = p.conv1d(u, kernel, window=f"conv.{i}", groups=self.mixed)
        parts = p.split(p.unary(u, "silu"), (keys * size, keys * size, self.inner))
        q, k, v = (p.heads(t, m) for t, m in zip(parts, (keys, keys, values), strict=True))
        q, k = (p.rms_norm(t, self._unit, self.eps / size) for t in (q, k))
        options = {"scale": size**-0.5, "heads": self.value_heads}
        y = p.delta_rule(q, k, v, decay, beta, f"delta.{i}", **options)
        y = p.gate(p.heads(z, values), self.norm(p, b, "ssm_norm", y), "silu")
        return self.linear(p, b, "ssm_out", p.flat(y), self.width)

    @cached_property
    def _unit(self) -> np.ndarray:
        """What makes a normed head of length 1."""
        return np.full(self.state_size, self.state_size**-0.5, np.float32)

    def _projections(self, p: Builder, b: Tensors, x: Value) -> tuple[Value, ...]:
        """What the convolution takes (n, channels), z (n, inner), beta and alpha (n, heads)."""
        values = self.delta_values
        bias = b.vector("ssm_dt.bias", values)
        alpha = replace(b.matrix("ssm_alpha", values, self.width), bias=bias)
        return (
            self.linear(p, b, "attn_qkv", x, self.mixed),
            self.linear(p, b, "attn_gate", x, self.inner),
            self.linear(p, b, "ssm_beta", x, values),
            p.linear(x, alpha),
        )

    # ---- guessing ahead (Qwen3.5's and Qwen3-Next's mtp, "nextn" in GGUF)

    def predict(self, p: Builder, w: Tensors) -> Value:
        hidden = p.input("hidden", (p.columns, self.width))
        with self.block(p, w, self.blocks) as b:
            embedded = p.rows(self._prediction_table(w, b), p.tokens)
            x = self._block(p, b, self.blocks, self._pair(p, b, embedded, hidden))
            own = "nextn.shared_head_norm" in b
            h = self.norm(p, *((b, "nextn.shared_head_norm") if own else (w, "output_norm")), x)
            p.output("hidden", h)
            if "nextn.shared_head_head" in b:
                return self.linear(p, b, "nextn.shared_head_head", h, self.vocabulary)
        table = w.matrix("output", self.vocabulary, self.width, tied="token_embd")
        return p.linear(h, table)

    def _remember(self, p: Builder, w: Tensors, embedded: Value, x: Value) -> None:
        """Keys and values of the prediction block for every column, each with what the model
        made of the column before it; zeros stand before a conversation's first."""
        hidden = self.norm(p, w, "output_norm", x)
        shift = np.tile(np.float32([1, 0]), (self.width, 1, 1))
        before = p.conv1d(hidden, shift, window="nextn.hidden", groups=self.width)
        with self.block(p, w, self.blocks) as b:
            if "nextn.embed_tokens" in b:
                embedded = p.rows(self._prediction_table(w, b), p.tokens)
                if self.sees:
                    embedded = p.overlay(embedded, p.embeddings(self.width), p.place)
            x = self._pair(p, b, embedded, before)
            self._attend(p, b, self.blocks, self.norm(p, b, "attn_norm", x))

    def _prediction_table(self, w: Tensors, b: Tensors) -> Weight:
        shape = self.vocabulary, self.width
        if "nextn.embed_tokens" in b:
            return b.matrix("nextn.embed_tokens", *shape)
        return w.matrix("token_embd", *shape)

    def _pair(self, p: Builder, b: Tensors, embedded: Value, hidden: Value) -> Value:
        """(n, width): a token's embedding, and what the model made of the token before it."""
        both = (
            self.norm(p, b, "nextn.enorm", embedded),
            self.norm(p, b, "nextn.hnorm", hidden),
        )
        return self.linear(p, b, "nextn.eh_proj", p.concat(both), self.width)

    def _feed_forward(self, p: Builder, b: Tensors, i: int, x: Value) -> Value:
        """The dense branch, or the routed experts and the one all columns share, gated."""
        routed = self.feed_forward(p, b, x, i)
        if "ffn_gate_inp" not in b or "ffn_down_shexp" not in b:
            return routed
        hidden = self.hyper.integer("expert_shared_feed_forward_length", self.expert_width)
        gate, up = (self.linear(p, b, f"ffn_{s}_shexp", x, hidden) for s in ("gate", "up"))
        shared = self.linear(p, b, "ffn_down_shexp", p.gate(gate, up, "silu"), self.width)
        wanted = p.unary(p.linear(x, _row(b, "ffn_gate_inp_shexp", self.width)), "sigmoid")
        return p.add(routed, p.mul(shared, wanted))


class Qwen3Next(Qwen35):
    """GGUF's ``qwen3next``: a key head's value heads lie together, beta and alpha in one matrix."""

    value_heads = "grouped"

    def _projections(self, p: Builder, b: Tensors, x: Value) -> tuple[Value, ...]:
        keys, values, size = self.delta_keys, self.delta_values, self.state_size
        share = values // keys
        if "ssm_in" in b:
            # One matrix for all: of each key head its query, key, values and gates.
            every = b.matrix("ssm_in", self.mixed + self.inner, self.width)
            parts = _of_heads(keys, (size, size, share * size, share * size))
            u = p.linear(x, every.permute_rows(np.concatenate(parts[:3])))
            z = p.linear(x, every.permute_rows(parts[3]))
        else:
            u = self.linear(p, b, "attn_qkv", x, self.mixed)
            z = self.linear(p, b, "attn_gate", x, self.inner)
        both = b.matrix("ssm_ba", 2 * values, self.width)
        beta, alpha = (both.permute_rows(rows) for rows in _of_heads(keys, (share, share)))
        alpha = replace(alpha, bias=b.vector("ssm_dt.bias", values))
        return u, z, p.linear(x, beta), p.linear(x, alpha)


def _of_heads(heads: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Row numbers of each part where every head's parts, of these sizes, follow each other."""
    ends = np.cumsum(sizes)
    head = np.arange(heads)[:, None] * ends[-1]
    return [
        (head + np.arange(end - size, end)).reshape(-1)
        for end, size in zip(ends, sizes, strict=True)
    ]


def _row(b: Tensors, name: str, width: int) -> Weight:
    """A vector of the file as a matrix of one row."""
    row = np.ascontiguousarray(b[name], np.float32).reshape(1, -1)
    if row.shape != (1, width):
        b.vector(name, width)  # says what is wrong with it
    return Weight.of(f"{b.prefix}{name}", row)
