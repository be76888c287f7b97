"""A JSON schema as a document: where its parts are, what refers to what, and which sets of plain
keywords a value may satisfy.

``$ref``, ``allOf``, ``anyOf`` and ``oneOf`` are resolved here, so that whoever writes a grammar
sees alternatives of schemas that hold together, without any of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from golem_core.sample.grammar.errors import SchemaError

MOST_ALTERNATIVES = 256
DEEPEST = 64  # schemas referring to schemas about the same value

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_OTHER_APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf", "if")


@dataclass(frozen=True, eq=False)
class Flat:
    """A schema's keywords about one value. path: where it stands, "#/properties/a"."""

    path: str
    schema: dict[str, Any]

    def get(self, keyword: str, default: Any = None) -> Any:
        return self.schema.get(keyword, default)

    @cached_property
    def constants(self) -> dict[Hashable, Any] | None:
        """The values that const and enum leave, by their identities; None without them."""
        if "const" in self.schema and "enum" in self.schema:
            listed = {identity(v): v for v in self.schema["enum"]}
            own = identity(self.schema["const"])
            return {own: self.schema["const"]} if own in listed else {}
        if "const" in self.schema:
            return {identity(self.schema["const"]): self.schema["const"]}
        if "enum" in self.schema:
            return {identity(v): v for v in self.schema["enum"]}
        return None


@dataclass(frozen=True, eq=False)
class Alternative:
    """Flats that hold together. chosen: (path of a oneOf, which of its schemas) on the way."""

    flats: tuple[Flat, ...]
    chosen: tuple[tuple[str, int], ...] = ()

    def with_(self, other: Alternative) -> Alternative:
        return Alternative(self.flats + other.flats, self.chosen + other.chosen)


class Document:
    """A schema document. Raises SchemaError from every method that meets a part it cannot keep."""

    def __init__(self, root: Any):
        if not isinstance(root, dict):
            raise SchemaError("", "#", "schema must be an object")
        self._nodes: dict[str, Any] = {"#": root}
        self._expanded: dict[str, tuple[Alternative, ...]] = {}
        self._open: list[str] = []  # paths being expanded

    def at(self, path: str) -> Any:
        """The schema at a path that ``child`` or a reference gave."""
        return self._nodes[path]

    def child(self, path: str, *keys: str | int) -> str:
        """The path of a part of a schema."""
        for key in keys:
            node = self._nodes[path]
            path = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
            self._nodes[path] = node[key]
        return path

    def together(self, paths: Iterable[str]) -> list[Alternative]:
        """The alternatives of a value that satisfies the schemas at all of these paths."""
        result = [Alternative(())]
        for path in paths:
            result = _product(result, self.expand(path), "anyOf", path)
        return result

    def expand(self, path: str) -> tuple[Alternative, ...]:
        """The alternatives of the schema at a path; none when nothing satisfies it."""
        known = self._expanded.get(path)
        if known is not None:
            return known
        if path in self._open:
            raise SchemaError("$ref", path, "$ref comes back to itself without anything in between")
        if len(self._open) >= DEEPEST:
            keyword = keyword_of(path)
            keyword = keyword if keyword in ("allOf", "anyOf", "oneOf") else "$ref"
            reason = f"{keyword}: more than {DEEPEST} schemas within each other about one value"
            raise SchemaError(keyword, path, reason)
        self._open.append(path)
        try:
            result = tuple(self._expand(path))
        finally:
            self._open.pop()
        self._expanded[path] = result
        return result

    def _expand(self, path: str) -> Sequence[Alternative]:
        schema = self.at(path)
        if schema is True:
            return [Alternative(())]
        if schema is False:
            return []
        if not isinstance(schema, dict):
            raise SchemaError(keyword_of(path), path, "schema must be an object")
        check(path, schema)
        result = [Alternative((Flat(path, schema),))]
        if "$ref" in schema:
            target = self._resolve(path, schema["$ref"])
            result = _product(result, self.expand(target), "$ref", path)
        if "allOf" in schema:
            for part in self._parts(path, "allOf"):
                result = _product(result, self.expand(part), "allOf", path)
        if "anyOf" in schema:
            options = [a for part in self._parts(path, "anyOf") for a in self.expand(part)]
            result = _product(result, options, "anyOf", path)
        if "oneOf" in schema:
            options = [
                Alternative(a.flats, (*a.chosen, (path, i)))
                for i, part in enumerate(self._parts(path, "oneOf"))
                for a in self.expand(part)
            ]
            result = _product(result, options, "oneOf", path)
        return result

    def _parts(self, path: str, keyword: str) -> Iterator[str]:
        schemas = self.at(path)[keyword]
        where = self.child(path, keyword)
        if not isinstance(schemas, list):
            raise SchemaError(keyword, where, "must be an array of schemas")
        if not schemas:
            raise SchemaError(keyword, where, "must not be empty")
        for i in range(len(schemas)):
            yield self.child(where, i)

    def _resolve(self, path: str, reference: Any) -> str:
        if not isinstance(reference, str):
            raise SchemaError("$ref", path, "$ref must be a string")
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaError(
                "$ref",
                path,
                f"unsupported $ref {reference}, only references into the same document are "
                "supported",
            )
        target = "#"
        for part in reference.split("/")[1:]:
            key: str | int = unquote(part).replace("~1", "/").replace("~0", "~")
            node = self.at(target)
            if isinstance(node, list):
                if not (str(key).isdecimal() and int(key) < len(node)):
                    raise SchemaError(
                        "$ref", path, f"cannot resolve $ref {reference}, {key} is out of range"
                    )
                key = int(key)
            elif not isinstance(node, dict) or key not in node:
                raise SchemaError("$ref", path, f"cannot resolve $ref {reference}, {key} not found")
            target = self.child(target, key)
        return target


def keyword_of(path: str) -> str:
    """The keyword that the schema at a path stands in, "" for the document itself."""
    keyword, parts = "", iter(path.split("/")[1:])
    for keyword in parts:
        if keyword in _OF_SEVERAL:
            next(parts, None)
    return keyword


def _product(
    a: Sequence[Alternative], b: Sequence[Alternative], keyword: str, path: str
) -> list[Alternative]:
    if len(a) * len(b) > MOST_ALTERNATIVES:
        raise SchemaError(
            keyword, path, f"{keyword} leads to more than {MOST_ALTERNATIVES} combinations"
        )
    return [x.with_(y) for x, y in itertools.product(a, b)]


# ---- the form of keywords ----


def check(path: str, schema: dict[str, Any]) -> None:
    """Refuses keywords that make no sense, and those that are not kept."""
    for keyword, value in schema.items():
        form = _FORMS.get(keyword)
        if form is not None:
            form(path, keyword, value)
        elif keyword in _NOT_KEPT or (keyword in _NOT_KEPT_UNLESS_EMPTY and value not in ({}, [])):
            raise SchemaError(keyword, path, f"{keyword} is not kept exactly, so it is refused")
    if "if" in schema and ("then" in schema or "else" in schema):
        raise SchemaError("if", path, "if with then or else is not kept exactly, so it is refused")
    if schema.get("$id") is not None and path != "#":
        raise SchemaError("$id", path, "$id inside a schema changes what its $refs mean")
    for keyword in ("unevaluatedProperties", "unevaluatedItems"):
        value = schema.get(keyword, True)
        if value is True or value == {}:
            continue
        if value is not False or any(other in schema for other in _OTHER_APPLICATORS):
            reason = f"{keyword} with a schema, or beside others, is not kept exactly"
            raise SchemaError(keyword, path, reason)


_OF_SEVERAL = {"properties", "patternProperties", "prefixItems", "allOf", "anyOf", "oneOf"}
_OF_SEVERAL |= {"$defs", "definitions"}  # keywords that hold schemas by name or number
_NOT_KEPT = {"not", "contains", "$dynamicRef", "$recursiveRef"}
_NOT_KEPT_UNLESS_EMPTY = {"dependentRequired", "dependentSchemas", "dependencies"}


def identity(value: Any) -> Hashable:
    """What two JSON values have in common exactly when they are equal: 1 is 1.0 but not true."""
    if isinstance(value, bool):
        return "true" if value else "false", None
    if isinstance(value, list):
        return "array", tuple(map(identity, value))
    if isinstance(value, dict):
        return "object", frozenset((key, identity(inner)) for key, inner in value.items())
    return "number" if is_number(value) else "text", value


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_double(value: Any) -> bool:
    """Whether a double holds a JSON value: Python's whole numbers may be larger."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:
        return False


def _form(test: Callable[[Any], bool], what: str) -> Callable[[str, str, Any], None]:
    def form(path: str, keyword: str, value: Any) -> None:
        if not test(value):
            raise SchemaError(keyword, path, f"{keyword} must be {what}")

    return form


def _type(path: str, keyword: str, value: Any) -> None:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SchemaError(keyword, path, "type must be a string or an array of strings")
    if not names:
        raise SchemaError(keyword, path, "type must not be empty")
    for name in names:
        if name not in TYPES:
            raise SchemaError(keyword, path, f"unrecognized type {name}")


def _schemas(path: str, keyword: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise SchemaError(keyword, path, f"{keyword} must be an object")


_count = _form(
    lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0, "a non-negative integer"
)
_bound = _form(is_double, "a number that a double holds")
_text = _form(lambda v: isinstance(v, str), "a string")
_FORMS: dict[str, Callable[[str, str, Any], None]] = {
    "type": _type,
    "enum": _form(lambda v: isinstance(v, list) and len(v) > 0, "a non-empty array"),
    "properties": _schemas,
    "patternProperties": _schemas,
    "additionalProperties": _form(lambda v: isinstance(v, bool | dict), "a boolean or a schema"),
    "propertyNames": _form(lambda v: isinstance(v, bool | dict), "a boolean or a schema"),
    "required": _form(
        lambda v: isinstance(v, list) and all(isinstance(name, str) for name in v),
        "an array of strings",
    ),
    "items": _form(lambda v: isinstance(v, bool | dict | list), "a schema or an array of schemas"),
    "prefixItems": _form(lambda v: isinstance(v, list), "an array of schemas"),
    "additionalItems": _form(lambda v: isinstance(v, bool | dict), "a boolean or a schema"),
    "uniqueItems": _form(lambda v: isinstance(v, bool), "a boolean"),
    "multipleOf": _form(lambda v: is_double(v) and v > 0, "a number above 0"),
    "pattern": _text,
    "format": _text,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _bound),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _count),
    **dict.fromkeys(("minProperties", "maxProperties"), _count),
}
