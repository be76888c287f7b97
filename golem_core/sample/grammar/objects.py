"""Objects of schemas: which members, in which order, how many, and what else may be there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from golem_core.sample.grammar import merged
from golem_core.sample.grammar.automaton import Automaton, TooLarge, both, negated, words
from golem_core.sample.grammar.document import Flat
from golem_core.sample.grammar.errors import SchemaError
from golem_core.sample.grammar.expressions import (
    NEVER,
    NOTHING,
    Expression,
    Rule,
    alt,
    seq,
)
from golem_core.sample.grammar.judge import writes_others, writes_unmatched

if TYPE_CHECKING:
    from golem_core.sample.grammar.schema import Converter

MOST_PATTERNS = 6  # each doubles the kinds of keys there may be
MOST_COUNTED = 1000
MOST_OPTIONAL = 1000  # members that may come next: what a mask costs grows with their square


class Objects:
    """The objects of one document."""

    def __init__(self, converter: Converter):
        self._converter = converter
        self._document = converter.document
        self._judge = converter.judge
        self._notation = converter.notation
        self._optional = 0  # members of the value being written that may be left out

    def begin(self) -> None:
        """Another value begins, whose alternatives are then written."""
        self._optional = 0

    def write(self, flats: Sequence[Flat]) -> Expression:
        """The objects that satisfy all of the schemas."""
        names = merged.names(flats)
        required = merged.required(flats)
        members: dict[str, Expression] = {}
        for name in names:
            member = self._named(flats, name)
            if member is not None:
                members[name] = self._notation.pair(self._notation.name(name), member)
            elif name in required:
                return self._converter.never(flats, "required")
        low, high = merged.least(flats, "minProperties"), merged.most(flats, "maxProperties")
        if high is not None and max(low, len(required)) > high:
            return self._converter.never(flats, "maxProperties")
        needs_more = low > len(members)
        others = NEVER
        if writes_others(flats) or needs_more:
            others = self._others(flats, names, writes_unmatched(flats) or needs_more)
        if low > len(members) + (others is not NEVER):
            path = next(f.path for f in flats if f.get("minProperties") == low)
            raise SchemaError(
                "minProperties",
                path,
                f"minProperties {low} is not kept exactly: members beyond those named may repeat "
                "a key",
            )
        if high is not None and high >= len(members) and others is NEVER:
            high = None
        if low <= len(required):
            low = 0
        if max(low, high or 0) > MOST_COUNTED:
            keyword = "minProperties" if low > MOST_COUNTED else "maxProperties"
            path = next(f.path for f in flats if keyword in f.schema)
            raise SchemaError(keyword, path, f"{keyword} above {MOST_COUNTED} is not counted")
        if not members and low == 0 and high is None and others is not NEVER:
            return self._notation.braces(alt(self._notation.listed(others), NOTHING))
        first = [name for name in members if name in required]
        then = [name for name in members if name not in required]
        orders = dict.fromkeys([tuple(first + then), tuple(members)])
        self._optional += len(then)
        if self._optional > MOST_OPTIONAL:
            path = next(f.path for f in flats if "properties" in f.schema)
            reason = (
                f"properties: more than {MOST_OPTIONAL} members of this object, or of those it may "
                "be instead, can be left out; name more of them in required"
            )
            raise SchemaError("properties", path, reason)
        space = self._notation.space
        inner = [_Order(members, o, required, others, low, high, space).start() for o in orders]
        return self._notation.braces(alt(*inner))

    def _named(self, flats: Sequence[Flat], name: str) -> Expression | None:
        """The value of a named member, None when there may be no such member."""
        paths: list[str] = []
        for flat in flats:
            for pattern in flat.get("patternProperties", ()):
                narrow, wide = self._judge.key_automata(flat, pattern)
                if narrow.accepts(name) != wide.accepts(name):
                    raise SchemaError(
                        "patternProperties",
                        flat.path,
                        f"patternProperties {pattern!r}: dialects of regular expressions "
                        f"disagree on whether it matches {name!r}",
                    )
            if "propertyNames" in flat.schema:
                path = self._document.child(flat.path, "propertyNames")
                if not self._judge.holds(name, path, True):
                    return None
            paths += self._judge.member(flat, name, True)
        if any(self._document.at(path) is False for path in paths):
            return None
        return self._converter.value(paths)

    # ---- members that have no name of their own ----

    def _others(self, flats: Sequence[Flat], names: Sequence[str], unmatched: bool) -> Expression:
        """One member whose key is none of the names. unmatched: also keys that match nothing."""
        patterns = [(f, p) for f in flats for p in f.get("patternProperties", ())]
        if len(patterns) > MOST_PATTERNS:
            raise SchemaError(
                "patternProperties",
                patterns[-1][0].path,
                f"patternProperties: more than {MOST_PATTERNS} patterns for one object",
            )
        options = []
        for matched in itertools.product((True, False), repeat=len(patterns)):
            paths = self._paths_of_others(flats, patterns, matched)
            if paths is None or not (unmatched or any(matched)):
                continue
            key = self._key(flats, names, patterns, matched)
            if key is not None:
                options.append(self._notation.pair(key, self._converter.value(paths)))
        return alt(*options) if options else NEVER

    def _paths_of_others(
        self,
        flats: Sequence[Flat],
        patterns: Sequence[tuple[Flat, str]],
        matched: Sequence[bool],
    ) -> list[str] | None:
        """Schemas of a member whose key matches these patterns and no others; None: none may."""
        paths = []
        for flat in flats:
            own = [p for (f, p), m in zip(patterns, matched, strict=True) if m and f is flat]
            paths += [self._document.child(flat.path, "patternProperties", p) for p in own]
            rest = merged.rest_keyword(flat)
            if rest and not own:
                paths.append(self._document.child(flat.path, rest))
        return None if any(self._document.at(path) is False for path in paths) else paths

    def _key(
        self,
        flats: Sequence[Flat],
        names: Sequence[str],
        patterns: Sequence[tuple[Flat, str]],
        matched: Sequence[bool],
    ) -> Expression | None:
        """A key that surely matches what it should, surely nothing else, and is no name."""
        try:
            found: list[Automaton] = [negated(words(names))] if names else []
            for (flat, pattern), m in zip(patterns, matched, strict=True):
                narrow, wide = self._judge.key_automata(flat, pattern)
                found.append(narrow if m else negated(wide))
            found += self._key_schemas(flats)
            if not found:
                return self._notation.key
            key = found[0]
            for automaton in found[1:]:
                key = both(key, automaton)
        except TooLarge:
            path = (patterns or [(flats[0], "")])[0][0].path
            reason = "patternProperties together allow keys of too many kinds"
            raise SchemaError("patternProperties", path, reason) from None
        if key.never:
            return None
        by_pattern = len(found) > 1 or not names
        return self._converter.keys[not by_pattern].spell(key, "key")

    def _key_schemas(self, flats: Sequence[Flat]) -> list[Automaton]:
        """What propertyNames asks of keys."""
        found = []
        for flat in flats:
            if "propertyNames" not in flat.schema:
                continue
            path = self._document.child(flat.path, "propertyNames")
            alternatives = self._document.expand(path)
            if len(alternatives) != 1 or alternatives[0].chosen:
                if not alternatives:
                    found.append(words(()))
                    continue
                raise SchemaError(
                    "propertyNames", flat.path, "propertyNames with alternatives is not kept"
                )
            inner = alternatives[0]
            constants = merged.constants(inner.flats)
            if constants is not None:
                fine = [v for v in constants if isinstance(v, str)]
                found.append(words(v for v in fine if self._judge.satisfies(v, inner, True)))
            elif "string" not in merged.types(inner.flats, inferred=False):
                found.append(words(()))
            else:
                automaton = merged.text(inner.flats)
                found += [] if automaton is None else [automaton]
        return found


class _Order:
    """Members in one order, optional ones left out at will, and others after them.

    A rule says what may follow when so much was written. The others may repeat a key: of them,
    one counts towards the least number of members, and all towards the most.
    """

    def __init__(
        self,
        members: dict[str, Expression],
        order: Sequence[str],
        required: set[str],
        others: Expression,
        low: int,
        high: int | None,
        space: Expression,
    ):
        self._members = members
        self._order = order
        self._required = required
        self._others = others
        self._low = low
        self._high = high
        self._comma = seq(",", space)
        self._most_named = max(low, high or 0, 1)
        self._most_others = max(high or 0, 1)
        self._rules: dict[tuple[int, int, int], Rule] = {}
        self._waiting: list[tuple[int, int, int]] = []

    def start(self) -> Expression:
        rule = self._after(0, 0, 0)
        while self._waiting:
            key = self._waiting.pop()
            self._rules[key].body = alt(*self._options(*key))
        return rule

    def _after(self, place: int, named: int, others: int) -> Expression:
        """What may follow at a place of the order, counted no further than it matters."""
        key = (place, min(named, self._most_named), min(others, self._most_others))
        if key not in self._rules:
            self._rules[key] = Rule("members")
            self._waiting.append(key)
        return self._rules[key]

    def _options(self, place: int, named: int, others: int) -> Iterator[Expression]:
        room = self._high is None or named + others < self._high
        comma = self._comma if named + others else NOTHING
        if place < len(self._order):
            name = self._order[place]
            if room:
                yield seq(comma, self._members[name], self._after(place + 1, named + 1, 0))
            if name not in self._required:
                yield self._after(place + 1, named, 0)
            return
        if room and self._others is not NEVER:
            yield seq(comma, self._others, self._after(place, named, others + 1))
        if named + min(others, 1) >= self._low:
            yield NOTHING
