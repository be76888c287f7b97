"""Where the time of a case goes: by op and weights, those of all blocks together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from golem_core.cpu.compile import Spent

_BLOCK = re.compile(r"\bblk\.\d+\b")
_NUMBER = re.compile(r"#?\d+$")  # a site's, where an op of one kind comes again


def by_op(spent: Iterable[Spent]) -> Counter[str]:
    """Seconds by what was done, such as "linear blk.*.ffn_down.weight"."""
    total: Counter[str] = Counter()
    for one in spent:
        what = " ".join(one.weights) or _NUMBER.sub("", one.site)
        total[f"{one.kind} {_BLOCK.sub('blk.*', what)}"] += one.seconds
    return total


def lines(name: str, seconds: dict[str, float]) -> list[str]:
    """Of a case, what took longest first, with its share; less than 0.1 % is left out."""
    whole = sum(seconds.values())
    found = [f"{name}: {1e3 * whole:.2f} ms a repeat by the first worker's clock, with its waiting"]
    for what, one in sorted(seconds.items(), key=lambda item: -item[1]):
        if one >= whole / 1000:
            found.append(f"{1e3 * one:10.2f} ms {one / whole:7.1%}  {what}")
    return found
