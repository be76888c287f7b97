"""The forward pass of Gemma 3: norms around both halves of a block, most see a window only."""

from functools import cached_property

from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.values import Value
from golem_core.model import Decoder, RopeScaling, Tensors
from golem_plugins.gemma3.template import TEMPLATE

PERIOD = 6  # every sixth block sees everything, where the file does not say otherwise
BLOCKS_OF_27B = 62


class Gemma3(Decoder):
    """GGUF's ``gemma3``. Norm weights hold Gemma's 1 + w already."""

    template = TEMPLATE

    def read(self) -> None:
        hyper, key = self.hyper, "attention.sliding_window_pattern"
        self.span = hyper.integer("attention.sliding_window", 0, low=0, high=1 << 30)
        if hyper.is_array(key):
            sliding = hyper.flags(key, self.blocks)
        else:
            period = hyper.integer(key, PERIOD, low=0)
            sliding = tuple(period == 0 or (i + 1) % period != 0 for i in range(self.blocks))
        self.sliding = sliding if self.span else (False,) * self.blocks
        self.cap = hyper.number("final_logit_softcapping", 0.0, low=0.0)

    def window(self, block: int) -> int | None:
        return self.span if self.sliding[block] else None

    @cached_property
    def rope_of_window(self) -> Rope:
        """The angles of sliding blocks: a base of their own, never stretched."""
        base = self.hyper.number("rope.freq_base_swa", 10000.0, low=2.0)
        return RopeScaling().rope(self.rotated, base, self.pairing)

    @property
    def scale(self) -> float:
        if self.blocks == BLOCKS_OF_27B:
            return (self.width / self.heads[0]) ** -0.5
        return self.head_size**-0.5

    def write(self, p: Builder, w: Tensors) -> Value:
        x = self.embed(p, w, scale=self.width**0.5)
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                q, k, v = self.qkv(p, b, self.norm(p, b, "attn_norm", x), i)
                q, k = (self.norm(p, b, f"attn_{s}_norm", t) for s, t in (("q", q), ("k", k)))
                angles = self.rope_of_window if self.sliding[i] else self.rope
                q, k = (p.rope(t, p.positions, angles) for t in (q, k))
                y = self.attention(p, b, i, q, k, v)
                x = p.add(x, self.norm(p, b, "post_attention_norm", y))
                y = self.feed_forward(p, b, self.norm(p, b, "ffn_norm", x), i, act="gelu_tanh")
                x = p.add(x, self.norm(p, b, "post_ffw_norm", y))
                self.tap(p, i, x)
        logits = self.head(p, w, x)
        return p.softcap(logits, self.cap) if self.cap else logits
