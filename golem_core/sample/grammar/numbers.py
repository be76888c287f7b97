"""Numbers within bounds, as the automaton that reads their digits.

A text is compared with a bound while it is read: the lengths of the whole parts, then the first
digit that differs. Whole numbers may have 16 digits (a longer bound allows its own length);
others have 15 at most and no exponent, so that two different texts are two different doubles and
a bound means the same to whoever reads them back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from golem_core.sample.grammar.automaton import Automaton, explore

WHOLE_DIGITS = 16
DIGITS = 15
MOST_COUNTED_STEP = 100

_START, _SIGN, _WHOLE, _POINT, _FRACTION = range(5)
_MINUS, _DOT, _ZERO, _NINE = ord("-"), ord("."), ord("0"), ord("9")


@dataclass(frozen=True)
class Bound:
    """One end of a range. value: int or float. open: the value itself is outside."""

    value: int | float
    open: bool


@dataclass(frozen=True)
class _Digits:
    """The size of a bound in decimal: digits before and after the point."""

    whole: str
    fraction: str
    negative: bool
    zero: bool
    open: bool

    @classmethod
    def of(cls, bound: Bound) -> _Digits:
        value = bound.value
        exact = Decimal(int(value)) if float(value).is_integer() else Decimal(repr(value))
        whole, _, fraction = format(abs(exact), "f").partition(".")
        fraction = fraction.rstrip("0")
        return cls(whole.lstrip("0") or "0", fraction, exact < 0, exact == 0, bound.open)

    def step(self, compared: int, place: int, digit: int, fraction: bool) -> int:
        """How the digits so far compare with this bound's as far: -1, 0 or 1."""
        own = self.fraction if fraction else self.whole
        if compared:
            return compared
        other = int(own[place]) if place < len(own) else 0 if fraction else -1
        return (digit > other) - (digit < other) if other >= 0 else 0

    def after_whole(self, compared: int, length: int) -> int:
        """The same once the whole part is over: a longer one is larger."""
        if length != len(self.whole):
            return 1 if length > len(self.whole) else -1
        return compared

    def at_end(self, compared: int, place: int) -> int:
        """The same at the end of the text, ``place`` digits after the point."""
        return -1 if not compared and place < len(self.fraction) else compared


class _State(NamedTuple):
    phase: int
    negative: bool
    nonzero: bool
    length: int  # digits of the whole part
    place: int  # digits after the point
    low: int  # compared with the bounds so far
    high: int
    rest: int  # of a division by the step


def automaton(low: Bound | None, high: Bound | None, *, whole: bool, step: int = 0) -> Automaton:
    """The decimal texts between two bounds.

    whole: without a fraction. step: only multiples of it (whole numbers), 0 = all. Raises TooLarge.
    """
    under, over = (None if b is None else _Digits.of(b) for b in (low, high))
    longest = DIGITS
    if whole:
        lengths = [len(b.whole) for b in (under, over) if b is not None]
        longest = max(lengths) if len(lengths) == 2 else max(WHOLE_DIGITS, *lengths, 0)
        if step > MOST_COUNTED_STEP and not lengths:
            longest = 0  # as many as it likes: to count them too takes too many states

    def digit_edges(s: _State) -> Iterable[tuple[int, int, _State]]:
        fraction = s.phase in (_POINT, _FRACTION)
        place = s.place if fraction else s.length
        for digit in range(10):
            yield (
                _ZERO + digit,
                _ZERO + digit,
                _State(
                    _FRACTION if fraction else _WHOLE,
                    s.negative,
                    s.nonzero or digit > 0,
                    min(s.length + (not fraction), longest or 2),
                    s.place + fraction,
                    0 if under is None else under.step(s.low, place, digit, fraction),
                    0 if over is None else over.step(s.high, place, digit, fraction),
                    (s.rest * 10 + digit) % step if step else 0,
                ),
            )

    def edges(s: _State) -> Iterable[tuple[int, int, _State]]:
        if s.phase == _START:
            yield _MINUS, _MINUS, s._replace(phase=_SIGN, negative=True)
        if s.phase == _WHOLE and not whole and s.length < longest:
            yield (
                _DOT,
                _DOT,
                s._replace(
                    phase=_POINT,
                    low=0 if under is None else under.after_whole(s.low, s.length),
                    high=0 if over is None else over.after_whole(s.high, s.length),
                ),
            )
        leading_zero = s.phase == _WHOLE and s.length == 1 and not s.nonzero
        if (s.length + s.place < longest or not longest) and not leading_zero:
            yield from digit_edges(s)

    def ends(s: _State) -> bool:
        if s.phase not in (_WHOLE, _FRACTION) or s.rest:
            return False
        negative = s.negative and s.nonzero
        if s.negative and not s.nonzero and under is not None and not under.negative:
            return False  # -0 only where numbers below 0 are
        for bound, compared, lower in ((under, s.low, True), (over, s.high, False)):
            if bound is None:
                continue
            if s.phase == _WHOLE:
                compared = bound.after_whole(compared, s.length)
            compared = bound.at_end(compared, s.place)
            if negative != bound.negative:
                compared = -1 if negative else 1
            elif negative:
                compared = -compared
            if compared == 0 and bound.open:
                return False
            if compared == (-1 if lower else 1):
                return False
        return True

    return explore(_State(_START, False, False, 0, 0, 0, 0, 0), edges, ends)


def tightest(bounds: Iterable[Bound], lower: bool) -> Bound | None:
    """The bound that implies all others."""
    best: Bound | None = None
    for bound in bounds:
        if (
            best is None
            or (bound.value > best.value if lower else bound.value < best.value)
            or (bound.value == best.value and bound.open)
        ):
            best = bound
    return best


def rounded(bound: Bound | None, lower: bool) -> Bound | None:
    """The bound of whole numbers that says the same."""
    if bound is None:
        return None
    if lower:
        value = math.floor(bound.value) + 1 if bound.open else math.ceil(bound.value)
    else:
        value = math.ceil(bound.value) - 1 if bound.open else math.floor(bound.value)
    return Bound(value, False)
