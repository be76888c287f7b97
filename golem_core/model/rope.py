"""Rotary angles from a header: plain, linear, YaRN, and what the operator overrides.

YaRN (arXiv 2309.00071, as llama.cpp computes it): angles of slow pairs are interpolated, those of
fast pairs kept, those between blended by a ramp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from golem_core.graph.ops import Rope
from golem_core.model.hyper import Hyper

KINDS = ("none", "linear", "yarn")
_LONGEST = (1 << 31) - 1


@dataclass(frozen=True)
class RopeScaling:
    """How angles are stretched past the trained context.

    kind: one of KINDS. factor: how much longer the context becomes. original: the context the
    stretching starts from. attention: multiplies sine and cosine. fast, slow: turns within the
    original context above which a pair is kept and below which it is interpolated.
    """

    kind: str = "none"
    factor: float = 1.0
    original: int = 0
    attention: float = 1.0
    fast: float = 32.0
    slow: float = 1.0

    @classmethod
    def of(cls, hyper: Hyper, context_length: int) -> RopeScaling:
        """The file's own scaling. Raises ModelError for a kind golem does not know."""
        # The second key is the one of files from before scaling had kinds.
        factor = hyper.number("rope.scaling.factor", 0.0, low=0.0)
        factor = factor or hyper.number("rope.scale_linear", 0.0, low=0.0) or 1.0
        kind = hyper.text("rope.scaling.type", "none" if factor == 1.0 else "linear")
        if kind not in KINDS:
            raise hyper.fail("rope.scaling.type", f"one of {', '.join(KINDS)}")
        original = hyper.integer("rope.scaling.original_context_length", 0, low=0, high=_LONGEST)
        return cls(
            kind,
            factor,
            original or context_length,
            hyper.number("rope.scaling.attn_factor", 1.0, low=0.0) or 1.0,
            hyper.number("rope.scaling.yarn_beta_fast", 32.0, low=1e-3),
            hyper.number("rope.scaling.yarn_beta_slow", 1.0, low=1e-3),
        )

    def override(
        self, kind: str | None = None, factor: float | None = None, original: int | None = None
    ) -> RopeScaling:
        """The same as an operator asked for; a factor alone makes an unscaled file linear."""
        if kind is None:
            kind = "linear" if factor and self.kind == "none" else self.kind
        return replace(
            self, kind=kind, factor=factor or self.factor, original=original or self.original
        )

    def rope(
        self, width: int, base: float, pairing: str, factors: np.ndarray | None = None
    ) -> Rope:
        """Angles of ``width`` elements of a head. factors: (width / 2,) divisors of the angles."""
        freq = base ** (-np.arange(0, width, 2, dtype=np.float64) / width)
        if factors is not None:
            freq = freq / factors
        scale = self.attention
        if self.kind == "linear":
            freq = freq / self.factor
        elif self.kind == "yarn":
            keep = self._ramp(width, base)
            freq = freq * (keep + (1.0 - keep) / self.factor)
            scale *= 1.0 + 0.1 * math.log(self.factor)
        return Rope(freq.astype(np.float32), pairing, scale=scale)

    def _ramp(self, width: int, base: float) -> np.ndarray:
        """(width / 2,) in 0..1: how much of each pair's own angle is kept."""

        def pair(turns: float) -> float:
            return width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(0.0, math.floor(pair(self.fast)))
        high = min(width - 1.0, math.ceil(pair(self.slow)))
        at = (np.arange(width // 2) - low) / max(0.001, high - low)
        return 1.0 - np.clip(at, 0.0, 1.0)
