"""Draws that a grammar holds to its language: llama-server's order of asking and drawing again."""

import math

import numpy as np
import pytest

from golem_core.sample import Sampler, SamplerParams
from golem_core.sample.grammar import Grammar, GrammarError, Matcher, Vocabulary
from tests.core.sample.naive import NaiveSampler

PIECES = [bytes([i]) for i in range(97, 123)] + [b"ab", b"ba", b"abc", b""]
END = len(PIECES) - 1
V = len(PIECES) + 2  # the last two rows of logits are of no token
VOCABULARY = Vocabulary(PIECES, ends=[END])

CHAINS = {
    "usual": {"temperature": 1.3},
    "greedy": {"temperature": 0},
    "penalties": {"repeat_penalty": 1.4, "top_k": 0, "min_p": 0},
    "xtc": {"xtc_probability": 0.9, "xtc_threshold": 0.05},
    "mirostat": {"mirostat": 2},
    "adaptive": {"adaptive_target": 0.4, "samplers": ("min_p", "temperature", "adaptive_p")},
}


def matcher(text):
    return Matcher(Grammar.compile(text), VOCABULARY)


def held(text, **params):
    return Sampler(SamplerParams(**params), V, eog=[END], matcher=matcher(text))


@pytest.mark.parametrize("name", CHAINS)
def test_a_refused_token_is_drawn_again_from_the_raw_logits(name):
    """The whole chain again, with the next random numbers, over what the grammar leaves; only the
    token that is kept counts as said."""
    grammar = 'root ::= ([a-f] ("ab" | [c-z])* "q")+'
    params = {"seed": 7, **CHAINS[name]}
    sampler = held(grammar, **params)
    asked, naive = matcher(grammar), NaiveSampler(SamplerParams(**params))
    rng = np.random.default_rng(1)
    again = 0
    for _ in range(60):
        row = rng.standard_normal(V).astype(np.float32) * 3
        before = naive.sum, naive.weight
        token = naive.sample(row)
        if not asked.allows(token):
            again += 1
            naive.said.pop()
            naive.sum, naive.weight = before
            narrowed = row.copy()
            asked.narrow(narrowed)
            token = naive.sample(narrowed)
        assert sampler.sample(row) == token
        asked.accept(token)
    assert 5 < again < 55


def test_probabilities_are_of_the_raw_logits():
    row = np.zeros(V, np.float32)
    row[25] = 5
    sampler = Sampler(
        SamplerParams(seed=1), V, eog=[END], n_probs=1, matcher=matcher('root ::= "a"')
    )
    assert sampler.sample(row) == 0
    total = V - 1 + math.exp(5)
    drawn, ((best, likely),) = sampler.probs()
    assert best == 25
    assert drawn == pytest.approx(-math.log(total), abs=1e-6)
    assert likely == pytest.approx(5 - math.log(total), abs=1e-6)


def test_the_answer_ends_where_the_grammar_does():
    row = np.zeros(V, np.float32)
    row[END] = 9  # the model wants to end at once
    sampler = held('root ::= "ab" "c"', seed=3)
    said = []
    while END not in said:
        said.append(sampler.sample(row))
    assert b"".join(PIECES[i] for i in said) == b"abc"
    with pytest.raises(GrammarError, match="may not follow"):
        sampler.accept(0)


@pytest.mark.parametrize(
    "grammar, params",
    [
        ('root ::= "é"', {}),  # no token spells it
        ('root ::= "a"', {"logit_bias": ((0, -math.inf), (26, -math.inf), (28, -math.inf))}),
        ('root ::= ""', {"ignore_eos": True}),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_dead_end_fails_by_name(grammar, params, temperature):
    sampler = held(grammar, seed=1, temperature=temperature, **params)
    with pytest.raises(GrammarError, match="allows nothing here that can be drawn"):
        sampler.sample(np.zeros(V, np.float32))


def test_tokens_said_by_others_are_followed():
    sampler = held('root ::= "ab" "c"', seed=1)
    sampler.accept(26)
    assert sampler.sample(np.zeros(V, np.float32)) == 2


def test_settings_from_a_request():
    schema = {"type": "object"}
    params = SamplerParams.resolve({}, {"grammar": "root ::= .", "json_schema": schema})
    assert params.grammar == "root ::= ." and params.json_schema == schema and params.constrained
    assert not SamplerParams.resolve({}, {"grammar": "", "json_schema": None}).constrained
    assert SamplerParams.resolve({}, {"grammar_after": "</t>"}).grammar_after == b"</t>"
    with pytest.raises(ValueError, match="type must be string, but is number"):
        SamplerParams.resolve({}, {"grammar": 5})
