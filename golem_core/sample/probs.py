"""What a drawn token competed with."""

from typing import NamedTuple


class Probs(NamedTuple):
    """Natural logarithms of the probabilities the raw logits gave, or, when asked for,
    probabilities among what the sampler left."""

    drawn: float
    top: tuple[tuple[int, float], ...]  # (token, value), best first
