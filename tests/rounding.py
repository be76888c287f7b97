"""What rounding columns to codes costs: the reference executor with only that done to it.

Bounds of tests come from here, so that they follow the model and the text instead of being
guessed. The rules are those of golem_core/cpu/kernels (linear.h, linear_tiles.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from golem_core import reference

FLOATS = (0, 1, 30)  # F32, F16, BF16: their columns are not rounded
PROMPT_BLOCK, SHIFTS, HIGHEST = 256, 10, 635
Rule = Callable[[np.ndarray], np.ndarray]


# What is not modelled (weights of attention in BF16, f16 rings, exponentials) and chance: measured
# over the tiny models, sets and roles, distances were 0.8 to 1.45 of what is expected here.
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
        share = _largest(parts) / np.where(base > 0, 127 * base, 1)
        power = np.ceil(np.log2(np.maximum(share, 2.0**-SHIFTS)))
        return _rounded(parts, base * 2.0**power).reshape(part.shape)

    return _by_blocks(x, block)


def tiles(x: np.ndarray) -> np.ndarray:
    """One scale for 256 values of about 10 bits."""
    return _by_blocks(x, lambda part: _rounded(part, _largest(part) / HIGHEST))


def _by_blocks(x: np.ndarray, block: Rule) -> np.ndarray:
    pieces = [block(x[:, at : at + PROMPT_BLOCK]) for at in range(0, x.shape[1], PROMPT_BLOCK)]
    return np.concatenate(pieces, axis=1)


def prompt_rule(isa: str) -> Rule:
    """How a set rounds the columns of a prompt."""
    return {"avx512": prompt, "amx": tiles, "amx_emulated": tiles}.get(isa, drawn)


def median_distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """Relative rms of the median column: where two experts are nearly tied, rounding may choose the
    other one for a column, which says nothing about the rest."""
    each = np.sqrt(np.mean((found - wanted) ** 2, axis=-1) / np.mean(wanted**2, axis=-1))
    return float(np.median(each))


def bf16(x: np.ndarray) -> np.ndarray:
    """To nearest even, as attention of such prompts has queries, keys and values."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@contextmanager
def columns_rounded(rule: Rule, scores: str = "logits") -> Iterator[None]:
    """Meanwhile the reference executor rounds the columns of quantised products, except for the
    output `scores`: those of prompts by the rule, drawn ones as drawn."""
    plain = dict(reference._OPS)

    def columns(x: np.ndarray, binding) -> np.ndarray:
        runs, rows = binding.runs, x.reshape(-1, x.shape[-1]).astype(np.float64)
        first = runs[runs[:, 4] == 0, 2].sum() * len(rows) // runs[:, 2].sum()
        made = np.concatenate([drawn(rows[:first]), rule(rows[first:])])
        return made.reshape(x.shape).astype(np.float32)

    def product(name: str):
        def run(ex, node, binding, x, *more):
            last = {v.root.id for k, v in ex.program.outputs.items() if k == scores}
            if (
                any(w.type.id not in FLOATS for w in node.weights)
                and node.outputs[0].id not in last
            ):
                x = columns(x, binding)
            return plain[name](ex, node, binding, x, *more)

        return run

    def attend(ex, node, binding, q, k, v, *more):
        q, k, v = (None if x is None else bf16(x) for x in (q, k, v))
        return plain["attend"](ex, node, binding, q, k, v, *more)

    changed = {name: product(name) for name in ("linear", "linear_by_expert")}
    if rule is not drawn:
        changed["attend"] = attend
    try:
        reference._OPS.update(changed)
        yield
    finally:
        reference._OPS.update(plain)
