"""An architecture: Llama with its two halves of a block side by side instead of in turn."""

from golem_core.graph.builder import Builder
from golem_core.graph.values import Value
from golem_core.model import Decoder, Tensors

TEMPLATE = """\
{%- for m in messages -%}
{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


class ParallelLlama(Decoder):
    """``x + attention(norm(x)) + feed_forward(norm(x))``, one norm for both."""

    pairing = "adjacent"
    template = TEMPLATE

    def write(self, p: Builder, w: Tensors) -> Value:
        x = self.embed(p, w)
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                h = self.norm(p, b, "attn_norm", x)
                q, k, v = self.qkv(p, b, h, i)
                q, k = (p.rope(t, p.positions, self.rope) for t in (q, k))
                halves = p.add(self.attention(p, b, i, q, k, v), self.feed_forward(p, b, h, i))
                x = p.add(x, halves)
        return self.head(p, w, x)
