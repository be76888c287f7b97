"""BERT: learnt positions, norms after each half of a block, exact GELU.

Keys and tensors are those that llama.cpp's converter writes; it leaves out the pooler, so a text's
vector is its [CLS] row, or the mean of its rows, as the key ``pooling_type`` says.
"""

from golem_core.graph.builder import Builder
from golem_core.graph.values import Value
from golem_core.model.encoder import Encoder
from golem_core.model.tensors import Tensors


class Bert(Encoder):
    """``bert``: any checkpoint with BERT's tensors, RoBERTa's among them."""

    default_pooling = "cls"

    def write(self, p: Builder, w: Tensors) -> Value:
        places = w.matrix("position_embd", self.context_length, self.width)
        x = self.norm(p, w, "token_embd_norm", p.add(self.embed(p, w), p.rows(places, p.positions)))
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                a = self.attention(p, b, *self.qkv(p, b, x))
                x = self.norm(p, b, "attn_output_norm", p.add(a, x))
                x = self.norm(p, b, "layer_output_norm", p.add(self.feed_forward(p, b, x), x))
        return x
