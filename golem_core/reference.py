"""Runs a program in plain numpy: the definition of every op, slow and obvious.

This is the truth the other executors are measured against: the file's own weights dequantised to
f32, f32 activations, f32 rings. It dequantises every weight on first use and keeps it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from golem_core.graph.binding import DTYPES, Binding, bind
from golem_core.graph.ops import PEAK_CHUNK, PEAK_LANES
from golem_core.graph.program import Program
from golem_core.graph.values import Const, Value, extent_at
from golem_core.graph.weights import Weight
from golem_core.reference_pictures import conv2d
from golem_core.reference_recurrent import conv1d, delta_rule
from golem_core.state import States

F32 = np.float32


class ReferenceExecutor:
    """Executes a program in numpy; see golem_core.cpu.CpuExecutor for the fast one.

    slots, context: conversations and positions of each. maxima: the most each symbol is bound to.
    states: another executor's, which this program's are among.
    """

    def __init__(
        self,
        program: Program,
        *,
        slots: int = 1,
        context: int = 4096,
        maxima: Mapping[str, int] | None = None,
        states: States | None = None,
    ):
        self.program = program
        self.slots = slots if states is None else states.slots
        self.context = context if states is None else states.context
        self.maxima = {**program.axes, **(maxima or {})}
        if states is None:
            width = self.maxima.get("n", 1)
            states = States(
                program.states.values(), slots, context, width, type_k="f32", type_v="f32"
            )
        self.states = states
        self._weights: dict[int, np.ndarray] = {}

    def run(
        self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str] = ("logits",)
    ) -> dict[str, np.ndarray]:
        """One pass. inputs: see golem_core.graph.binding. -> the wanted outputs, f32 or i32.

        Raises ProgramError for inputs that do not fit the program.
        """
        binding = bind(
            self.program, inputs, slots=self.slots, context=self.context, maxima=self.maxima
        )
        storage = {self.program.inputs[n].id: a for n, a in binding.arrays.items()}
        with np.errstate(all="ignore"):
            for node in self.program.nodes:
                read = [_read(x, storage, binding) for x in node.inputs]
                made = _OPS[node.op](self, node, binding, *read)
                made = made if isinstance(made, tuple) else (made,)
                for value, array in zip(node.outputs, made, strict=True):
                    shape = (extent_at(value.rows, binding.sizes), *value.inner)
                    storage[value.id] = np.ascontiguousarray(
                        array.reshape(shape), DTYPES[value.dtype]
                    )
        return {name: _read(self.program.outputs[name], storage, binding) for name in wanted}

    def begin(self, inputs: Mapping[str, np.ndarray], wanted: Sequence[str]) -> _Whole:
        """As CpuExecutor.begin; its one piece is the whole pass."""
        return _Whole(self, inputs, wanted)

    def weight(self, w: Weight) -> np.ndarray:
        """The weight as f32, in its own shape."""
        key = w.data.ctypes.data
        if key not in self._weights or self._weights[key].shape != w.shape:
            self._weights[key] = w.numpy().reshape(w.shape)
        return self._weights[key]

    def close(self) -> None:
        self._weights.clear()


class _Whole:
    """A pass that is run in one piece."""

    def __init__(self, executor, inputs, wanted):
        self._run = lambda: executor.run(inputs, wanted)
        self.outputs: dict[str, np.ndarray] = {}

    def advance(self, seconds: float = 0.0) -> bool:
        self.outputs = self._run()
        return True

    def close(self) -> None:
        """Nothing is held."""


def _read(x: Value | Const | None, storage: dict[int, np.ndarray], binding: Binding):
    """An operand as an array: constants as they are, views as views."""
    if x is None or isinstance(x, Const):
        return None if x is None else x.array
    array = storage[x.root.id]
    if not x.is_view:
        return array
    shape = (extent_at(x.rows, binding.sizes), *x.inner)
    strides = tuple(s * 4 for s in x.strides)
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[x.offset :], shape, strides)


# ---- rows


def _copy(ex, node, binding, x):
    return x


def _concat(ex, node, binding, *parts):
    return np.concatenate(parts, axis=node.attrs["axis"])


def _rows(ex, node, binding, ids, weights):
    ids = ids.reshape(len(ids), -1)
    total = None
    for j in range(ids.shape[1]):
        table = node.weights[j if len(node.weights) > 1 else 0]
        row = ex.weight(table)[ids[:, j]]
        row = row if weights is None else weights[:, j : j + 1] * row
        total = row if total is None else total + row
    return total * F32(node.attrs["scale"])


def _overlay(ex, node, binding, x, embeddings, place):
    y = x.copy()
    y[place >= 0] = embeddings[place[place >= 0]]
    return y


def _pick(ex, node, binding, x, at):
    return x[at]


# ---- products


def _finish(w: Weight, y: np.ndarray) -> np.ndarray:
    y = y if w.scale is None else y * w.scale
    return y if w.bias is None else y + w.bias


def _linear(ex, node, binding, x):
    (w,) = node.weights
    return _finish(w, x @ ex.weight(w).T)


def _linear_by_expert(ex, node, binding, x, experts):
    (w,) = node.weights
    matrices = ex.weight(w)
    n, k = experts.shape
    y = np.empty((n, k, w.out), F32)
    for c in range(n):
        for j in range(k):
            column = x[c] if x.ndim == 2 else x[c, j]
            y[c, j] = matrices[experts[c, j]] @ column
    return _finish(w, y)


def _hadamard(ex, node, binding, x, signs):
    block, step, inverse = (node.attrs[k] for k in ("block", "step", "inverse"))
    y = x if signs is None or inverse else x * signs
    y = y.reshape(-1, block).astype(np.float64)
    one = np.array([[1, 1], [1, -1]]) if step == 2 else 1 - 2 * np.eye(4)[::-1]
    size = 1
    while size < block:
        y = np.einsum("ij,bajc->baic", one, y.reshape(len(y), -1, step, size)).reshape(y.shape)
        size *= step
    y = (y / np.sqrt(block)).astype(F32).reshape(x.shape)
    return y * signs if signs is not None and inverse else y


def _route(ex, node, binding, logits, expert_scale):
    p = _softmax(ex, node, binding, logits)
    experts = np.argsort(-p, axis=-1, kind="stable")[:, : node.attrs["k"]]
    weights = np.take_along_axis(p, experts, -1)
    if node.attrs["normalise"]:
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), F32(2.0**-14))
    weights = weights * F32(node.attrs["scale"])
    if expert_scale is not None:
        weights = weights * expert_scale[experts]
    return experts, weights


def _combine(ex, node, binding, y, weights):
    total = weights[:, :1] * y[:, 0]
    for j in range(1, y.shape[1]):
        total = total + weights[:, j : j + 1] * y[:, j]
    return total


# ---- norms, positions, attention


def _rms_norm(ex, node, binding, x, weight):
    mean = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    y = x / np.maximum(np.sqrt(mean + node.attrs["eps"]), node.attrs["floor"]).astype(F32)
    return y if weight is None else y * weight


def _layer_norm(ex, node, binding, x, weight, bias):
    x = x.astype(np.float64)
    x = x - x.mean(-1, keepdims=True)
    y = (x / np.sqrt((x * x).mean(-1, keepdims=True) + node.attrs["eps"])).astype(F32)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _rope_table(ex, node, binding, positions, freq):
    at = positions.reshape(len(positions), -1)[:, node.attrs["axis"]]
    angle = (at.astype(F32) * freq).astype(np.float64)
    return np.stack([np.cos(angle), np.sin(angle)], -1) * node.attrs["scale"]


def _rope(ex, node, binding, x, table):
    y = x.copy()
    parts, adjacent = node.attrs["parts"], node.attrs["pairing"] == "adjacent"
    width, pairs = x.shape[2] // parts, table.shape[1] // parts
    for part in range(parts):
        head = y[..., part * width : (part + 1) * width]
        cos, sin = np.moveaxis(table[:, None, part * pairs : (part + 1) * pairs], -1, 0)
        first = np.s_[..., 0 : 2 * pairs : 2] if adjacent else np.s_[..., :pairs]
        second = np.s_[..., 1 : 2 * pairs : 2] if adjacent else np.s_[..., pairs : 2 * pairs]
        a, b = head[first].copy(), head[second].copy()
        head[first], head[second] = a * cos - b * sin, a * sin + b * cos
    return y


def _attend(ex, node, binding, q, k, v, until, offsets, rel):
    n, dv = len(q), node.outputs[0].shape[2]
    y = np.zeros((n, q.shape[1], dv), F32)
    for rows, first, keys, values, base in _sequences(ex, node, binding, n, k, v, offsets):
        index = first + np.arange(rows.stop - rows.start)
        high = _high(node, index, base + len(keys) - 1, None if until is None else until[rows])
        y[rows] = _attend_one(node, q[rows], keys, values, index, high, base, rel)
    return y


def _sequences(ex, node, binding, n, k, v, offsets):
    """(rows, index of the first, keys, values, index of the first key) of every sequence."""
    name = node.attrs["ring"]
    if name is None:
        group = node.attrs["group"]
        cuts = [0, n]
        if offsets is not None:
            cuts = offsets.tolist()
        elif group is not None:
            cuts = [*range(0, n, group), n]
        for a, b in itertools.pairwise(cuts):
            if b > a:
                yield slice(a, b), 0, k[a:b], v[a:b], 0
        return
    ring = ex.states.rings[name]
    rate = ex.program.states[name].rate
    capacity = ring.capacity
    for slot, column, count, index, _ in binding.runs.tolist():
        rows = slice(column * rate, (column + count) * rate)
        at = np.arange(index * rate, (index + count) * rate)
        if k is not None:
            ring.put(slot, at % capacity, k[rows], v[rows])
        base = max(0, at[-1] + 1 - capacity)
        held = np.arange(base, at[-1] + 1) % capacity
        yield rows, index * rate, *ring.lines(slot, held), base


def _high(node, index, last, until):
    if until is not None:
        return np.minimum(until, last)
    ahead = node.attrs["ahead"]
    return np.full_like(index, last) if ahead is None else np.minimum(index + ahead, last)


def _attend_one(node, q, keys, values, index, high, base, rel):
    step, back, cap = node.attrs["step"], node.attrs["back"], node.attrs["softcap"]
    low = np.zeros_like(index) if back is None else (index // step + 1) * step - 1 - back
    j = base + np.arange(len(keys))
    seen = (j >= low[:, None]) & (j <= high[:, None])  # (rows, keys)
    share = q.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, share, axis=1), np.repeat(values, share, axis=1)
    s = np.einsum("chd,khd->hck", q, keys, optimize=True)
    if rel is not None:
        far = np.clip(index[:, None] - j, 0, len(rel) - 1)
        s = s + np.take_along_axis(np.einsum("chd,rhd->hcr", q, rel), far[None], 2)
    s = s * F32(node.attrs["scale"])
    s = s if cap is None else cap * np.tanh(s / F32(cap))
    s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return np.einsum("hck,khd->chd", p, values, optimize=True)


# ---- elementwise and the rest


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_UNARY = {
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "exp": np.exp,
    "softplus": lambda x: np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20)))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))) if x.size else x,
    "gelu_quick": lambda x: x * _sigmoid(1.702 * x),
}


def _unary(ex, node, binding, x):
    return _UNARY[node.attrs["kind"]](x.astype(np.float64)).astype(F32)


def _gate(ex, node, binding, a, b):
    return _unary(ex, node, binding, a) * b


def _add(ex, node, binding, x, y):
    return x + y


def _mul(ex, node, binding, x, y):
    return x * y


def _fma(ex, node, binding, x, a, b):
    return x * a + b


def _clamp(ex, node, binding, x):
    return np.clip(x, F32(node.attrs["low"]), F32(node.attrs["high"]))


def _softcap(ex, node, binding, x):
    cap = F32(node.attrs["cap"])
    return cap * np.tanh(x / cap)


def _softmax(ex, node, binding, x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def _top_k(ex, node, binding, x):
    ids = np.argsort(-x, axis=-1, kind="stable")[:, : node.attrs["k"]]
    return np.take_along_axis(x, ids, -1), ids


def _peaks(ex, node, binding, x):
    chunks = x.shape[1] // PEAK_CHUNK
    groups = x[:, : chunks * PEAK_CHUNK].reshape(len(x), chunks, -1, PEAK_LANES)
    best = np.where((groups < np.inf).all(2), groups.max(2), np.nan)
    return best.reshape(len(x), chunks * PEAK_LANES)


def _reduce(ex, node, binding, x, weights):
    x = x if weights is None else x * weights[:, None]
    total = x.sum(1, dtype=F32)
    return total / F32(x.shape[1]) if node.attrs["how"] == "mean" else total


def _pool(ex, node, binding, x, offsets):
    texts = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return np.array([x[a:b].sum(0) / F32(max(b - a, 1)) for a, b in texts], F32)


_OPS = {
    "copy": _copy,
    "concat": _concat,
    "rows": _rows,
    "overlay": _overlay,
    "pick": _pick,
    "linear": _linear,
    "linear_by_expert": _linear_by_expert,
    "route": _route,
    "hadamard": _hadamard,
    "combine": _combine,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "rope_table": _rope_table,
    "rope": _rope,
    "attend": _attend,
    "conv1d": conv1d,
    "delta_rule": delta_rule,
    "conv2d": conv2d,
    "unary": _unary,
    "gate": _gate,
    "add": _add,
    "mul": _mul,
    "fma": _fma,
    "clamp": _clamp,
    "softcap": _softcap,
    "softmax": _softmax,
    "top_k": _top_k,
    "peaks": _peaks,
    "reduce": _reduce,
    "pool": _pool,
}
