"""Guesses from what a conversation said before, against a search through all of it."""

import itertools

import numpy as np
import pytest
from golem_core.schedule._ngram import Ngram
from hypothesis import given, settings
from hypothesis import strategies as st

N, CANDIDATES, LONGEST = 3, 16, 64

texts = st.lists(st.integers(0, 3), max_size=60)


def search(tokens, most):
    """The continuation of the occurrence of the last three tokens whose history agrees for longest
    with theirs; among the sixteen latest, the later one on ties; going round where it runs out."""
    if len(tokens) < N:
        return []
    last = tokens[-N:]
    ends = [e for e in range(N - 1, len(tokens) - 1) if tokens[e - N + 1 : e + 1] == last]
    best, agreement = None, 0
    for end in ends[::-1][:CANDIDATES]:
        same = 0
        while same < LONGEST and same <= end and tokens[end - same] == tokens[-1 - same]:
            same += 1
        if same > agreement:
            best, agreement = end, same
    if best is None:
        return []
    period = tokens[best + 1 :]
    return [period[i % len(period)] for i in range(most)]


@settings(max_examples=300, deadline=None)
@given(texts, texts, st.integers(1, 20))
def test_a_guess_is_what_followed_the_longest_agreement(prompt, drawn, most):
    ngram = Ngram(np.array(prompt, np.int32))
    for at, token in enumerate(drawn):
        tokens, chances = ngram.guess(most)
        assert tokens == search([*prompt, *drawn[:at]], most)
        assert len(chances) == len(tokens)
        ngram.told([token])
    assert len(ngram) == len(prompt) + len(drawn)
    assert ngram.guess(most)[0] == search([*prompt, *drawn], most)


def test_thousands_of_tokens_are_found_again():
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 150_000, 5000).tolist()
    ngram = Ngram(np.array(tokens[:100], np.int32))
    ngram.told(tokens[100:])
    for at in (3, 1700, 4900):
        ngram.told(tokens[at : at + 3])
        assert ngram.guess(8)[0] == tokens[at + 3 : at + 11]


def test_chances_follow_what_came_true():
    """Also of guesses that nobody acted on."""
    period = list(range(10))
    sure = Ngram(np.array(period * 3, np.int32))
    before = sure.guess(4)[1]
    sure.told(period * 20)
    after = sure.guess(4)[1]
    assert all(b > a for a, b in zip(before, after, strict=True))
    assert after[0] > 0.95
    assert all(0 < b <= a < 1 for a, b in itertools.pairwise(after))
    rng = np.random.default_rng(2)
    never = Ngram(np.array([0, 1, 2] * 2, np.int32))
    for _ in range(60):  # what follows 0 1 2 is never what followed it last
        never.told([int(rng.integers(3, 1 << 20)), 0, 1, 2])
    assert never.guess(1)[1][0] < 0.05


def test_a_guess_has_an_end():
    ngram = Ngram(np.array([1, 2, 3] * 40, np.int32))
    tokens, chances = ngram.guess(1000)
    assert len(tokens) == len(chances) == 64
    assert ngram.guess(0) == ([], [])
    assert Ngram(np.zeros(0, np.int32)).guess(5) == ([], [])


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_short_prompts(count):
    ngram = Ngram(np.zeros(count, np.int32))
    assert ngram.guess(3)[0] == search([0] * count, 3)
