"""Nomic's BERTs: rotary positions; gated feed-forwards (v1.5), or every second one a mixture (v2).

v2 has eight experts without biases; a token takes two, weighted by their probabilities, which are
not normalised to a sum of 1. The GELU is the tanh form, which every server of these files computes.
"""

from golem_core.graph.builder import Builder
from golem_core.graph.values import Value
from golem_core.model.encoder import Encoder
from golem_core.model.tensors import Tensors


class Nomic(Encoder):
    """``nomic-bert``: SwiGLU in every block."""

    activation = "silu"
    gated = True

    def write(self, p: Builder, w: Tensors) -> Value:
        x = self.norm(p, w, "token_embd_norm", self.embed(p, w))
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                q, k, v = self.qkv(p, b, x)
                q, k = (p.rope(t, p.positions, self.rope) for t in (q, k))
                x = self.norm(p, b, "attn_output_norm", p.add(self.attention(p, b, q, k, v), x))
                x = self.norm(p, b, "layer_output_norm", p.add(self.feed_forward(p, b, x), x))
        return x


class NomicMoe(Nomic):
    """``nomic-bert-moe``: block i is a mixture where i mod ``moe_every_n_layers`` is 1."""

    activation = "gelu_tanh"
    gated = False

    TRAINED = 512  # tokens; files of an older converter promise the 2048 of the config

    def read(self) -> None:
        self.context_length = min(self.context_length, self.TRAINED)
