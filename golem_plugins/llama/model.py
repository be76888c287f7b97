"""The forward pass of Llama: pre-norm blocks, adjacent rotary pairs, SwiGLU or experts."""

import re

from golem_core.graph.builder import Builder
from golem_core.graph.values import Value
from golem_core.model import Decoder, Tensors
from golem_core.text.calls import CallFormat
from golem_core.text.object_calls import ObjectCalls
from golem_core.text.tagged_calls import QwenCalls
from golem_plugins.llama.templates import CHATML, LLAMA2, LLAMA3

_OBJECT, _TAGGED = ObjectCalls(), QwenCalls()


class Llama(Decoder):
    """GGUF's ``llama``. Biases, fused attn_qkv, rope_freqs and experts are used where present."""

    pairing = "adjacent"

    @property
    def scale(self) -> float:
        return self.hyper.number("attention.scale", 0.0) or self.head_size**-0.5

    def write(self, p: Builder, w: Tensors) -> Value:
        x = self.embed(p, w)
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                q, k, v = self.qkv(p, b, self.norm(p, b, "attn_norm", x), i)
                q, k = (p.rope(t, p.positions, self.rope) for t in (q, k))
                x = p.add(x, self.attention(p, b, i, q, k, v))
                x = p.add(x, self.feed_forward(p, b, self.norm(p, b, "ffn_norm", x), i))
                self.tap(p, i, x)
        return self.head(p, w, x)

    def call_format(self, template: str) -> CallFormat | None:
        """By what the template teaches: models of every kind have this architecture."""
        if not re.search(r"\btools\b", template):
            return None
        if "<tool_call>" in template:
            return _TAGGED
        taught = '"name": ' in template and '"parameters": ' in template
        return _OBJECT if taught else None

    def fallback_template(self) -> str:
        texts = self.hyper.metadata.get("tokenizer.ggml.tokens", ())
        if "<|im_start|>" in texts:
            return CHATML
        return LLAMA3 if "<|start_header_id|>" in texts else LLAMA2
