"""Sets of numbers, code points mostly, as ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Ranges = tuple[tuple[int, int], ...]  # inclusive, ascending, apart from each other

LAST = 0x10FFFF  # code point
EVERY: Ranges = ((0, LAST),)


def merged(ranges: Iterable[Sequence[int]]) -> Ranges:
    """The same numbers as ranges in order and apart from each other; empty ranges are dropped."""
    result: list[tuple[int, int]] = []
    for low, high in sorted((r[0], r[1]) for r in ranges if r[0] <= r[1]):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def common(a: Ranges, b: Ranges) -> Ranges:
    """What both hold."""
    result = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            result.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def complement(a: Ranges, last: int = LAST) -> Ranges:
    """What is missing of 0 … last."""
    result = []
    at = 0
    for low, high in a:
        if low > at:
            result.append((at, low - 1))
        at = high + 1
    if at <= last:
        result.append((at, last))
    return tuple(result)


def minus(a: Ranges, b: Ranges) -> Ranges:
    """What only the first holds."""
    return common(a, complement(b))


def split(ranges: Ranges, bits: int) -> list[tuple[tuple[int, int], Ranges]]:
    """The numbers by what is above their low bits: (first, last) of that, ranges of the rest.

    Each part is whole: every number above goes with every number below.
    """
    full = (1 << bits) - 1
    parts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in ranges:
        first, last = a >> bits, b >> bits
        if first == last:
            parts.setdefault((first, first), []).append((a & full, b & full))
            continue
        if a & full:
            parts.setdefault((first, first), []).append((a & full, full))
            first += 1
        if b & full < full:
            parts.setdefault((last, last), []).append((0, b & full))
            last -= 1
        if first <= last:
            parts.setdefault((first, last), []).append((0, full))
    return [(span, merged(inner)) for span, inner in sorted(parts.items())]
