"""The base of every chat architecture: what a decoder-only transformer reads from its file.

A plugin subclasses ``Decoder``, says how its rotary pairs lie and writes its blocks in ``write``;
the numbers of the header, the rings, the angles, the embedding, the head and both kinds of
feed-forward are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.graph.builder import Builder
from golem_core.graph.ops import PEAK_CHUNK, Rope
from golem_core.graph.program import Program
from golem_core.graph.values import Value
from golem_core.model.errors import ModelError
from golem_core.model.hyper import MAX_BLOCKS, Hyper
from golem_core.model.media import Marks, Tower
from golem_core.model.rope import RopeScaling
from golem_core.model.rotations import rotations_of
from golem_core.model.tensors import Tensors
from golem_core.state.declare import Ring
from golem_core.text.calls import CallFormat
from golem_core.text.template import ChatTemplate

LONGEST_CONTEXT = (1 << 31) - 1


class Decoder:
    """One file of one architecture, before it is executed.

    Class attributes a plugin sets: ``pairing``, ``template``, ``reasoning``, ``call``; per-block
    numbers are tuples with one entry a block. Raises ModelError for a header that does not fit.
    """

    pairing: ClassVar[str] = "halves"  # how rotary pairs lie in a head: "halves" or "adjacent"
    template: ClassVar[str] = ""  # Jinja source for files that carry no chat template
    reasoning: ClassVar[tuple[str, str] | None] = None  # texts that open and close a thought
    strays: ClassVar[tuple[str, ...]] = ()  # marks that never leave, even where they mean nothing
    after_thought: ClassVar[str] = "\n\n"  # between a thought's mark and what is said then
    call: ClassVar[CallFormat | None] = None  # how it writes tool calls
    efforts: ClassVar[Mapping[str, str]] = {}  # words for efforts that its template has others for
    quantum: ClassVar[int] = 1  # a prompt that takes several passes is cut at multiples of it
    towers: ClassVar[Mapping[str, type[Tower]]] = {}  # by the projector type of a projector's file
    marks: ClassVar[Mapping[str, Marks]] = {}  # the texts around the rows of "image" and "audio"
    both_ways: bool = False  # columns of a picture see those after them, in blocks that say so
    sees: bool = False  # a projector is open: passes may carry rows in place of tokens
    predicting: bool = False  # passes also keep what the prediction block attends to

    def __init__(self, file: GGUF, *, scaling: dict[str, Any] | None = None):
        """scaling: the operator's words on angles: kind, factor, original, base (any left out)."""
        self.file = file
        self.architecture = file.architecture
        hyper = self.hyper = Hyper(file.metadata, file.architecture, str(file.path))
        if not hyper.flag("attention.causal", True):
            raise hyper.fail("attention.causal", "true: only causal models chat, so that")
        self.context_length = hyper.integer("context_length", high=LONGEST_CONTEXT)
        self.width = hyper.integer("embedding_length")
        self.prediction_blocks = hyper.integer("nextn_predict_layers", 0, low=0, high=MAX_BLOCKS)
        self.blocks = hyper.integer("block_count", high=MAX_BLOCKS) - self.prediction_blocks
        if self.blocks < 1:
            raise hyper.fail("nextn_predict_layers", "fewer than the block count")
        self._check_prediction_blocks()
        self.heads = hyper.integers("attention.head_count", self.blocks)
        self.kv_heads = hyper.integers("attention.head_count_kv", self.blocks, self.heads)
        for heads, kv_heads in zip(self.heads, self.kv_heads, strict=True):
            if heads % kv_heads:
                raise hyper.fail("attention.head_count_kv", f"a divisor of the {heads} heads")
        self.eps = hyper.number("attention.layer_norm_rms_epsilon", low=0.0)
        self.head_size = self._head_size("attention.key_length")
        self.value_size = self._head_size("attention.value_length")
        self.rotated = hyper.integer("rope.dimension_count", self.head_size)
        if self.rotated > self.head_size or self.rotated % 2:
            raise hyper.fail(
                "rope.dimension_count", f"an even number up to the head's {self.head_size}"
            )
        self.experts = hyper.integer("expert_count", 0, low=0)
        self.experts_used = hyper.integer("expert_used_count", 0, low=0, high=self.experts)
        asked = dict(scaling or {})
        self.rope_base = asked.pop("base", None) or hyper.number("rope.freq_base", 10000.0, low=2.0)
        self.scaling = RopeScaling.of(hyper, self.context_length).override(**asked)
        rotations = rotations_of(hyper, file.tensors)
        self.tensors = Tensors(file.tensors, rotations=rotations)
        self.packed = False  # write attention over whole texts of one pass instead of over rings
        self.read()

    def _check_prediction_blocks(self) -> None:
        """Raises ModelError where the tensors say otherwise than the header which blocks guess:
        a block more or less would pass unnoticed, and the model say something else."""
        parts = [name.split(".") for name in self.file.tensors if name.startswith("blk.")]
        guessing = {int(p[1]) for p in parts if p[2:3] == ["nextn"] and p[1].isdecimal()}
        for i in sorted(guessing):
            if i < self.blocks:
                least = self.blocks + self.prediction_blocks - i
                raise self.hyper.fail(
                    "nextn_predict_layers",
                    f"at least {least}, for block {i} has nextn.* tensors and so only predicts,",
                )
        there = {p[1] for p in parts}
        for i in range(self.blocks, self.blocks + self.prediction_blocks):
            if str(i) in there and i not in guessing:
                raise self.hyper.fail(
                    "nextn_predict_layers",
                    f"less, for block {i} has no nextn.* tensors and so does not predict; it",
                )

    def _head_size(self, key: str) -> int:
        if key not in self.hyper and self.width % self.heads[0]:
            raise self.hyper.fail(key, f"{self.heads[0]} heads do not divide {self.width}, so one")
        return self.hyper.integer(key, self.width // self.heads[0])

    # ---- what a plugin overrides

    def read(self) -> None:
        """Reads what only this architecture has; called last by the constructor."""

    @property
    def predicts(self) -> bool:
        """Whether ``predict`` can be written: the file has a block that guesses ahead."""
        return False

    def predict(self, p: Builder, w: Tensors) -> Value:
        """Writes what guesses the token after the next one. -> logits (n, vocabulary).

        Of a token that was drawn and not fed yet, ``p.tokens``, at its index, and the input
        "hidden" (n, width): what the head multiplied for it to be drawn. Names the output "hidden"
        (n, width), which stands for the next token in turn. The rings it reads are written by
        ``write`` where ``predicting`` is set.
        """
        raise NotImplementedError(f"{type(self).__name__}.predict")

    def write(self, p: Builder, w: Tensors) -> Value:
        """Writes the forward pass. -> logits (m, vocabulary) of the columns ``p.outputs``."""
        raise NotImplementedError(f"{type(self).__name__}.write")

    def window(self, block: int) -> int | None:
        """Positions block's attention looks back, the present one included; None for all."""
        return None

    @property
    def scale(self) -> float:
        """What q·k is multiplied by."""
        return self.head_size**-0.5

    def chat_template(self, source: str, **texts: str) -> ChatTemplate:
        """The template of that source, the file's own or the fallback; texts: of BOS and EOS."""
        return ChatTemplate(source, **texts)

    def call_format(self, template: str) -> CallFormat | None:
        """How a model with a chat template of that source writes calls; None: nobody knows."""
        return self.call

    def fallback_template(self) -> str:
        """The chat template for a file that has none."""
        return self.template

    # ---- what the parts of a block have in common

    @cached_property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        return self.tensors.rows("token_embd")

    @cached_property
    def rope(self) -> Rope:
        """The angles of every block that has no others."""
        return self.scaling.rope(self.rotated, self.rope_base, self.pairing, self.rope_factors)

    @property
    def rope_factors(self) -> np.ndarray | None:
        """(rotated / 2,) divisors of the angles, where the file has them (Llama 3)."""
        if "rope_freqs" not in self.tensors:
            return None
        return self.tensors.vector("rope_freqs", self.rotated // 2)

    def ring(self, p: Builder, i: int) -> Ring:
        """Declares the keys and values of block i."""
        heads, window = self.kv_heads[i], self.window(i)
        return p.ring(f"kv.{i}", heads, self.head_size, self.value_size, window)

    @contextmanager
    def block(self, p: Builder, w: Tensors, i: int) -> Iterator[Tensors]:
        """The tensors of block i; what is written inside is named after it."""
        with p.scope(f"blk.{i}"):
            yield w.block(i)

    def embed(self, p: Builder, w: Tensors, scale: float = 1.0) -> Value:
        """(n, width): the rows of the embedding, multiplied by scale.

        Where a projector is open, the rows it made stand in their places, as they are.
        """
        table = w.matrix("token_embd", self.vocabulary, self.width)
        x = p.rows(table, p.tokens, scale=scale)
        return p.overlay(x, p.embeddings(self.width), p.place) if self.sees else x

    def until(self, p: Builder) -> Value | None:
        """What attend's ``until`` is in blocks whose pictures see both ways; None: nowhere."""
        return p.until if self.sees and self.both_ways else None

    def norm(self, p: Builder, b: Tensors, name: str, x: Value) -> Value:
        """RMS norm by the tensor of that name over the last axis of x."""
        return p.rms_norm(x, b.vector(name, x.shape[-1]), self.eps)

    def linear(self, p: Builder, b: Tensors, name: str, x: Value, out: int) -> Value:
        """x times the matrix of that name, which must be (out, last axis of x)."""
        return p.linear(x, b.matrix(name, out, x.shape[-1]))

    def qkv(self, p: Builder, b: Tensors, x: Value, i: int) -> tuple[Value, Value, Value]:
        """Queries (n, H, D), keys (n, KV, D), values (n, KV, Dv), fused in the file or not."""
        counts = (self.heads[i], self.kv_heads[i], self.kv_heads[i])
        sizes = (self.head_size, self.head_size, self.value_size)
        widths = [count * size for count, size in zip(counts, sizes, strict=True)]
        if "attn_qkv" in b:
            parts = p.split(self.linear(p, b, "attn_qkv", x, sum(widths)), widths)
        else:
            parts = [
                self.linear(p, b, f"attn_{s}", x, width)
                for s, width in zip("qkv", widths, strict=True)
            ]
        q, k, v = (p.heads(part, count) for part, count in zip(parts, counts, strict=True))
        return q, k, v

    def attention(self, p: Builder, b: Tensors, i: int, q: Value, k: Value, v: Value) -> Value:
        """Attention of block i over its ring, and the output product: (n, width)."""
        window = self.window(i)
        back = None if window is None else window - 1
        if self.packed:
            o = p.attend(q, k, v, scale=self.scale, back=back, offsets=p.offsets)
        else:
            o = p.attend(q, k, v, self.ring(p, i), scale=self.scale, back=back)
        return self.linear(p, b, "attn_output", p.flat(o), self.width)

    def feed_forward(self, p: Builder, b: Tensors, x: Value, i: int, act: str = "silu") -> Value:
        """down(act(gate x) · up x), by experts where the block has a router."""
        if "ffn_gate_inp" in b:
            return self._mixture(p, b, x, act)
        hidden = self.feed_forward_widths[i]
        gate, up = (self.linear(p, b, f"ffn_{s}", x, hidden) for s in ("gate", "up"))
        return self.linear(p, b, "ffn_down", p.gate(gate, up, act), self.width)

    @cached_property
    def feed_forward_widths(self) -> tuple[int, ...]:
        """Hidden width of each block's feed-forward."""
        return self.hyper.integers("feed_forward_length", self.blocks)

    @property
    def expert_width(self) -> int:
        """Hidden width of one expert."""
        return self.hyper.integer("expert_feed_forward_length", None) or self.feed_forward_widths[0]

    def _mixture(self, p: Builder, b: Tensors, x: Value, act: str) -> Value:
        """The experts_used most likely experts of each column, weighted to a sum of 1."""
        if not self.experts_used:
            raise self.hyper.fail("expert_used_count", "1 to the expert_count")
        count, hidden = self.experts, self.expert_width
        logits = self.linear(p, b, "ffn_gate_inp", x, count)
        scale = self.hyper.number("expert_weights_scale", 0.0) or 1.0
        chosen, weights = p.route(logits, self.experts_used, normalise=True, scale=scale)
        if "ffn_gate_up_exps" in b:
            both = b.matrix("ffn_gate_up_exps", count, 2 * hidden, self.width)
            gate, up = p.split(p.linear_by_expert(x, both, chosen), (hidden, hidden))
        else:
            gate, up = (
                p.linear_by_expert(x, b.matrix(f"ffn_{s}_exps", count, hidden, self.width), chosen)
                for s in ("gate", "up")
            )
        down = b.matrix("ffn_down_exps", count, self.width, hidden)
        y = p.linear_by_expert(p.gate(gate, up, act), down, chosen)
        return p.combine(y, weights)

    def tap(self, p: Builder, i: int, x: Value) -> None:
        """Names the result of block i as the output "blk.i"; unasked for it costs nothing."""
        p.output(f"blk.{i}", x)

    def head(self, p: Builder, w: Tensors, x: Value) -> Value:
        """Logits (m, vocabulary) of the columns that are scored; "hidden" is what it multiplies."""
        h = self.norm(p, w, "output_norm", p.pick(x, p.outputs))
        p.output("hidden", h)
        table = w.matrix("output", self.vocabulary, self.width, tied="token_embd")
        return p.linear(h, table)

    def program(self, pass_width: int, scored: int) -> Program:
        """The program for passes of at most that many columns, that many of them scored."""
        p = Builder(self.architecture)
        p.axis("n", pass_width)
        p.axis("m", scored)
        logits = self.write(p, self.tensors)
        p.output("logits", logits)
        if logits.width >= PEAK_CHUNK:
            p.output("peaks", p.peaks(logits))
        return p.build(self.quantum)

    def prediction_program(self, columns: int) -> Program:
        """The program that guesses ahead for at most that many conversations at once."""
        p = Builder(f"{self.architecture}.prediction")
        p.axis("n", columns)
        p.output("logits", self.predict(p, self.tensors))
        return p.build()

    def embedding_program(self, columns: int, texts: int) -> Program:
        """The program that makes vectors: passes of several whole texts, without a cache.

        Inputs: tokens, positions (n,), offsets (s + 1,), outputs (m,): the columns whose rows are
        wanted. Output "hidden" (m, width). Raises ModelError where a block keeps a state.
        """
        p = Builder(self.architecture)
        p.axis("n", columns)
        p.axis("m", columns)
        p.axis("s", texts)
        self.packed = True
        try:
            p.output("logits", self.write(p, self.tensors))
        finally:
            self.packed = False
        program = p.build(self.quantum)
        if program.states:
            raise ModelError(f"{self.architecture} keeps a state of each conversation")
        return program
