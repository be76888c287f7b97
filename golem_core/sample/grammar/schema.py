"""JSON schemas as grammars, exactly: every text that a schema's grammar admits is valid.

The grammar writes what llama.cpp's converter writes for the keywords both keep (blanks, the order
of members, digits), and keeps more of them: bounds of numbers, multiples, patterns in general,
names by pattern, how many members. What it cannot keep it refuses, naming keyword and path;
nothing is dropped. Where a schema leaves the order or the number of things open, the grammar may
offer less than all valid texts: members come in the order they are declared or with the required
ones first, tuples come whole, members that nobody named only where the schema speaks of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from golem_core.sample.grammar import json_text, merged, numbers
from golem_core.sample.grammar.automaton import Automaton, TooLarge, words
from golem_core.sample.grammar.collecting import paused
from golem_core.sample.grammar.document import (
    Alternative,
    Document,
    Flat,
    identity,
    keyword_of,
)
from golem_core.sample.grammar.errors import GrammarError, GrammarLimit, SchemaError
from golem_core.sample.grammar.expressions import (
    NEVER,
    NOTHING,
    Expression,
    Rule,
    Text,
    alt,
    repeat,
    seq,
    text,
)
from golem_core.sample.grammar.grammar import Grammar
from golem_core.sample.grammar.json_text import SPACE
from golem_core.sample.grammar.judge import Judge
from golem_core.sample.grammar.notation import JSON, Notation
from golem_core.sample.grammar.objects import Objects

JSON_OBJECT = {"type": "object"}  # what response_format json_object means

MOST_ITEMS = 10_000  # that are counted
MOST_MATCHED = 1 << 16  # states of all different texts: some 50 us of a request's time each
MOST_DIFFERENT = 8  # items of a list without repetitions: one rule for each set of them
MOST_COMBINED = 2000  # sets of several schemas about one value
FEW_TEXTS = 32
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


@paused()
def expression_of(schema: Any, notation: Notation = JSON) -> Expression:
    """The texts of a schema's values, to be put into a larger grammar. Raises SchemaError.

    A schema that no value satisfies gives an expression of no text.
    """
    return _converted(schema, notation)[1]


def _converted(schema: Any, notation: Notation = JSON) -> tuple[Converter, Expression]:
    converter = Converter(Document(schema), notation)
    try:
        return converter, converter.convert()
    except RecursionError:
        raise SchemaError("", "#", "the schema is nested too deeply") from None


def grammar_of(schema: Any, *, padded: bool = False, notation: Notation = JSON) -> Grammar:
    """The grammar of a schema. padded: with blanks around the value. Raises SchemaError."""
    converter, value = _converted(schema, notation)
    try:
        grammar = Grammar(seq(SPACE, value, SPACE) if padded else value, prune=True)
    except GrammarLimit as error:
        raise SchemaError("", "#", f"the schema is too large: {error}") from None
    except GrammarError as error:
        raise SchemaError("$ref", "#", f"$ref: {error}") from None
    if grammar.never:
        if not converter.nothing:  # nothing is forbidden, so it never comes to an end
            reason = "no value satisfies the schema: $ref asks for ever more of it"
            raise SchemaError("$ref", "#", reason)
        keyword, path = converter.nothing[0]
        raise SchemaError(keyword, path, f"no value satisfies the schema: {keyword} leaves none")
    return grammar


class Converter:
    """Turns one document into expressions."""

    def __init__(self, document: Document, notation: Notation = JSON):
        self.document = document
        self.notation = notation
        self.judge = Judge(document)
        self.strings = {free: notation.strings(free) for free in (True, False)}
        self.keys = {free: notation.keys(self.strings[free]) for free in (True, False)}
        self._rules: dict[tuple[str, ...], Rule] = {}
        self._waiting: list[tuple[tuple[str, ...], Rule]] = []
        self._combined = 0
        self._texts: dict[Automaton, int] = {}  # what strings must be, and its states
        self._numbers: dict[tuple[object, ...], Expression | None] = {}
        self._objects = Objects(self)
        self.nothing: list[tuple[str, str]] = []  # (keyword, path) of what left no value somewhere

    def convert(self) -> Expression:
        """The expression of the whole document."""
        root = self.value(["#"])
        while self._waiting:
            paths, rule = self._waiting.pop()
            self._objects.begin()
            options = [self._alternative(a) for a in self.document.together(paths)]
            if not options:
                self._nothing_is_chosen(paths)
            rule.body = alt(*options)
        return root

    def value(self, paths: Iterable[str]) -> Expression:
        """A value that satisfies the schemas at these paths; written once, however often used."""
        schemas = {path: self.document.at(path) for path in paths}
        for path, schema in schemas.items():
            if schema is False:
                self.nothing.append((keyword_of(path), path))
                return NEVER
        key = tuple(sorted(path for path, schema in schemas.items() if schema is not True))
        if not key:
            return self.notation.value
        rule = self._rules.get(key)
        if rule is None:
            self._combined += len(key) > 1
            if self._combined > MOST_COMBINED:
                reason = f"allOf: more than {MOST_COMBINED} combinations of schemas"
                raise SchemaError("allOf", key[0], reason)
            rule = self._rules[key] = Rule(key[0])
            self._waiting.append((key, rule))
        return rule

    def _alternative(self, alternative: Alternative) -> Expression:
        flats = alternative.flats
        constants = merged.constants(flats)
        if constants is not None:
            fine = [v for v in constants if self.judge.satisfies(v, alternative, True)]
            if not fine:
                self.never(flats, "const", "enum")
            return _one_of(dict.fromkeys(self.notation.literal(value) for value in fine))
        self._tell_apart(alternative)
        options = []
        for name in sorted(merged.types(flats, inferred=True)):
            options.append(getattr(self, f"_{name}")(flats))
        return alt(*options) if options else self.never(flats, "type")

    def _tell_apart(self, alternative: Alternative) -> None:
        """No text of this alternative may satisfy another schema of a oneOf it chose from."""
        for path, chosen in alternative.chosen:
            for i in range(len(self.document.at(path)["oneOf"])):
                if i == chosen:
                    continue
                for other in self.document.expand(self.document.child(path, "oneOf", i)):
                    together = (*alternative.flats, *other.flats)
                    if self.judge.any_satisfies(together, alternative.flats):
                        raise SchemaError(
                            "oneOf",
                            path,
                            f"oneOf: a value may satisfy both schema {chosen} and schema {i}, "
                            "counted from 0, and must not; tell them apart by a required "
                            "property with different constants, or use anyOf",
                        )

    def _nothing_is_chosen(self, paths: Sequence[str]) -> None:
        """Notes why schemas have no alternative at all: one of them chooses among none."""
        for path in paths:
            schema = self.document.at(path)
            if not self.document.expand(path) and isinstance(schema, dict):
                keywords = ("anyOf", "oneOf", "allOf", "$ref")
                self.nothing += [(k, path) for k in keywords if k in schema][:1]

    def never(self, flats: Sequence[Flat], *keywords: str) -> Expression:
        """No text; notes the first of these keywords that is there as the reason."""
        for keyword in keywords:
            for flat in flats:
                if keyword in flat.schema:
                    self.nothing.append((keyword, flat.path))
                    return NEVER
        return NEVER

    # ---- one type each ----

    def _null(self, flats: Sequence[Flat]) -> Expression:
        return json_text.NULL

    def _boolean(self, flats: Sequence[Flat]) -> Expression:
        return json_text.BOOLEAN

    def _integer(self, flats: Sequence[Flat]) -> Expression:
        return self._numeric(flats, whole=True)

    def _number(self, flats: Sequence[Flat]) -> Expression:
        return self._numeric(flats, whole=False)

    def _numeric(self, flats: Sequence[Flat], whole: bool) -> Expression:
        low, high = merged.bounds(flats)
        step = merged.step(flats)
        if whole or step:
            low, high = numbers.rounded(low, lower=True), numbers.rounded(high, lower=False)
            whole = True
        if low is None and high is None and step <= 1:
            return json_text.INTEGER if whole else json_text.NUMBER
        key = (low, high, whole, step)
        if key not in self._numbers:
            found = self._bounded(flats, *key)
            self._numbers[key] = None if found.never else json_text.plain(found, "number")
        return self._numbers[key] or self.never(flats, "multipleOf", *_BOUNDS)

    def _bounded(
        self,
        flats: Sequence[Flat],
        low: numbers.Bound | None,
        high: numbers.Bound | None,
        whole: bool,
        step: int,
    ) -> Automaton:
        try:
            return numbers.automaton(low, high, whole=whole, step=step)
        except TooLarge:
            keyword = "multipleOf" if step > 1 else "minimum"
            path = next((f.path for f in flats if keyword in f.schema), flats[0].path)
            reason = f"{keyword} {step or ''} is more than this server counts"
            raise SchemaError(keyword, path, reason) from None

    def _string(self, flats: Sequence[Flat]) -> Expression:
        found = merged.text(flats)
        if found is None:
            return self.notation.string
        if found.never:
            return self.never(flats, "pattern", "format", "minLength")
        matching = [f for f in flats if "pattern" in f.schema or f.get("format") in merged.FORMATS]
        self._texts[found] = len(found.edges)
        if sum(self._texts.values()) > MOST_MATCHED:
            asks = ("pattern", "format", "maxLength", "minLength")
            keyword, path = next((k, f.path) for k in asks for f in flats if k in f.schema)
            reason = f"{keyword}: the texts of this schema come to more than this server counts"
            raise SchemaError(keyword, path, reason)
        return self.strings[not matching].spell(found)

    def _array(self, flats: Sequence[Flat]) -> Expression:
        low, high = merged.least(flats, "minItems"), merged.most(flats, "maxItems")
        listed = merged.tuple_length(flats)
        if listed:
            low = max(low, listed if high is None else min(listed, high))
            if high is None and not merged.has_rest(flats) and low <= listed:
                high = listed
        unique = next((f for f in flats if f.get("uniqueItems")), None)
        if unique is not None and (high is None or high > 1):
            return self._different(unique, flats, low, high, listed)
        if max(low, high or 0) > MOST_ITEMS:
            keyword = "minItems" if low > MOST_ITEMS else "maxItems"
            path = next(f.path for f in flats if keyword in f.schema)
            raise SchemaError(keyword, path, f"{keyword} above {MOST_ITEMS} is not counted")
        if high is not None and low > high:
            return self.never(flats, "maxItems")
        items = [self.value(merged.item(self.document, flats, i)) for i in range(listed)]
        rest = self.value(merged.item(self.document, flats, listed))
        space = self.notation.space
        return self.notation.brackets(_items(items, rest, low, high, space))

    def _different(
        self, unique: Flat, flats: Sequence[Flat], low: int, high: int | None, listed: int
    ) -> Expression:
        """A list without the same item twice, of items that are a few constants."""
        values = None if listed else self._constants(merged.item(self.document, flats, 0))
        if values is None or len(values) > MOST_DIFFERENT:
            raise SchemaError(
                "uniqueItems",
                unique.path,
                f"uniqueItems is kept for items that are an enum of at most {MOST_DIFFERENT}, and "
                "for no others; leave it out, or ask for an object with a property for each item",
            )
        high = min(len(values), len(values) if high is None else high)
        if low > high:
            return self.never(flats, "minItems", "uniqueItems")
        return self.notation.brackets(_different(values, low, high, self.notation.space))

    def _constants(self, paths: Iterable[str]) -> list[Text] | None:
        """The texts of all values that satisfy these schemas, None where they are not listed."""
        found: dict[Any, Text] = {}
        for alternative in self.document.together(paths):
            flats = alternative.flats
            values = merged.constants(flats)
            if values is None and merged.types(flats, inferred=True) <= {"boolean", "null"}:
                values = [False, True, None]
            if values is None:
                return None
            for value in values:
                if self.judge.satisfies(value, alternative, True):
                    found.setdefault(identity(value), self.notation.literal(value))
        return list(found.values())

    def _object(self, flats: Sequence[Flat]) -> Expression:
        return self._objects.write(flats)


def _one_of(texts: Iterable[Text]) -> Expression:
    """Any of these texts; many share what they begin with."""
    texts = list(texts)
    if len(texts) > FEW_TEXTS:
        with contextlib.suppress(TooLarge):
            return json_text.plain(words(t.data.decode() for t in texts), "enum")
    return alt(*texts)


def _items(
    items: list[Expression], rest: Expression, low: int, high: int | None, space: Expression
) -> Expression:
    """``low`` to ``high`` items with commas between: those listed, as many as may be, then others.

    low: no less than what is listed and may be there.
    """
    following = seq(",", space, rest)
    items = items[:high]
    if items:
        most = None if high is None else high - len(items)
        return seq(*_between(items, space), repeat(following, low - len(items), most))
    if high == 0:
        return NOTHING
    most = None if high is None else high - 1
    one = seq(rest, repeat(following, max(0, low - 1), most))
    return one if low else alt(one, NOTHING)


def _different(items: list[Text], low: int, high: int, space: Expression) -> Expression:
    """``low`` to ``high`` of the items in any order, none twice, with commas between."""
    rules: dict[tuple[int, ...], Rule] = {}

    def options(left: tuple[int, ...]) -> Iterable[Expression]:
        taken = len(items) - len(left)
        if taken >= low:
            yield NOTHING
        if taken < high:
            comma = seq(",", space) if taken else NOTHING
            for i in left:
                yield seq(comma, items[i], rest(tuple(other for other in left if other != i)))

    def rest(left: tuple[int, ...]) -> Rule:
        if left not in rules:
            rules[left] = Rule(f"different {left}")
            rules[left].body = alt(*options(left))
        return rules[left]

    return rest(tuple(range(len(items))))


def _between(items: list[Expression], space: Expression) -> Iterable[Expression]:
    for i, item in enumerate(items):
        if i:
            yield text(",")
            yield space
        yield item
