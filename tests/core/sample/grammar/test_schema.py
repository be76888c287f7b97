"""JSON schemas: what is kept, exactly; what is refused, by name."""

import json
import os
import random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.sample.grammar import Grammar, SchemaError
from tests.core.sample.grammar.schemas import I, S, obj
from tests.core.sample.grammar.walks import admits, walks

COUNT = int(os.environ.get("GOLEM_WALKS", "25"))


def valid(text, schema):
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
    return validator.is_valid(json.loads(text))


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            **obj(["v"], v=I, kids={"type": "array", "items": {"$ref": "#/$defs/node"}}),
            "additionalProperties": False,
        }
    },
}
SHAPES = {
    "oneOf": [
        obj(["kind", "r"], kind={"const": "circle"}, r={"type": "number", "minimum": 0}),
        obj(["kind", "a"], kind={"const": "square"}, a=I),
    ]
}

# schema, texts that must be admitted, texts that must not
CASES = {
    "numbers": (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 2.5},
        ["0.1", "2.5", "2.50", "1"],
        ["0", "-1", "2.51", "0.0", "3", "1e5"],
    ),
    "negative numbers": (
        {"type": "number", "minimum": -1.5, "exclusiveMaximum": -0.25},
        ["-1.5", "-0.3", "-1"],
        ["-0.25", "-1.51", "0", "-0.2"],
    ),
    "bounds beyond doubles": (
        {"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740995},
        ["9007199254740993", "9007199254740995"],
        ["9007199254740992", "9007199254740996"],
    ),
    "multiples": (
        {"type": "integer", "multipleOf": 4, "minimum": -10, "maximum": 30},
        ["-8", "0", "28"],
        ["2", "-12", "32", "30"],
    ),
    "multiples of several": (
        {"allOf": [{"type": "number", "multipleOf": 4}, {"multipleOf": 6.0}]},
        ["0", "12", "-24", "120"],
        ["4", "6", "12.5"],
    ),
    "lengths count characters": (
        {**S, "minLength": 2, "maxLength": 3},
        ['"ab"', '"é😀b"', r'"\ud83d\ude00\n"', r'"\ud83da"', r'"\ude00\ud83d"'],
        ['"a"', '"abcd"', r'"\ud83d\ude00"', r'"\u0061"'],
    ),
    "a pattern anywhere": ({**S, "pattern": "b+c"}, ['"abbcd"', '"bc"'], ['"ac"', '""']),
    "a pattern and a length": (
        {**S, "pattern": "^a*b*$", "minLength": 2, "maxLength": 3},
        ['"ab"', '"bbb"'],
        ['"a"', '"aabb"', '"ba"'],
    ),
    "a pattern of what must be escaped": (
        {**S, "pattern": '^"\\\\\\n[\\x00-\\x1f]$'},
        [r'"\"\\\n\u0001"', r'"\u0022\u005C\u000a\t"'],
        ['"a"', '"\\"\\\\\\na"'],
    ),
    "digits are ASCII": ({**S, "pattern": r"^\d\W$"}, ['"1 "'], ['"٣ "', '"1é"', '"1a"']),
    "dates that exist": (
        {**S, "format": "date"},
        ['"2024-02-29"', '"2023-12-31"', '"0001-01-01"'],
        ['"2023-02-29"', '"2023-04-31"', '"0000-01-01"', '"2023-13-01"', '"2023-1-1"'],
    ),
    "times": (
        {**S, "format": "time"},
        ['"23:59:59Z"', '"00:00:00.125+05:30"'],
        ['"24:00:00Z"', '"12:00:00"', '"12:60:00Z"'],
    ),
    "date and time": (
        {**S, "format": "date-time"},
        ['"2000-02-29T12:00:00-08:00"'],
        ['"1900-02-29T12:00:00Z"', '"2000-02-29"'],
    ),
    "formats that say nothing": ({**S, "format": "phone"}, ['"x"'], ["1"]),
    "constants as they are written": (
        {"enum": ["a", 1, 1.5, None, {"b": [True]}, "é\n"]},
        ['"a"', "1", "1.5", "null", '{"b":[true]}', '"é\\n"'],
        ['"b"', "true", '{"b":[1]}'],
    ),
    "constants that hold": (
        {"enum": ["a", "bbb", 3, 30], "minLength": 2, "maximum": 5, "type": ["string", "integer"]},
        ['"bbb"', "3"],
        ['"a"', "30"],
    ),
    "many constants": (
        {"enum": [f"word-{i}" for i in range(500)]},
        ['"word-7"', '"word-499"'],
        ['"word-"', '"word-500"'],
    ),
    "members in order": (
        obj(["b"], a=S, b=I, c=I),
        ['{"a":"","b":1}', '{"b":1,"a":"","c":2}', '{"b": 1}', '{"b":1,"c":2}'],
        ['{"a":""}', '{"c":1,"b":1}', '{"b":1,"b":1}', '{"b":1,"d":1}', '{"b":1.5}'],
    ),
    "no other key in disguise": (
        {**obj(["ab"], ab=I), "additionalProperties": S},
        ['{"ab":1,"c":"x"}', '{"ab":1,"a":"x","abc":"y"}', r'{"ab":1,"\u0061c":"x"}'],
        [r'{"ab":1,"\u0061b":"x"}', r'{"ab":1,"a\u0062":"x"}', '{"ab":1,"ab":"x"}'],
    ),
    "no astral key in disguise": (
        {**obj(["😀"], **{"😀": I}), "additionalProperties": S},
        ['{"😀":1,"x":"y"}', r'{"😀":1,"\ud83d":"y"}', r'{"😀":1,"\ud83d\ude01":"y"}'],
        [r'{"😀":1,"\ud83d\ude00":"y"}', r'{"😀":1,"\uD83D\uDE00":"y"}', '{"😀":1,"😀":"y"}'],
    ),
    "keys by pattern": (
        {
            "type": "object",
            "patternProperties": {"^n_": I, "x$": {"minimum": 3}},
            "additionalProperties": False,
        },
        ['{"n_a":1}', '{"x":3}', '{"n_x":4}', "{}", '{"ax":"s"}'],
        ['{"n_a":"s"}', '{"x":2}', '{"n_x":2}', '{"n_x":"s"}', '{"a":1}'],
    ),
    "named keys that match a pattern": (
        {**obj(["n_a"], n_a={"maximum": 5}), "patternProperties": {"^n_": I}},
        ['{"n_a":1}', '{"n_a":5,"n_b":9}'],
        ['{"n_a":6}', '{"n_a":"s"}', '{"n_a":1,"n_b":"s"}', '{"n_a":1,"z":1}'],
    ),
    "names of properties": (
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 2},
            "additionalProperties": I,
        },
        ['{"a":1,"bc":2}'],
        ['{"abc":1}', '{"A":1}', '{"":1}'],
    ),
    "how many members": (
        {**obj(a=I, b=I, c=I), "minProperties": 1, "maxProperties": 2},
        ['{"a":1}', '{"a":1,"c":1}', '{"b":1}'],
        ["{}", '{"a":1,"b":1,"c":1}'],
    ),
    "how many of any": (
        {"type": "object", "minProperties": 1, "maxProperties": 2},
        ['{"a":1}', '{"a":1,"b":[]}'],
        ["{}", '{"a":1,"b":1,"c":1}'],
    ),
    "required and undeclared": (
        {"type": "object", "required": ["q"]},
        ['{"q":null}', '{"q":1,"r":2}'],
        ["{}", '{"r":2}'],
    ),
    "tuples": (
        {"type": "array", "prefixItems": [S, I], "items": {"type": "null"}, "maxItems": 3},
        ['["a",1]', '["a", 1,null]'],
        ['["a","b"]', '["a",1,null,null]', '["a",1,2]'],
    ),
    "tuples of the older drafts": (
        {"type": "array", "items": [S, I], "additionalItems": False},
        ['["a",1]'],
        ['["a"]', '["a",1,1]', '[1,"a"]'],
    ),
    "counted items": (
        {"type": "array", "items": I, "minItems": 2, "maxItems": 3},
        ["[1,2]", "[1, 2,\n  3]"],
        ["[1]", "[1,2,3,4]", "[]", '["a","b"]'],
    ),
    "a tuple longer than it may be": (
        {"type": "array", "prefixItems": [S, I, S], "maxItems": 1},
        ['["a"]'],
        ['["a",1]', "[]"],
    ),
    "several types": (
        {"type": ["string", "null", "integer"], "minimum": 2, "maxLength": 1},
        ['"a"', "null", "2"],
        ['"ab"', "1", "true", "2.5"],
    ),
    "all of": (
        {"allOf": [obj(["a"], a={"minimum": 1}), obj(["b"], a=I, b=S)], "maxProperties": 2},
        ['{"a":1,"b":""}'],
        ['{"a":0,"b":""}', '{"a":1.5,"b":""}', '{"a":1}'],
    ),
    "any of, beside other keywords": (
        {"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^x+$"}]},
        ['"a"', '"xxx"'],
        ['"ab"', "1"],
    ),
    "one of": (
        SHAPES,
        ['{"kind":"circle","r":1.5}', '{"kind":"square","a":-1}'],
        ['{"kind":"circle","a":1}'],
    ),
    "one of constants": ({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, ["1", "3"], ["2"]),
    "one of objects by what they require": (
        {"oneOf": [obj(["a"], a=I), obj(["b"], b=I)]},
        ['{"a":1}', '{"b":1}'],
        ['{"a":1,"b":1}', "{}"],
    ),
    "recursion": (
        TREE,
        ['{"v":1}', '{"v":1,"kids":[]}', '{"v":1,"kids":[{"v":2,"kids":[{"v":3}]}]}'],
        ['{"kids":[]}', '{"v":1,"kids":[{}]}'],
    ),
    "a reference with company": (
        {"$ref": "#/$defs/a~1b%25", "maxLength": 1, "$defs": {"a/b%": S}},
        ['"x"'],
        ['"xy"'],
    ),
    "true and false inside": (
        {"type": "object", "properties": {"a": True, "b": False}},
        ['{"a":[1]}', "{}"],
        ['{"b":1}', '{"a":1,"b":1}'],
    ),
    "a set of an enum": (
        {"type": "array", "items": {"enum": ["a", "b", 1, None]}, "uniqueItems": True},
        ["[]", '["a"]', '["b","a"]', '[null, 1, "b", "a"]'],
        ['["a","a"]', '["b",1,"b"]', "[1,1]", "[2]", '["a",]'],
    ),
    "a set of bounded size": (
        {"type": "array", "items": {"enum": [*"abcdefgh"]}, "uniqueItems": True}
        | {"minItems": 2, "maxItems": 3},
        ['["a","b"]', '["h","a","c"]'],
        ["[]", '["a"]', '["a","b","c","d"]', '["a","b","a"]'],
    ),
    "a set that may not repeat what is equal": (
        {"type": "array", "items": {"enum": [1, 1.0, True]}, "uniqueItems": True},
        ["[1.0,true]", "[true]"],
        ["[1,1]", "[1.0,1.0]", "[1,1.0]", "[1.0,true,1.0]"],
    ),
    "a set of truths": (
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 1},
        ["[true]", "[false,true]"],
        ["[]", "[true,true]", "[true,false,true]"],
    ),
    "a set of several enums": (
        {
            "type": "array",
            "uniqueItems": True,
            "items": {"anyOf": [{"const": "x"}, {"enum": ["y", "x"]}, {"type": "null"}]},
        },
        ['["x","y",null]', "[]"],
        ['["x","x"]', "[null,null]"],
    ),
    "if alone says nothing": ({"if": S, "type": "integer"}, ["1"], ['"a"']),
}


@pytest.mark.parametrize("name", CASES)
def test_exactly(name):
    """Every text is valid by the jsonschema package; the ones listed are admitted or not."""
    schema, admitted, others = CASES[name]
    grammar = Grammar.of_schema(schema)
    for text in admitted:
        assert admits(grammar, text), text
    for text in others:
        assert not admits(grammar, text), text
    old = "additionalItems" in schema
    for text in walks(grammar, random.Random(name), COUNT):
        assert valid(text, {**schema, "items": False, "prefixItems": [S, I]} if old else schema), (
            text
        )


def test_what_is_never_reached_is_not_refused():
    """Definitions nobody refers to may hold anything."""
    Grammar.of_schema({**S, "$defs": {"x": {"not": S}}})


def test_a_nullable_field_as_pydantic_writes_it():
    schema = {
        "title": "M",
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"$ref": "#/$defs/E"}, {"type": "null"}], "default": None},
            "b": {"items": {"$ref": "#/$defs/E"}, "title": "B", "type": "array"},
        },
        "required": ["b"],
        "$defs": {"E": {"enum": ["x", "y"], "title": "E", "type": "string"}},
    }
    grammar = Grammar.of_schema(schema)
    assert admits(grammar, '{"a":null,"b":["x","y"]}') and admits(grammar, '{"b": []}')
    assert not admits(grammar, '{"a":"z","b":[]}')


def test_padding_is_blanks_around_the_value():
    grammar = Grammar.of_schema({"type": "null"}, padded=True)
    assert admits(grammar, "null") and admits(grammar, "\n\n null\n") and admits(grammar, " null ")
    assert not admits(Grammar.of_schema({"type": "null"}), " null")


def test_many_properties():
    names = [f"property_{i}" for i in range(1500)]
    schema = obj(names[::2], **dict.fromkeys(names, I))
    grammar = Grammar.of_schema(schema)
    text = "{" + ",".join(f'"{name}":1' for name in names) + "}"
    assert admits(grammar, text)
    assert not admits(grammar, text.replace('"property_2":1,', ""))


@pytest.mark.parametrize("depth", [100, 3000])
def test_deep_schemas_are_served_or_refused(depth):
    schema = S
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1}
    assert admits(Grammar.of_schema(schema), "[" * depth + '""' + "]" * depth)
    schema = S
    for _ in range(depth):
        schema = {"allOf": [schema]}
    with pytest.raises(SchemaError):
        Grammar.of_schema(schema)


# ---- schemas at random ----

NAME = st.sampled_from(["a", "b", "ab", "é"])
BOUND = st.one_of(st.integers(-20, 20), st.sampled_from([0.5, -2.25, 1e3, 0.1]))
PATTERN = st.sampled_from(["^a", "b$", "^[ab]{1,3}$", "é", r"^\w+$", "a|b"])


def part(keywords):
    return st.fixed_dictionaries({}, optional=keywords)


LEAVES = st.one_of(
    part(
        {
            "type": st.just("string"),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 5),
            "pattern": PATTERN,
        }
    ),
    part(
        {
            "type": st.sampled_from(["number", "integer"]),
            "minimum": BOUND,
            "exclusiveMaximum": BOUND,
            "multipleOf": st.integers(1, 5),
        }
    ),
    st.builds(
        lambda v: {"enum": v},
        st.lists(
            st.sampled_from([1, 2, 1.0, "a", "ab", True, None, [], {"a": 1}]),
            min_size=1,
            max_size=3,
        ),
    ),
    part({"type": st.sampled_from(["null", "boolean", "object", "array", ["string", "integer"]])}),
    st.booleans(),
)


def nested(inner):
    return st.one_of(
        part(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(NAME, inner, max_size=3),
                "required": st.lists(NAME, max_size=2, unique=True),
                "additionalProperties": inner,
                "patternProperties": st.dictionaries(PATTERN, inner, max_size=1),
                "minProperties": st.integers(0, 2),
                "maxProperties": st.integers(0, 3),
            }
        ),
        part(
            {
                "type": st.just("array"),
                "items": inner,
                "prefixItems": st.lists(inner, min_size=1, max_size=2),
                "minItems": st.integers(0, 2),
                "maxItems": st.integers(0, 3),
            }
        ),
        st.builds(
            lambda k, v: {k: v},
            st.sampled_from(["anyOf", "allOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(
            lambda a, b: {**a, "anyOf": b} if isinstance(a, dict) else a,
            inner,
            st.lists(inner, min_size=1, max_size=2),
        ),
    )


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(LEAVES, nested, max_leaves=6).filter(lambda s: isinstance(s, dict)), st.integers()
)
def test_whatever_is_admitted_is_valid(schema, seed):
    try:
        grammar = Grammar.of_schema(schema)
    except SchemaError as error:
        assert error.path.startswith("#") and error.keyword in str(error)
        return
    validator = jsonschema.Draft202012Validator(schema)
    for text in walks(grammar, random.Random(seed), 5, longest=150):
        assert validator.is_valid(json.loads(text)), text
