"""Automata of fixed texts."""

import random

from golem_core.sample.grammar.automaton import words


def test_words_are_accepted_by_the_smallest_automaton():
    """As many states as there are different sets of endings, over the beginnings of all texts."""
    rng = random.Random(3)
    for _ in range(300):
        texts = {
            "".join(rng.choice("abc") for _ in range(rng.randint(0, 4)))
            for _ in range(rng.randint(1, 12))
        }
        found = words(texts)
        beginnings = {text[:i] for text in texts for i in range(len(text) + 1)}
        endings = {
            frozenset(text[len(b) :] for text in texts if text.startswith(b)) for b in beginnings
        }
        assert len(found.edges) == len(endings)
        assert all(found.accepts(text) == (text in texts) for text in beginnings)
        for text in texts:
            near = text + rng.choice("abc")
            assert found.accepts(near) == (near in texts)


def test_of_no_text_there_is_no_state():
    assert words([]).never
