"""ModernBERT and Laya's decision head, as a program over packed rows.

A row is a question with its options and the state. The program gives a logit for every option,
read at its mask token, and the row's first token, from which the act head is computed on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from golem_core.graph.builder import Builder
from golem_core.graph.ops import Rope
from golem_core.graph.program import Program
from golem_core.graph.values import Value
from golem_core.graph.weights import Weight
from golem_core.model import ModelError, Tensors
from golem_plugins.laya.checkpoint import TYPES, Agent, Encoder

EPS = 1e-5  # of the head's norms
ACT_WIDTH = 256


class Network:
    """The weights of a checkpoint, and the program over them."""

    def __init__(self, tensors: Tensors, encoder: Encoder, agent: Agent, name: str):
        self.tensors = tensors
        self.encoder = encoder
        self.agent = agent
        self.name = name

    def program(self, columns: int, rows: int) -> Program:
        """Passes of at most that many tokens in that many rows.

        Inputs: tokens, positions, types (n,): the id of the row's question type; offsets (s + 1,);
        outputs (m,): the mask tokens and first tokens that are wanted. Outputs: hidden (m, width),
        logits (m, 1). Raises WeightError, ModelError.
        """
        p = Builder("laya")
        p.axis("n", columns)
        p.axis("m", columns)
        p.axis("s", rows)
        h = self._head(p, self._encode(p))
        chosen = p.pick(h, p.outputs)
        p.output("hidden", chosen)
        p.output("logits", self._score(p, chosen))
        program = p.build()
        self._refuse_others()
        return program

    def _refuse_others(self) -> None:
        """Strict as the reference: a tensor nobody reads is a sign of another model."""
        unused = [name for name in self.tensors.unused() if name != "temperature"]
        unused = [name for name in unused if not name.startswith("act_head.")]
        if unused:
            raise ModelError(f"{self.name}: {unused[0]} is no tensor of a Laya checkpoint")

    # ---- the encoder

    def _encode(self, p: Builder) -> Value:
        e, w = self.encoder, self.tensors
        ropes = {
            True: Rope.of(e.head_size, e.global_base),
            False: Rope.of(e.head_size, e.local_base),
        }
        table = w.matrix("encoder.embeddings.tok_embeddings", e.vocabulary, e.width)
        h = self._norm(p, "encoder.embeddings.norm", p.rows(table, p.tokens))
        for i, full in enumerate(e.full):
            at = f"encoder.layers.{i}."
            with p.scope(at.rstrip(".")):
                x = h if i == 0 else self._norm(p, at + "attn_norm", h)
                qkv = p.linear(x, self._matrix(at + "attn.Wqkv", 3 * e.width, e.width))
                q, k, v = (p.heads(part, e.heads) for part in p.split(qkv, [e.width] * 3))
                q, k = (p.rope(t, p.positions, ropes[full]) for t in (q, k))
                near = {} if full else {"back": e.local // 2}
                ahead = None if full else e.local // 2
                scale = e.head_size**-0.5
                o = p.attend(q, k, v, scale=scale, ahead=ahead, offsets=p.offsets, **near)
                out = self._matrix(at + "attn.Wo", e.width, e.width)
                h = p.add(p.linear(p.flat(o), out), h)
                x = self._norm(p, at + "mlp_norm", h)
                both = self._matrix(at + "mlp.Wi", 2 * e.hidden, e.width)
                act, gate = both.rows(0, e.hidden), both.rows(e.hidden, 2 * e.hidden)
                x = p.gate(p.linear(x, act), p.linear(x, gate), "gelu_erf")
                h = p.add(p.linear(x, self._matrix(at + "mlp.Wo", e.width, e.hidden)), h)
        return self._norm(p, "encoder.final_norm", h)

    def _matrix(self, name: str, rows: int, columns: int) -> Weight:
        """A matrix of the encoder, which has a bias where its configuration says so."""
        self._check_bias(name, "attention_bias" if ".attn." in name else "mlp_bias")
        return self.tensors.matrix(name, rows, columns)

    def _norm(self, p: Builder, name: str, x: Value) -> Value:
        w, size = self.tensors, x.shape[-1]
        self._check_bias(name, "norm_bias")
        bias = w.vector(f"{name}.bias", size) if f"{name}.bias" in w else None
        return p.layer_norm(x, w.vector(name, size), bias, self.encoder.eps)

    def _check_bias(self, name: str, key: str) -> None:
        """Strict as the reference here too. Raises ModelError."""
        wanted, found = self.encoder.biases.get(key, False), f"{name}.bias" in self.tensors
        if wanted != found:
            has = "has" if found else "lacks"
            raise ModelError(
                f"{self.name}: the file {has} {name}.bias, but {key} of encoder/config.json is "
                f"{str(wanted).lower()}"
            )

    # ---- the decision head

    def _head(self, p: Builder, h: Value) -> Value:
        w, width = self.tensors, self.encoder.width
        types = p.input("types", (p.columns,), "i32")
        h = p.add(p.rows(w.matrix("type_emb", len(TYPES), width), types), h)
        heads = max(1, width // 64)
        if width % heads:
            raise ModelError(f"{self.name}: {heads} heads do not divide the width {width}")
        scale = (width // heads) ** -0.5
        for j in range(self.agent.head_layers):
            at = f"head.layers.{j}."
            with p.scope(at.rstrip(".")):
                x = self._norm_b(p, at + "norm1", h)
                qkv = p.linear(x, self._fused(at + "self_attn.in_proj", 3 * width, width))
                q, k, v = (p.heads(part, heads) for part in p.split(qkv, [width] * 3))
                o = p.attend(q, k, v, scale=scale, ahead=None, offsets=p.offsets)
                out = w.matrix(at + "self_attn.out_proj", width, width)
                h = p.add(p.linear(p.flat(o), out), h)
                x = self._norm_b(p, at + "norm2", h)
                x = p.unary(p.linear(x, w.matrix(at + "linear1", 4 * width, width)), "relu")
                h = p.add(p.linear(x, w.matrix(at + "linear2", width, 4 * width)), h)
        return h

    def _norm_b(self, p: Builder, name: str, x: Value) -> Value:
        w, size = self.tensors, x.shape[-1]
        return p.layer_norm(x, w.vector(name, size), w.vector(f"{name}.bias", size), EPS)

    def _fused(self, name: str, *shape: int) -> Weight:
        """PyTorch's in_proj, whose bias has a name of its own."""
        weight = self.tensors.matrix(f"{name}_weight", *shape)
        return replace(weight, bias=self.tensors.vector(f"{name}_bias", shape[0]))

    def _score(self, p: Builder, x: Value) -> Value:
        w, width = self.tensors, self.encoder.width
        with p.scope("scorer"):
            x = self._norm_b(p, "scorer.0", x)
            x = p.unary(p.linear(x, w.matrix("scorer.1", width, width)), "gelu_erf")
            return p.linear(x, w.matrix("scorer.3", 1, width))


class ActHead:
    """How likely acting is, from a row's first token and how sure its options are.

    A few hundred thousand products a question: done here, one row at a time.
    """

    def __init__(self, tensors: Tensors, encoder: Encoder, agent: Agent):
        width = encoder.width + 4
        first = tensors.matrix("act_head.0", ACT_WIDTH, width)
        second = tensors.matrix("act_head.2", agent.actions, ACT_WIDTH)
        self._first = np.ascontiguousarray(first.numpy().reshape(first.shape))
        self._second = np.ascontiguousarray(second.numpy().reshape(second.shape))
        self._biases = first.bias, second.bias

    def __call__(self, first: np.ndarray, logits: Sequence[float]) -> np.ndarray:
        """Probabilities of the actions, (actions,) f32; first: (width,), logits: of the options."""
        p = softmax(np.asarray(logits, np.float32))
        ordered = np.sort(p)[::-1]
        second = ordered[1] if len(p) > 1 else np.float32(0)
        entropy = -np.sum(p * np.log(np.maximum(p, np.float32(1e-9))), dtype=np.float32)
        k = max(2, len(p))
        sure = [ordered[0], ordered[0] - second, entropy / math.log(k), k / 255]
        x = np.concatenate([first, np.array(sure, np.float32)])
        x = self._first @ x + self._biases[0]
        x = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()], np.float32)
        return softmax(self._second @ x + self._biases[1])


def softmax(x: np.ndarray) -> np.ndarray:
    """f32 (k,) -> f32 (k,)."""
    e = np.exp(x - x.max())
    return e / e.sum()
