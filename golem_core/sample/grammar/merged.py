"""What several schemas together ask of a value of one type."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from golem_core.sample.grammar import numbers, patterns
from golem_core.sample.grammar.automaton import Automaton, TooLarge, both, of_length
from golem_core.sample.grammar.document import Document, Flat
from golem_core.sample.grammar.errors import SchemaError

SHOWN = 80  # characters of a pattern in an error

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

# Days and times that exist, as RFC 3339 writes them. Other formats say something about a text
# without limiting it, as JSON Schema has it unless told otherwise.
FORMATS = {"date": _DATE, "time": _TIME, "date-time": f"{_DATE}T{_TIME}", "uuid": _UUID}
FORMATS |= {f"uuid{version}": _UUID for version in range(1, 6)}


def types(flats: Sequence[Flat], *, inferred: bool) -> frozenset[str]:
    """The types a value may have; "number" includes whole ones, "integer" is only those.

    inferred: where none is named, take the one whose keywords are there, as llama.cpp does.
    """
    result = frozenset(["null", "boolean", "number", "string", "array", "object"])
    named = False
    for flat in flats:
        sent = flat.get("type")
        if sent is None:
            continue
        named = True
        own = {sent} if isinstance(sent, str) else set(sent)
        if "number" in own:
            own.discard("integer")
            own |= {"integer"} if "integer" in result else set()
        elif "integer" in own and "number" in result:
            result = (result - {"number"}) | {"integer"}
        result &= own
    return result if named or not inferred else _inferred(flats) or result


def _inferred(flats: Sequence[Flat]) -> frozenset[str]:
    def any_has(*keywords: str) -> bool:
        return any(keyword in flat.schema for flat in flats for keyword in keywords)

    if any_has("properties") or any(f.get("additionalProperties", True) is not True for f in flats):
        return frozenset(["object"])
    if any_has("items", "prefixItems"):
        return frozenset(["array"])
    known = any(flat.get("format") in FORMATS for flat in flats)
    return frozenset(["string"] if known or any_has("pattern", "minLength", "maxLength") else ())


def constants(flats: Sequence[Flat]) -> list[Any] | None:
    """The values that const and enum leave, None when there are neither."""
    lists = [flat.constants for flat in flats if flat.constants is not None]
    if not lists:
        return None
    return [v for key, v in lists[0].items() if all(key in other for other in lists[1:])]


def most(flats: Iterable[Flat], keyword: str) -> int | None:
    """The smallest of several upper bounds."""
    return min((f.get(keyword) for f in flats if keyword in f.schema), default=None)


def least(flats: Iterable[Flat], keyword: str) -> int:
    """The largest of several lower bounds."""
    return max((f.get(keyword) for f in flats if keyword in f.schema), default=0)


def bounds(flats: Sequence[Flat]) -> tuple[numbers.Bound | None, numbers.Bound | None]:
    """The range of a number."""

    def found(closed: str, opened: str) -> Iterable[numbers.Bound]:
        for flat in flats:
            for keyword in (closed, opened):
                if keyword in flat.schema:
                    yield numbers.Bound(flat.get(keyword), keyword == opened)

    return (
        numbers.tightest(found("minimum", "exclusiveMinimum"), lower=True),
        numbers.tightest(found("maximum", "exclusiveMaximum"), lower=False),
    )


def step(flats: Sequence[Flat]) -> int:
    """What a whole number must be a multiple of, 0 = nothing."""
    result = 0
    for flat in flats:
        value = flat.get("multipleOf")
        if value is None:
            continue
        if not float(value).is_integer():
            raise SchemaError(
                "multipleOf",
                flat.path,
                f"multipleOf {value} is not kept exactly: only whole numbers are",
            )
        result = math.lcm(result or 1, int(value))
    return result


def text(flats: Sequence[Flat], *, wide: bool = False) -> Automaton | None:
    """The texts that patterns, formats and lengths leave; None when there are none of those.

    wide: texts that may satisfy them, by whatever reading, instead of those that surely do.
    """
    result: Automaton | None = None
    for flat in flats:
        for keyword, pattern in _patterns(flat):
            found = pattern_automaton(pattern, flat.path, keyword, wide=wide)
            result = found if result is None else _both(result, found, keyword, flat.path)
    low, high = least(flats, "minLength"), most(flats, "maxLength")
    if low or high is not None:
        keyword = "minLength" if low > (high or 0) else "maxLength"
        path = next(f.path for f in flats if keyword in f.schema or "minLength" in f.schema)
        try:
            lengths = of_length(low, high)
        except TooLarge:
            shown = f"{keyword} {max(low, high or 0)}"
            raise SchemaError(keyword, path, f"{shown} is more than this server counts") from None
        result = lengths if result is None else _both(result, lengths, keyword, path)
    return result


def _patterns(flat: Flat) -> Iterable[tuple[str, str]]:
    if "pattern" in flat.schema:
        yield "pattern", flat.get("pattern")
    if flat.get("format") in FORMATS:
        yield "format", f"^{FORMATS[flat.get('format')]}$"


def _both(a: Automaton, b: Automaton, keyword: str, path: str) -> Automaton:
    try:
        return both(a, b)
    except TooLarge:
        reason = f"{keyword} together with what else is asked of the text is too large"
        raise SchemaError(keyword, path, reason) from None


def pattern_automaton(pattern: str, path: str, keyword: str, *, wide: bool = False) -> Automaton:
    """A pattern's automaton, or a SchemaError that names keyword and path."""
    try:
        return patterns.automaton(pattern, wide=wide)
    except patterns.PatternError as error:
        if error.invalid:
            message = f"Invalid pattern {pattern}: {error} ({keyword} at {path})"
            raise SchemaError(keyword, path, str(error), message) from None
        shown = pattern if len(pattern) <= SHOWN else pattern[:SHOWN] + "…"
        reason = f"{keyword} {shown!r} is not kept exactly: {error}"
        raise SchemaError(keyword, path, reason) from None


# ---- arrays ----


def item(document: Document, flats: Sequence[Flat], index: int) -> list[str]:
    """Paths of the schemas of an array's item."""
    paths = []
    for flat in flats:
        tuple_, rest = _item_keywords(flat)
        if tuple_ and index < len(flat.get(tuple_)):
            paths.append(document.child(flat.path, tuple_, index))
        elif rest:
            paths.append(document.child(flat.path, rest))
    return paths


def tuple_length(flats: Sequence[Flat]) -> int:
    """Items that have schemas of their own."""
    keywords = [(flat, _item_keywords(flat)[0]) for flat in flats]
    return max((len(flat.get(keyword)) for flat, keyword in keywords if keyword), default=0)


def has_rest(flats: Sequence[Flat]) -> bool:
    """Whether any schema speaks of the items after those."""
    return any(_item_keywords(flat)[1] for flat in flats)


def _item_keywords(flat: Flat) -> tuple[str, str]:
    """The keyword of the first items, and the one of those that follow; "" for none."""
    schema = flat.schema
    if "prefixItems" in schema:
        rest = "items"
        first = "prefixItems"
    elif isinstance(schema.get("items"), list):
        first, rest = "items", "additionalItems"
    else:
        first, rest = "", "items"
    if rest not in schema:
        rest = "unevaluatedItems" if schema.get("unevaluatedItems") is False else ""
    return first, rest


# ---- objects ----


def names(flats: Sequence[Flat]) -> list[str]:
    """Every name that a schema mentions, as declared; required ones nobody declares come last."""
    found = [name for flat in flats for name in flat.get("properties", ())]
    found += [name for flat in flats for name in flat.get("required", ())]
    return list(dict.fromkeys(found))


def required(flats: Sequence[Flat]) -> set[str]:
    return {name for flat in flats for name in flat.get("required", ())}


def rest_keyword(flat: Flat) -> str:
    """The keyword for members that nothing else speaks of, "" for none."""
    if "additionalProperties" in flat.schema:
        return "additionalProperties"
    return "unevaluatedProperties" if flat.get("unevaluatedProperties") is False else ""
