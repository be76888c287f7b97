"""79 schemas and what llama.cpp's converter makes of them.

Every text that llama.cpp's grammar admits and that is valid is admitted here too; what is not
valid is not; and where llama.cpp refuses, the same words say why.
"""

import functools
import gzip
import json
import os
import random

import jsonschema
import pytest

from golem_core.sample.grammar import Grammar, SchemaError
from tests.core.sample.grammar.walks import admits, compiled, walks
from tests.paths import data

COUNT = int(os.environ.get("GOLEM_WALKS", "25"))  # texts a schema

# llama.cpp drops these keywords; here they are refused, as the ruling "exact or 400" allows.
REFUSED = {25: "pattern", 30: "pattern", 71: "not"}
# llama.cpp compiles it, and fails when the grammar is used.
LEFT_RECURSIVE = {70: "$ref"}
# Keywords llama.cpp drops and that are kept here: the text may be valid and yet not be offered.
NARROWER = {
    23: "digits of a pattern are ASCII, and escaped only where they must be",
    40: "bounded numbers have no exponents and 15 digits",
    55: "members that nobody named come after the required ones",
    73: "keys beside patterns are escaped only where they must be",
}


@functools.cache
def golden():
    with gzip.open(data("grammar/llama_cpp_schemas.json.gz")) as file:
        return json.load(file)


def valid(text, schema):
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("index", range(79))
def test_schema(index):
    case = golden()[index]
    schema = case["schema"]
    rng = random.Random(index)
    if "error" in case:
        with pytest.raises(SchemaError) as caught:
            Grammar.of_schema(schema)
        assert str(caught.value).startswith(case["error"])
        return
    if index in REFUSED or index in LEFT_RECURSIVE:
        keyword = REFUSED.get(index) or LEFT_RECURSIVE[index]
        with pytest.raises(SchemaError) as caught:
            Grammar.of_schema(schema)
        assert caught.value.keyword == keyword and keyword in str(caught.value)
        assert caught.value.path in str(caught.value)
        return
    grammar = Grammar.of_schema(schema)
    for text in walks(grammar, rng, COUNT):
        assert valid(text, schema), text
    for text in walks(compiled(case["grammar"]), rng, COUNT):
        if not valid(text, schema):
            assert not admits(grammar, text), text
        elif index not in NARROWER:
            assert admits(grammar, text), text
