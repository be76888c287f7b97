"""The forward pass of Gemma 4: every size is read from its header, none is known by name.

Sliding and full blocks have heads of different sizes. The last blocks of the small sizes own no
keys and values: they attend over those of an earlier block of their kind. Full blocks of the large
sizes have no value projection: their values are the keys before norm and angles. The small sizes
add an embedding of the token to every block, the mixture sums a dense branch and its experts.
"""

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.values import Value
from golem_core.model import Decoder, RopeScaling, Tensors
from golem_core.model.media import Marks, Tower
from golem_core.state.declare import Ring
from golem_core.text.template import ChatTemplate
from golem_plugins.gemma4.audio import Gemma4Audio, Gemma4Wave
from golem_plugins.gemma4.calls import Gemma4Calls
from golem_plugins.gemma4.template import TEMPLATE, WITH_EMPTY_THOUGHT, Gemma4Template
from golem_plugins.gemma4.vision import Gemma4Patches, Gemma4Vision


class Gemma4(Decoder):
    """GGUF's ``gemma4``. Norm weights are used as stored."""

    reasoning = ("<|channel>thought", "<channel|>")
    strays = ("<|channel>", "<channel|>")
    after_thought = ""
    call = Gemma4Calls()
    towers: ClassVar[dict[str, type[Tower]]] = {
        "gemma4v": Gemma4Vision,
        "gemma4uv": Gemma4Patches,
        "gemma4a": Gemma4Audio,
        "gemma4ua": Gemma4Wave,
    }
    marks: ClassVar[dict[str, Marks]] = {
        "image": Marks("<|image|>", "<|image>", "<image|>"),
        "audio": Marks("<|audio|>", "<|audio>", "<audio|>"),
    }

    def read(self) -> None:
        hyper = self.hyper
        self.span = hyper.integer("attention.sliding_window", high=1 << 30)
        self.sliding = hyper.flags("attention.sliding_window_pattern", self.blocks)
        self.window_head = hyper.integer("attention.key_length_swa", self.head_size)
        for key, size in (
            ("attention.value_length", self.head_size),
            ("attention.value_length_swa", self.window_head),
        ):
            if hyper.integer(key, size) != size:
                raise hyper.fail(key, f"the {size} of the keys")
        self.window_rotated = hyper.integer("rope.dimension_count_swa", self.window_head)
        if self.window_rotated > self.window_head or self.window_rotated % 2:
            raise hyper.fail(
                "rope.dimension_count_swa", f"an even number up to the head's {self.window_head}"
            )
        self.owned = self.blocks - hyper.integer("attention.shared_kv_layers", 0, low=0)
        self.owners = tuple(self._owner(i) for i in range(self.blocks))
        self.per_block = hyper.integer("embedding_length_per_layer_input", 0, low=0)
        self.both_ways = not self.per_block  # so were the sizes trained; no key says it
        self.cap = hyper.number("final_logit_softcapping", 0.0, low=0.0)

    def _owner(self, i: int) -> int:
        """The block whose keys and values block i attends over: itself, or the last of its kind."""
        if i < self.owned:
            return i
        for owner in range(self.owned - 1, -1, -1):
            if self.sliding[owner] == self.sliding[i]:
                return owner
        kind = "sliding" if self.sliding[i] else "full"
        raise self.hyper.fail(
            "attention.shared_kv_layers", f"fewer, so that block {i} finds a {kind} one to share,"
        )

    def fallback_template(self) -> str:
        return TEMPLATE if self.per_block else WITH_EMPTY_THOUGHT

    def chat_template(self, source: str, **texts: str) -> ChatTemplate:
        return Gemma4Template(source, **texts)

    def window(self, block: int) -> int | None:
        return self.span if self.sliding[block] else None

    def head_of(self, block: int) -> int:
        """Elements of one head of the block."""
        return self.window_head if self.sliding[block] else self.head_size

    @cached_property
    def rope_of_window(self) -> Rope:
        """The angles of sliding blocks: a base of their own, never stretched."""
        base = self.hyper.number("rope.freq_base_swa", 10000.0, low=2.0)
        return RopeScaling().rope(self.window_rotated, base, self.pairing)

    @property
    def scale(self) -> float:
        return 1.0  # the norms of queries and keys have learned it

    def ring(self, p: Builder, i: int) -> Ring:
        return p.ring(f"kv.{i}", self.kv_heads[i], self.head_of(i), window=self.window(i))

    # ---- the pass

    def write(self, p: Builder, w: Tensors) -> Value:
        x = self.embed(p, w, scale=self.width**0.5)
        extra = self._block_inputs(p, w, x) if self.per_block else None
        rings: dict[int, Ring] = {}
        for i in range(self.blocks):
            with self.block(p, w, i) as b:
                y = self._attention(p, b, i, self.norm(p, b, "attn_norm", x), rings)
                x = p.add(x, self.norm(p, b, "post_attention_norm", y))
                y = self._feed_forward(p, b, i, x)
                x = p.add(x, self.norm(p, b, "post_ffw_norm", y))
                if extra is not None:
                    x = p.add(x, self._of_token(p, b, x, extra[i]))
                if "layer_output_scale" in b:
                    x = p.mul(x, b.vector("layer_output_scale", 1))
                self.tap(p, i, x)
        logits = self.head(p, w, x)
        return p.softcap(logits, self.cap) if self.cap else logits

    def _attention(self, p: Builder, b: Tensors, i: int, x: Value, rings: dict[int, Ring]) -> Value:
        """Attention of block i over the ring it owns or shares, and its output: (n, width)."""
        heads, size, owner = self.heads[i], self.head_of(i), self.owners[i]
        angles = self.rope_of_window if self.sliding[i] else self.rope
        q = p.heads(self.linear(p, b, "attn_q", x, heads * size), heads)
        q = p.rope(self.norm(p, b, "attn_q_norm", q), p.positions, angles)
        k = v = None
        if owner == i:
            rings[i] = self.ring(p, i)
            kv = self.kv_heads[i]
            raw = p.heads(self.linear(p, b, "attn_k", x, kv * size), kv)
            v = raw
            if "attn_v" in b:
                v = p.heads(self.linear(p, b, "attn_v", x, kv * size), kv)
            v = p.rms_norm(v, None, self.eps)
            k = p.rope(self.norm(p, b, "attn_k_norm", raw), p.positions, angles)
        until = self.until(p) if self.sliding[i] else None
        back = self.span - 1 if self.sliding[i] else None
        y = p.attend(q, k, v, rings[owner], scale=self.scale, back=back, until=until)
        return self.linear(p, b, "attn_output", p.flat(y), self.width)

    def _feed_forward(self, p: Builder, b: Tensors, i: int, x: Value) -> Value:
        """The dense branch, and the experts beside it where the block has a router."""
        hidden = self.feed_forward_widths[i]
        h = self.norm(p, b, "ffn_norm", x)
        gate, up = (self.linear(p, b, f"ffn_{s}", h, hidden) for s in ("gate", "up"))
        y = self.linear(p, b, "ffn_down", p.gate(gate, up, "gelu_tanh"), self.width)
        if "ffn_gate_inp" not in b:
            return y
        experts = self._experts(p, b, x)
        return p.add(
            self.norm(p, b, "post_ffw_norm_1", y), self.norm(p, b, "post_ffw_norm_2", experts)
        )

    def _experts(self, p: Builder, b: Tensors, x: Value) -> Value:
        """The chosen experts' sum. The router sees a norm of its own, scaled per element."""
        if not self.experts_used:
            raise self.hyper.fail("expert_used_count", "1 to the expert_count")
        count, hidden, width = self.experts, self.expert_width, self.width
        scale = b.vector("ffn_gate_inp.scale", width) * width**-0.5
        # The files name these scales as a product's own; they belong to the input and the weights.
        router = replace(b.matrix("ffn_gate_inp", count, width), scale=None)
        logits = p.linear(p.rms_norm(x, scale, self.eps), router)
        per_expert = None
        if "ffn_down_exps.scale" in b:
            per_expert = b.vector("ffn_down_exps.scale", count)
        chosen, weights = p.route(
            logits, self.experts_used, normalise=True, expert_scale=per_expert
        )
        h = self.norm(p, b, "pre_ffw_norm_2", x)
        if "ffn_gate_up_exps" in b:
            both = b.matrix("ffn_gate_up_exps", count, 2 * hidden, width)
            parts = both.rows(0, hidden), both.rows(hidden, 2 * hidden)
        else:
            parts = tuple(b.matrix(f"ffn_{s}_exps", count, hidden, width) for s in ("gate", "up"))
        gate, up = (p.linear_by_expert(h, part, chosen) for part in parts)
        down = replace(b.matrix("ffn_down_exps", count, width, hidden), scale=None)
        y = p.linear_by_expert(p.gate(gate, up, "gelu_tanh"), down, chosen)
        return p.combine(y, weights)

    # ---- what a token brings to every block

    def _block_inputs(self, p: Builder, w: Tensors, x: Value) -> list[Value]:
        """(n, per_block) for each block: the token's own embedding and what x says of it.

        A media column's token is the padding, whose row is what the model was trained to see there.
        The blocks that own keys are apart from those that share them: the latter's are needed of
        scored columns only.
        """
        size, wide = self.per_block, self.blocks * self.per_block
        table = w.matrix("per_layer_token_embd", self.vocabulary, wide)
        said = w.matrix("per_layer_model_proj", wide, self.width)
        norm = w.vector("per_layer_proj_norm", size)
        found: list[Value] = []
        for first, last in ((0, self.owned), (self.owned, self.blocks)):
            if first < last:
                part = slice(first * size, last * size)
                # (rms(said / sqrt(width)) · norm + own · sqrt(size)) / sqrt(2), factors moved
                own = p.rows(
                    table.columns(part.start, part.stop), p.tokens, scale=(size / 2) ** 0.5
                )
                y = p.heads(p.linear(x, said.rows(part.start, part.stop)), last - first)
                y = p.rms_norm(y, norm * 2**-0.5, self.eps * self.width)
                y = p.flat(p.add(y, p.heads(own, last - first)))
                found += p.split(y, [size] * (last - first))
        return found

    def _of_token(self, p: Builder, b: Tensors, x: Value, extra: Value) -> Value:
        gate = p.unary(self.linear(p, b, "inp_gate", x, self.per_block), "gelu_tanh")
        return self.norm(
            p, b, "post_norm", self.linear(p, b, "proj", p.mul(gate, extra), self.width)
        )
