"""Grammars over the vocabularies of real models: masks against asking, walks against validators."""

import codecs
import json
import random

import jsonschema
import pytest

from golem_core.formats.gguf import GGUF
from golem_core.sample.grammar import Grammar, Matcher, Vocabulary
from golem_core.text import load_tokenizer
from tests.core.text import vocabularies
from tests.paths import external

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "when": {"type": "string", "format": "date"},
        "size": {"type": "number", "minimum": -5, "maximum": 5},
        "tags": {"type": "array", "items": {"enum": ["red", "grün", "蓝"]}, "maxItems": 3},
    },
    "required": ["name", "when"],
    "additionalProperties": {"type": ["integer", "null"]},
}


@pytest.fixture(scope="module", params=["gemma-4", "qwen2", "llama-spm"])
def tokenizer(request):
    with GGUF.open(external(f"llamacpp/vocab/ggml-vocab-{request.param}.gguf")) as file:
        return load_tokenizer(file.metadata)


def walk(tokenizer, matcher, rng):
    """Tokens of a random answer; the model of this test likes to close what it opened."""
    said = []
    closers = [t for t in (tokenizer.find(c) for c in ('"', "}", "]")) if t is not None]
    while len(said) < 400:
        allowed = matcher.allowed().tolist()
        assert allowed, "a dead end"
        ends = [i for i in allowed if i in tokenizer.eog]
        assert bool(ends) == matcher.may_end
        if ends:
            return said
        closing = [i for i in closers if i in allowed]
        token = rng.choice(closing if closing and rng.random() < 0.3 else allowed)
        matcher.accept(token)
        said.append(token)
    return None


def test_answers_over_a_real_vocabulary_are_valid(tokenizer):
    vocabulary = Vocabulary.of(tokenizer)
    matcher = Matcher(Grammar.of_schema(SCHEMA), vocabulary)
    rng = random.Random(3)
    whole = 0
    for _ in range(12):
        matcher.reset()
        said = walk(tokenizer, matcher, rng)
        if said is not None:
            jsonschema.validate(json.loads(tokenizer.decode(said)), SCHEMA)
            whole += 1
    assert whole > 5


@pytest.mark.parametrize(
    "grammar",
    [
        None,
        "root ::= .*",
        "root ::= [^\\n]{0,30}",
        "root ::= [a-z ]{1,9} root | [À-ÿ]* [0-9]",
        "root ::= [a-z]{3} [a-d]{2} [^a-z]{3} | [a-z é]{2}",
        "root ::= [^e]{4} [a-d日-월]*",
        "root ::= (a | b)*\na ::= [a-z]{1,3}\nb ::= a a | [^a-z]",
        {"pattern": "needle"},  # letters lead to different states, and none is forbidden
        {"pattern": "(the|Ünder)$", "maxLength": 9},
        {"pattern": "^([^aeiou]*[aeiou]){3}[^aeiou]*$"},
        'root ::= [^t]* ("t" [^h] [^t]*){0,3}',
    ],
)
def test_a_mask_says_what_asking_says(tokenizer, grammar):
    """Subtrees that are allowed or skipped at once hold no exception."""
    vocabulary = Vocabulary.of(tokenizer)
    of = Grammar.compile if isinstance(grammar, str) else Grammar.of_schema
    compiled = of(SCHEMA if grammar is None else grammar)
    rng = random.Random(4)

    def compare(matcher, allowed):
        fresh = Matcher(compiled, vocabulary)
        for token in said:
            fresh.accept(token)
        asked = [i for i in range(len(vocabulary)) if fresh.allows(i)]
        assert asked == allowed

    matcher = Matcher(compiled, vocabulary)
    said = []
    for place in range(6):
        allowed = matcher.allowed().tolist()
        if place in (0, 2, 5):
            compare(matcher, allowed)
        tokens = [i for i in allowed if i not in tokenizer.eog]
        if not tokens:
            break
        said.append(rng.choice(tokens))
        matcher.accept(said[-1])


@pytest.mark.parametrize("name", sorted(vocabularies.recorded()["vocabularies"]))
def test_every_kind_of_vocabulary(name):
    """Free text is every token that has a text, and the ends; control tokens match none."""
    tokenizer = load_tokenizer(vocabularies.recorded()["vocabularies"][name]["metadata"])
    pieces = [tokenizer.piece(i) for i in range(tokenizer.n_vocab)]
    matcher = Matcher(Grammar.compile("root ::= .*"), Vocabulary.of(tokenizer))
    allowed = matcher.allowed().tolist()
    assert allowed == [
        i for i, piece in enumerate(pieces) if i in tokenizer.eog or begins_a_text(piece)
    ]


def begins_a_text(piece):
    """Whether bytes are UTF-8, but for a last character that is not whole."""
    if not piece or piece[0] == 0:
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(piece)
    except UnicodeDecodeError:
        return False
    return True
