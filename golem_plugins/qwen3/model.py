"""The forward pass of Qwen3: as Llama, with a norm on each query and key head before the angles."""

from golem_core.graph.builder import Builder
from golem_core.graph.values import Value
from golem_core.model import Decoder, Tensors
from golem_core.text.tagged_calls import QwenCalls
from golem_plugins.qwen3.template import TEMPLATE


class Qwen3(Decoder):
    """GGUF's ``qwen3``: halved rotary pairs over a head that is wider than width / heads."""

    template = TEMPLATE
    reasoning = ("<think>", "</think>")
    call = QwenCalls()

    def write(self, p: Builder, w: Tensors) -> Value:
        x = self.embed(p, w)
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                q, k, v = self.qkv(p, b, self.norm(p, b, "attn_norm", x), i)
                q, k = (self.norm(p, b, f"attn_{s}_norm", t) for s, t in (("q", q), ("k", k)))
                q, k = (p.rope(t, p.positions, self.rope) for t in (q, k))
                x = p.add(x, self.attention(p, b, i, q, k, v))
                x = p.add(x, self.feed_forward(p, b, self.norm(p, b, "ffn_norm", x), i))
                self.tap(p, i, x)
        return self.head(p, w, x)


class Qwen3Moe(Qwen3):
    """GGUF's ``qwen3moe``: the feed-forward is the weighted sum of a few experts."""

    @property
    def expert_width(self) -> int:
        width = self.hyper.integer("expert_feed_forward_length", None)
        return width or max(self.feed_forward_widths[0] // max(self.experts_used, 1), 1)
