"""Whether given values satisfy a schema, and whether any value can satisfy several at once.

Constants are written out only when everything else in their schema holds for them, and the
schemas of a ``oneOf`` may be offered side by side only when no text satisfies two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from golem_core.sample.grammar import merged
from golem_core.sample.grammar.automaton import Automaton
from golem_core.sample.grammar.document import (
    Alternative,
    Document,
    Flat,
    identity,
    is_double,
    is_number,
)

_PYTHON_TYPES = {"string": str, "array": list, "object": dict, "boolean": bool}


class Judge:
    """Answers about a document. sure: yes only when every dialect of patterns says so; otherwise
    yes when any does."""

    def __init__(self, document: Document):
        self._document = document
        self._possible: dict[tuple[str, ...], bool] = {}

    def holds(self, value: Any, path: str, sure: bool) -> bool:
        """Whether a value satisfies the schema at a path."""
        return any(self.satisfies(value, a, sure) for a in self._document.expand(path))

    def satisfies(self, value: Any, alternative: Alternative, sure: bool) -> bool:
        """The same for an alternative, and no other schema of a oneOf that it chose from."""
        if not all(self._flat(value, flat, sure) for flat in alternative.flats):
            return False
        for path, chosen in alternative.chosen:
            for i in range(len(self._document.at(path)["oneOf"])):
                other = self._document.child(path, "oneOf", i)
                if i != chosen and self.holds(value, other, not sure):
                    return False
        return True

    # ---- a value ----

    def _flat(self, value: Any, flat: Flat, sure: bool) -> bool:
        if not any(_is(value, name) for name in merged.types([flat], inferred=False)):
            return False
        if flat.constants is not None and identity(value) not in flat.constants:
            return False
        if isinstance(value, str):
            automaton = merged.text([flat], wide=not sure)
            return automaton is None or automaton.accepts(value)
        if is_number(value):
            return _number(value, flat)
        if isinstance(value, list):
            return self._list(value, flat, sure)
        return not isinstance(value, dict) or self._dict(value, flat, sure)

    def _list(self, value: list[Any], flat: Flat, sure: bool) -> bool:
        if not flat.get("minItems", 0) <= len(value) <= flat.get("maxItems", len(value)):
            return False
        if flat.get("uniqueItems") and len(set(map(identity, value))) < len(value):
            return False
        return all(
            self.holds(item, path, sure)
            for i, item in enumerate(value)
            for path in merged.item(self._document, [flat], i)
        )

    def _dict(self, value: dict[str, Any], flat: Flat, sure: bool) -> bool:
        if not flat.get("minProperties", 0) <= len(value) <= flat.get("maxProperties", len(value)):
            return False
        if any(name not in value for name in flat.get("required", ())):
            return False
        if "propertyNames" in flat.schema:
            path = self._document.child(flat.path, "propertyNames")
            if not all(self.holds(name, path, sure) for name in value):
                return False
        return all(
            self.holds(member, path, sure)
            for name, member in value.items()
            for path in self.member(flat, name, sure)
        )

    def member(self, flat: Flat, name: str, sure: bool) -> list[str]:
        """Paths of the schemas that speak of a member. Where dialects differ on whether a pattern
        matches the name: all that may when a sure answer is wanted, else those that surely do."""
        paths = []
        if name in flat.get("properties", ()):
            paths.append(self._document.child(flat.path, "properties", name))
        surely = False
        for pattern in flat.get("patternProperties", ()):
            narrow, wide = self.key_automata(flat, pattern)
            surely |= narrow.accepts(name)
            if (wide if sure else narrow).accepts(name):
                paths.append(self._document.child(flat.path, "patternProperties", pattern))
        rest = merged.rest_keyword(flat)
        if rest and name not in flat.get("properties", ()) and not (surely if sure else paths):
            paths.append(self._document.child(flat.path, rest))
        return paths

    def key_automata(self, flat: Flat, pattern: str) -> tuple[Automaton, Automaton]:
        """A pattern of keys: what surely matches, what may."""
        narrow, wide = (
            merged.pattern_automaton(pattern, flat.path, "patternProperties", wide=w)
            for w in (False, True)
        )
        return narrow, wide

    # ---- any value ----

    def possible(self, paths: Sequence[str]) -> bool:
        """False only when no value at all satisfies the schemas at these paths."""
        key = tuple(sorted(set(paths)))
        if key not in self._possible:
            self._possible[key] = True  # what it contains of itself decides nothing
            self._possible[key] = any(
                self.any_satisfies(a.flats) for a in self._document.together(key)
            )
        return self._possible[key]

    def any_satisfies(self, flats: Sequence[Flat], written: Sequence[Flat] = ()) -> bool:
        """False only when no value satisfies all flats.

        written: of these, only such values count as a grammar writes for them: of the type their
        keywords suggest, without members they do not name, with the items they list.
        """
        values = merged.constants(flats)
        if values is not None:
            whole = Alternative(tuple(flats))
            return any(self.satisfies(value, whole, False) for value in values)
        types = merged.types(flats, inferred=False)
        if written:
            types &= merged.types(written, inferred=True) | (
                {"integer"} if "number" in merged.types(written, inferred=True) else set()
            )
        for name in types:
            if name in ("null", "boolean"):
                return True
            if name in ("integer", "number") and _range(flats, name == "integer"):
                return True
            if name == "string":
                automaton = merged.text(flats, wide=True)
                if automaton is None or not automaton.never:
                    return True
            if name == "array" and self._any_list(flats, written):
                return True
            if name == "object" and self._any_dict(flats, written):
                return True
        return False

    def _any_list(self, flats: Sequence[Flat], written: Sequence[Flat]) -> bool:
        low, high = merged.least(flats, "minItems"), merged.most(flats, "maxItems")
        if written and high is None:
            low = max(low, merged.tuple_length(written))
        if high is not None and low > high:
            return False
        return all(
            self.possible(merged.item(self._document, flats, i))
            for i in range(min(low, merged.tuple_length(flats) + 1))
        )

    def _any_dict(self, flats: Sequence[Flat], written: Sequence[Flat]) -> bool:
        required = merged.required(flats)
        high = merged.most(flats, "maxProperties")
        if high is not None and max(len(required), merged.least(flats, "minProperties")) > high:
            return False
        if written and not writes_others(written) and not required <= set(merged.names(written)):
            return False
        return all(
            self.possible([path for flat in flats for path in self.member(flat, name, False)])
            for name in required
        )


def writes_others(flats: Sequence[Flat]) -> bool:
    """Whether a grammar offers members beyond those named."""
    return writes_unmatched(flats) or any(flat.get("patternProperties") for flat in flats)


def writes_unmatched(flats: Sequence[Flat]) -> bool:
    """Whether it offers members whose keys no pattern matches either: where a schema speaks of
    them, or none names any."""
    if any(merged.rest_keyword(flat) for flat in flats):
        return True
    return not any("properties" in flat.schema for flat in flats)


def _is(value: Any, name: str) -> bool:
    if name == "null":
        return value is None
    if name in ("integer", "number"):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return is_number(value) and (whole or name == "number")
    return isinstance(value, _PYTHON_TYPES[name])


def _number(value: float, flat: Flat) -> bool:
    for keyword, fine in (
        ("minimum", lambda bound: value >= bound),
        ("exclusiveMinimum", lambda bound: value > bound),
        ("maximum", lambda bound: value <= bound),
        ("exclusiveMaximum", lambda bound: value < bound),
    ):
        if keyword in flat.schema and not fine(flat.get(keyword)):
            return False
    step = flat.get("multipleOf")
    if step is None:
        return True
    if not is_double(value):
        return False  # no validator could divide it
    # By the decimals that were written, and by doubles as most validators divide.
    exact = Fraction(str(value)) % Fraction(str(step)) == 0
    quotient = value / step
    return exact and quotient == int(quotient)


def _range(flats: Sequence[Flat], whole: bool) -> bool:
    low, high = merged.bounds(flats)
    if low is None or high is None:
        return True
    if whole:
        first, last = merged.numbers.rounded(low, True), merged.numbers.rounded(high, False)
        return first is not None and last is not None and first.value <= last.value
    return low.value < high.value or (low.value == high.value and not (low.open or high.open))
