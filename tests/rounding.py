"""What rounding columns to codes costs: the reference executor with only that done to it.

Bounds of tests come from here, so that they follow the model and the text instead of being
guessed. The rules are those of golem_core/cpu/kernels (linear.h, linear_tiles.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from golem_core import reference
from golem_core.formats.blocks import by_name, dequantise, quantise
from golem_core.graph.program import Program
from golem_core.graph.values import Dim, Value
from golem_core.state.declare import Ring
from golem_core.state.kinds import CACHE_TYPES, turns

FLOATS = (0, 1, 30)  # F32, F16, BF16: their columns are not rounded
PROMPT_BLOCK, SHIFTS, STEPS, HIGHEST, OFTEN = 256, 10, 4096, 635, 2
Rule = Callable[[np.ndarray], np.ndarray]


# What is not modelled (weights of attention in BF16, f16 rings, exponentials) and chance: measured
# over the tiny models, sets and roles, distances were 0.7 to 1.1 of what is expected here, with AMX
# up to 1.45, whose columns are rounded least.
ROOM = 1.6


def _largest(x: np.ndarray) -> np.ndarray:
    return np.abs(x).max(axis=-1, keepdims=True)


def _rounded(x: np.ndarray, step: np.ndarray) -> np.ndarray:
    return np.rint(x / np.where(step > 0, step, 1)) * step


def drawn(x: np.ndarray) -> np.ndarray:
    """Rows (n, width), one scale for 16 values."""
    parts = x.reshape(len(x), x.shape[1] // 16, 16)
    return _rounded(parts, _largest(parts) / 127).reshape(x.shape)


def prompt(x: np.ndarray) -> np.ndarray:
    """A base for 256 values, and powers of two of it for 16."""

    def block(part: np.ndarray) -> np.ndarray:
        parts = part.reshape(len(part), part.shape[1] // 16, 16)
        base = _largest(part)[..., None] / 127
        share = _largest(parts) / np.where(base > 0, 127.5 * base, 1)  # 127.4 still has code 127
        power = np.ceil(np.log2(np.maximum(share, 2.0**-SHIFTS)))
        return _rounded(parts, base * 2.0**power).reshape(part.shape)

    return _by_blocks(x, block)


def _stepped(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of steps, and their scales: (n, sixteens, 1)."""
    parts = part.reshape(len(part), part.shape[1] // 16, 16)
    step = _largest(part)[..., None] / 127 / STEPS
    share = _largest(parts) / np.where(step > 0, 127 * step, 1)
    scale = np.maximum(np.ceil(share), 1) * step
    return _rounded(parts, scale).reshape(part.shape), scale


def steps(x: np.ndarray) -> np.ndarray:
    """A scale for 16 values in whole steps, of which that of the largest of 256 has 4096."""
    return _by_blocks(x, lambda part: _stepped(part)[0])


def precise_steps(x: np.ndarray) -> np.ndarray:
    """The same; but where the squared scales of 32 values are OFTEN times their mean over 256 or
    more, these are kept: what is lost of them is a hundredth of what others lose."""

    def block(part: np.ndarray) -> np.ndarray:
        rounded, scale = _stepped(part)
        squares = (scale.reshape(len(part), part.shape[1] // 32, 2) ** 2).sum(axis=-1)
        kept = squares >= OFTEN * squares.mean(axis=-1, keepdims=True)
        return np.where(np.repeat(kept, 32, axis=1), part, rounded)

    return _by_blocks(x, block)


def tiles(x: np.ndarray) -> np.ndarray:
    """One scale for 256 values of about 10 bits."""
    return _by_blocks(x, lambda part: _rounded(part, _largest(part) / HIGHEST))


def _by_blocks(x: np.ndarray, block: Rule) -> np.ndarray:
    pieces = [block(x[:, at : at + PROMPT_BLOCK]) for at in range(0, x.shape[1], PROMPT_BLOCK)]
    return np.concatenate(pieces, axis=1)


def prompt_rule(isa: str) -> Rule:
    """How a set rounds the columns of a prompt."""
    return {"avx2": steps, "avx512": prompt, "amx": tiles, "amx_emulated": tiles}.get(isa, drawn)


def median_distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """Relative rms of the median column: where two experts are nearly tied, rounding may choose the
    other one for a column, which says nothing about the rest."""
    each = np.sqrt(np.mean((found - wanted) ** 2, axis=-1) / np.mean(wanted**2, axis=-1))
    return float(np.median(each))


def bf16(x: np.ndarray) -> np.ndarray:
    """To nearest even, as attention of such prompts has queries, keys and values."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


# Ops that hand on what a softmax is taken of.
HANDED_ON = ("rms_norm", "layer_norm", "rope", "copy", "concat", "pick", "mul", "softcap", "clamp")


def _behind(program: Program, names: Iterable[str], attends: bool = False) -> set[int]:
    """Roots of what outputs, and maybe queries, keys and values, are made of without a product
    between: drawn columns of the products among them keep 15 bits."""
    roots = {program.outputs[name].root.id for name in names if name in program.outputs}
    for node in reversed(program.nodes):
        handed = node.op in HANDED_ON and node.outputs[0].root.id in roots
        if handed or (attends and node.op == "attend"):
            roots.update(x.root.id for x in node.inputs if isinstance(x, Value))
    return roots


@contextmanager
def _patched(changed: Mapping[str, Callable]) -> Iterator[None]:
    plain = dict(reference._OPS)
    try:
        reference._OPS.update(changed)
        yield
    finally:
        reference._OPS.update(plain)


@contextmanager
def columns_rounded(rule: Rule, asked: Iterable[str] = ("logits",)) -> Iterator[None]:
    """Meanwhile the reference executor rounds the columns of quantised products: those of prompts
    by the rule, drawn and scored ones as drawn unless a softmax is taken of the product; those of
    prompts are then as precise_steps has them, where the rule is steps.

    asked: the outputs that passes ask for.
    """
    plain, asked = dict(reference._OPS), tuple(asked)

    def prompts_from(binding, rows: int) -> int:
        """The first row of a prompt."""
        runs = binding.runs
        return runs[runs[:, 4] == 0, 2].sum() * rows // runs[:, 2].sum()

    def columns(node, binding, x: np.ndarray, precise: bool) -> np.ndarray:
        rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
        scored = isinstance(node.inputs[0].rows, Dim) and node.inputs[0].rows.terms == (("m", 1),)
        first = len(rows) if scored or rule is drawn else prompts_from(binding, len(rows))
        exact = rows[:first] if precise else drawn(rows[:first])
        prompts = (precise_steps if precise and rule is steps else rule)(rows[first:])
        made = np.concatenate([exact, prompts])
        return made.reshape(x.shape).astype(np.float32)

    def product(name: str):
        def run(ex, node, binding, x, *more):
            if any(w.type.id not in FLOATS for w in node.weights):
                ends = node.outputs[0].id in _behind(ex.program, asked, attends=True)
                x = columns(node, binding, x, ends and name == "linear")
            return plain[name](ex, node, binding, x, *more)

        return run

    def attend(ex, node, binding, q, k, v, *more):
        at = prompts_from(binding, len(q))
        q, k, v = (None if x is None else np.concatenate([x[:at], bf16(x[at:])]) for x in (q, k, v))
        return plain["attend"](ex, node, binding, q, k, v, *more)

    changed = {name: product(name) for name in ("linear", "linear_by_expert")}
    if rule not in (drawn, steps):
        changed["attend"] = attend
    with _patched(changed):
        yield


@contextmanager
def cache_rounded(kind: str) -> Iterator[None]:
    """Meanwhile the reference executor keeps keys and values as a cache of this type gives them
    back, turned before and after where the type asks for it. Inside columns_rounded, so that keys
    are rounded to the cache first."""
    plain = reference._OPS["attend"]

    def attend(ex, node, binding, q, k, v, *more):
        if k is not None:
            rings = [s for s in ex.program.states.values() if isinstance(s, Ring)]
            k, v = (
                kept(x, kind, turns(CACHE_TYPES[kind], rings, side))
                for x, side in ((k, "k"), (v, "v"))
            )
        return plain(ex, node, binding, q, k, v, *more)

    with _patched({"attend": attend}):
        yield


def kept(x: np.ndarray, kind: str, turn: int = 0) -> np.ndarray:
    """What a cache gives back of heads (n, heads, size), `turn` values of which are turned
    together (0: none)."""
    if kind == "f32":
        return x
    if not CACHE_TYPES[kind].block:
        return x.astype(np.float16).astype(np.float32) if kind == "f16" else bf16(x)
    block, around = by_name(kind.upper()), hadamard(turn) if turn else np.eye(1)

    def turned(y: np.ndarray) -> np.ndarray:
        return (y.reshape(-1, len(around)) @ around).astype(np.float32).reshape(x.shape)

    return turned(dequantise(quantise(turned(x), block), block))


def hadamard(n: int) -> np.ndarray:
    """The orthonormal Walsh-Hadamard matrix in Sylvester's order."""
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(n)


@contextmanager
def led(values: Mapping[int, np.ndarray], note: Callable | None = None) -> Iterator[None]:
    """Meanwhile every value of the reference executor that is among `values` (by the value's id) is
    replaced by the one there, once note(node, value, made, given) has seen both: what comes after
    goes on from there, so that nothing adds up and no expert differs."""
    plain = dict(reference._OPS)

    def following(op: Callable):
        def run(ex, node, *more):
            made = op(ex, node, *more)
            several = isinstance(made, tuple)
            found = []
            for value, array in zip(node.outputs, made if several else (made,), strict=True):
                given = values.get(value.id)
                if given is not None and note is not None:
                    note(node, value, np.asarray(array).reshape(given.shape), given)
                found.append(array if given is None else given)
            return tuple(found) if several else found[0]

        return run

    with _patched({name: following(op) for name, op in plain.items()}):
        yield
