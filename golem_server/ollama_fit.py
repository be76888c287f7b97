"""Conversations longer than ``num_ctx``: the oldest messages go, by Ollama's rule.

What is kept is the longest end of the conversation that fits, and the system messages before it.
The last message always stays. The rule has a corner, kept because clients' counts depend on it: a
system message that would have been the next to be kept goes with the rest.
"""

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]
# Tokens of a conversation; None where one cannot begin like this (a result without its call).
Cost = Callable[[list[Message]], int | None]


def fit_messages(messages: Sequence[Message], limit: int, cost: Cost) -> list[Message]:
    """The messages that are kept of a conversation.

    limit: tokens they may cost. More messages never cost less, so few conversations are counted.
    """

    def fits(first: int) -> bool | None:
        tokens = cost([*_systems(messages[:first]), *messages[first:]])
        return None if tokens is None else tokens <= limit

    last = len(messages) - 1
    if last <= 0 or fits(0):
        return list(messages)
    kept, low, high = last, 0, last
    while high - low > 1:
        middle = at = (low + high) // 2
        found = fits(at)
        while found is None and at + 1 < high:
            at += 1
            found = fits(at)
        if found:
            kept = at
        if found is False:
            low = at
        else:
            high = middle
    return [*_systems(messages[: kept - 1]), *messages[kept:]]


def _systems(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.get("role") == "system"]
