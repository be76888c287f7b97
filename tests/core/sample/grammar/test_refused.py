"""Schemas that are refused: always by keyword and path, in a line or two."""

import pytest

from golem_core.sample.grammar import Grammar, SchemaError
from tests.core.sample.grammar.schemas import I, S, obj

REFUSED = [
    ({"not": S}, "not", "#"),
    ({"not": {}}, "not", "#"),
    ({"contains": {}}, "contains", "#"),
    ({"type": "array", "uniqueItems": True, "items": S}, "uniqueItems", "#"),
    (
        {"type": "array", "uniqueItems": True, "items": {"enum": [*range(9)]}},
        "uniqueItems",
        "#",
    ),
    (
        {"type": "array", "uniqueItems": True, "prefixItems": [{"enum": ["a"]}], "items": False}
        | {"minItems": 1, "maxItems": 2},
        "uniqueItems",
        "#",
    ),
    ({"type": "array", "uniqueItems": True}, "uniqueItems", "#"),
    ({"type": "array", "contains": S}, "contains", "#"),
    ({"not": {}}, "not", "#"),  # nothing satisfies it; an empty schema is no empty wish
    ({"type": "array", "contains": {}}, "contains", "#"),
    ({"type": "number", "multipleOf": 0.1}, "multipleOf", "#"),
    ({"if": S, "then": I}, "if", "#"),
    ({"dependentRequired": {"a": ["b"]}}, "dependentRequired", "#"),
    (obj(a={**S, "pattern": r"\bx"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": "(a"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": r"(a)\1"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": "[]a]"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": "(?<n>a)"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": r"\p{L}"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": "a{9999}"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": "^(a|b)*a(a|b){15}$"}), "pattern", "#/properties/a"),
    (obj(a={**S, "pattern": "^((a{1,70}b?){1,70})$"}), "pattern", "#/properties/a"),
    (obj(a={**I, "multipleOf": 999983}), "multipleOf", "#/properties/a"),
    (obj(a={**S, "maxLength": 10**6}), "maxLength", "#/properties/a"),
    (obj(a={"type": "array", "maxItems": 10**6}), "maxItems", "#/properties/a"),
    (obj(a={"type": "array", "items": {"$ref": "#/nope"}}), "$ref", "#/properties/a/items"),
    (obj(a={"$ref": "http://x/y"}), "$ref", "#/properties/a"),
    (obj(a={"$ref": "#name"}), "$ref", "#/properties/a"),
    (obj(a={"$dynamicRef": "#x"}), "$dynamicRef", "#/properties/a"),
    (obj(a={"$id": "x"}), "$id", "#/properties/a"),
    ({"type": "object", "minProperties": 3}, "minProperties", "#"),
    ({"oneOf": [S, {"maxLength": 3}]}, "oneOf", "#"),
    ({"oneOf": [obj(a=S), obj(b=S)]}, "oneOf", "#"),
    ({"oneOf": [{"type": "number"}, I]}, "oneOf", "#"),
    ({"unevaluatedProperties": False, "allOf": [obj(a=S)]}, "unevaluatedProperties", "#"),
    ({"type": "object", "patternProperties": {r"\bx": S}}, "patternProperties", "#"),
    ({"type": "integer", "exclusiveMinimum": True}, "exclusiveMinimum", "#"),
    ({"type": "number", "minimum": float("inf")}, "minimum", "#"),
    ({"type": "object", "required": "a"}, "required", "#"),
    ({"anyOf": [S, {"type": "set"}]}, "type", "#/anyOf/1"),
    (
        {
            "anyOf": [{"anyOf": [{"minLength": i} for i in range(20)]}] * 2,
            "allOf": [{"anyOf": [S] * 20}],
        },
        "anyOf",
        "#",
    ),
    (
        {
            **obj(["a"], a=S),
            "$defs": {"x": {"not": S}},
            "additionalProperties": {"$ref": "#/$defs/x"},
        },
        "not",
        "#/$defs/x",
    ),
    # No value at all.
    ({**S, "minLength": 3, "maxLength": 2}, "minLength", "#"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum", "#"),
    ({"type": "string", "enum": [1]}, "enum", "#"),
    (obj(["a"], a={"type": "number", "minimum": 1e300}), "minimum", "#/properties/a"),
    (obj(["a"], a=False), "required", "#"),
    ({**obj(["n"], n={"$ref": "#"})}, "$ref", "#"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "$ref", "#"),
    ({"allOf": [S, I]}, "type", "#/allOf/0"),
    (obj(["a"], a={"allOf": [S, I]}), "type", "#/properties/a/allOf/0"),
    ({"allOf": [{"$ref": "#/$defs/s"}, {"type": "null"}], "$defs": {"s": S}}, "type", "#/$defs/s"),
    ({"allOf": [S, False]}, "allOf", "#"),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [3]}]}, "enum", "#/allOf/0"),
    ({"const": 1, "enum": [2]}, "const", "#"),
    (obj(["a"], a={"anyOf": [False, False]}), "anyOf", "#/properties/a"),
    (obj(["a"], a={"oneOf": [False]}), "oneOf", "#/properties/a"),
    ({"anyOf": [False, {**S, "minLength": 3, "maxLength": 1}]}, "minLength", "#/anyOf/1"),
    ({"$ref": "#/$defs/no", "$defs": {"no": False}}, "$ref", "#"),
    ({"type": "array", "items": False, "minItems": 1}, "items", "#/items"),
    ({"type": "array", "prefixItems": [S, False]}, "prefixItems", "#/prefixItems/1"),
    ({"type": "array", "minItems": 3, "maxItems": 1}, "maxItems", "#"),
    ({"type": "object", "minProperties": 2, "maxProperties": 1}, "maxProperties", "#"),
    ({"type": "object", "required": ["a"], "maxProperties": 0}, "maxProperties", "#"),
    (obj(["a"], a={**S, "pattern": "^a$", "minLength": 5}), "pattern", "#/properties/a"),
    (
        obj(["a"], a={**S, "maxLength": 5, "allOf": [{"minLength": 6}]}),
        "minLength",
        "#/properties/a/allOf/0",
    ),
    # Numbers that no double holds.
    (obj(a={**I, "minimum": 10**400}), "minimum", "#/properties/a"),
    (
        obj(a={"type": "number", "exclusiveMaximum": -(10**309)}),
        "exclusiveMaximum",
        "#/properties/a",
    ),
    (obj(a={**I, "multipleOf": 10**400}), "multipleOf", "#/properties/a"),
    ({"const": 10**400, "multipleOf": 7}, "const", "#"),
    # Too much that may come next, and schemas within each other about one value.
    (obj(a=obj(**{f"p{i}": S for i in range(1001)})), "properties", "#/properties/a"),
    (
        {"anyOf": [obj(**{f"p{i}{k}": S for i in range(400)}) for k in "abc"]},
        "properties",
        "#/anyOf/2",
    ),
    (
        {"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(99)}},
        "$ref",
        "#/$defs/63",
    ),
    # What is no schema at all.
    (obj(a=3), "properties", "#/properties/a"),
    (obj(items=None), "properties", "#/properties/items"),
    ({"type": "array", "items": "x"}, "items", "#"),
    ({"allOf": [3]}, "allOf", "#/allOf/0"),
    ({"anyOf": []}, "anyOf", "#/anyOf"),
    ({"anyOf": 3}, "anyOf", "#/anyOf"),
    ({"properties": []}, "properties", "#"),
    ({"type": []}, "type", "#"),
    ({"enum": []}, "enum", "#"),
    ({"multipleOf": 0}, "multipleOf", "#"),
    ({"minLength": -1}, "minLength", "#"),
    ({"propertyNames": {"anyOf": [{"maxLength": 2}, {"minLength": 4}]}}, "propertyNames", "#"),
    (3, "", "#"),
    (True, "", "#"),
]


@pytest.mark.parametrize("schema, keyword, path", REFUSED)
def test_refused_by_keyword_and_path(schema, keyword, path):
    with pytest.raises(SchemaError) as caught:
        Grammar.of_schema(schema)
    assert (caught.value.keyword, caught.value.path) == (keyword, path)
    assert keyword in str(caught.value) and f" {path}" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("keyword, asks", [("pattern", {"pattern": "^[a-z]*$"}), ("maxLength", {})])
def test_many_long_texts_are_refused_where_they_become_too_many(keyword, asks):
    texts = [{**S, **asks, "minLength": i, "maxLength": 1000} for i in range(80)]
    with pytest.raises(SchemaError, match=f"{keyword}: the texts of this schema") as caught:
        Grammar.of_schema({"prefixItems": texts})
    assert caught.value.keyword == keyword
    # 1001 states each, and 65 of them fit in 2 ** 16; which come first is not promised.
    assert caught.value.path in {f"#/prefixItems/{i}" for i in range(80)}
    Grammar.of_schema({"prefixItems": [texts[0]] * 80})
