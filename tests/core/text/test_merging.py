"""The compiled loops give what their rules say, spelled out here in the slowest possible way."""

from itertools import pairwise

import numpy as np
import pytest
from golem_core.text._alphabet import Alphabet
from golem_core.text._merge import LongestMatch, Merger
from golem_core.text._special import Specials
from golem_core.text._table import Table
from golem_core.text._unigram import Unigram
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.text.vocabularies import alphabet

quick = settings(max_examples=150, deadline=None)
# Few letters, so that merges, ties and overlaps are common; one of two bytes, one never known.
letters = st.sampled_from("ab\u00e9 ")
words = st.text(letters | st.just("z"), max_size=14)
long_words = st.text(letters, min_size=41, max_size=130)
token_lists = st.lists(
    st.text(letters, min_size=1, max_size=4), min_size=1, max_size=30, unique=True
)


def merged(symbols, rank):
    """Join the neighbours of the lowest ``rank``, leftmost first, until none has one."""
    while True:
        ranks = [rank(pair) for pair in pairwise(symbols)]
        known = [r for r in ranks if r is not None]
        if not known:
            return symbols
        at = ranks.index(min(known))
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]


def run(merger, word):
    ids = []
    merger.extend([word], ids)
    return ids


@st.composite
def merge_lists(draw):
    known = ["a", "b", "\u00e9", " "]
    merges = []
    for _ in range(draw(st.integers(0, 14))):
        left, right = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        merges.append((left, right))
        known.append(left + right)
    return merges


@quick
@given(merge_lists(), words | long_words, st.randoms())
def test_merges_over_characters(merges, word, random):
    """The first of equal merges ranks; what is no token falls to its bytes, then to unknown."""
    tokens = list(dict.fromkeys(["a", "b", " ", *("".join(pair) for pair in merges)]))
    random.shuffle(tokens)
    tokens = [*tokens[: max(1, len(tokens) - 2)], "<0xC3>", "<0xA9>", "<unk>"]
    # The file's line is cut at its first space after the first character.
    lines = [f"{left} {right}" for left, right in merges]
    ranks = {}
    for rank, line in enumerate(lines):
        cut = line.index(" ", 1)
        ranks.setdefault((line[:cut], line[cut + 1 :]), rank)
    unknown = len(tokens) - 1
    expected = []
    for symbol in merged(list(word), ranks.get):
        spelled = [f"<0x{byte:02X}>" for byte in symbol.encode()]
        if symbol in tokens:
            expected.append(tokens.index(symbol))
        elif all(byte in tokens for byte in spelled):
            expected += map(tokens.index, spelled)
        else:
            expected.append(unknown)
    merger = Merger.by_merges(Table(tokens), len(tokens), lines, unknown=unknown)
    assert run(merger, word) == expected
    assert run(merger, word) == expected  # from the cache


@quick
@given(merge_lists(), words | long_words)
def test_merges_over_bytes(merges, word):
    stand_in = alphabet()

    def spelled(text):
        return "".join(stand_in[byte] for byte in text.encode())

    tokens = list(dict.fromkeys([*stand_in, *(spelled("".join(pair)) for pair in merges)]))
    lines = [f"{spelled(left)} {spelled(right)}" for left, right in merges]
    ranks = {}
    for rank, line in enumerate(lines):
        ranks.setdefault(tuple(line.split(" ")), rank)
    expected = [tokens.index(symbol) for symbol in merged(list(spelled(word)), ranks.get)]
    table = Alphabet().table(tokens)
    merger = Merger.by_merges(table, len(tokens), lines, alphabet=Alphabet())
    assert run(merger, word) == expected
    assert b"".join(table.text(token) for token in expected) == word.encode()


@quick
@given(token_lists, words | long_words, st.data())
def test_merges_by_score(tokens, word, data):
    count = len(tokens)
    ranks = data.draw(st.lists(st.integers(-1, 5), min_size=count, max_size=count))
    made = {token: rank for token, rank in zip(tokens, ranks, strict=True) if rank >= 0}
    expected = [
        tokens.index(symbol) if symbol in made else len(tokens)
        for symbol in merged(list(word), lambda pair: made.get("".join(pair)))
    ]
    table = Table([*tokens, "<unk>"])
    merger = Merger.by_scores(table, np.array([*ranks, -1], np.int32), len(tokens))
    assert run(merger, word) == expected


@quick
@given(token_lists, words | long_words, st.data())
def test_the_likeliest_cut(tokens, word, data):
    """Best sum of scores; the first found of equal ones; unknown neighbours are one token."""
    count = len(tokens)
    drawn = data.draw(st.lists(st.integers(-8, 0), min_size=count, max_size=count))
    scores = np.array([*drawn, 0], np.float32)
    best = [(0.0, None, 0)] + [(-np.inf, None, 0)] * len(word)
    for at in range(len(word)):
        for size in range(1, len(word) - at + 1):
            piece = word[at : at + size]
            token = tokens.index(piece) if piece in tokens else None
            if token is None and size > 1:
                continue
            score = best[at][0] + (scores[token] if token is not None else -20.0)
            if score > best[at + size][0]:
                best[at + size] = (score, token, at)
    expected, at = [], len(word)
    while at:
        _, token, at = best[at]
        token = count if token is None else token
        if token != count or not expected or expected[-1] != count:
            expected.append(token)
    unigram = Unigram(
        Table([*tokens, "<unk>"]), scores, np.arange(count, dtype=np.int32),
        unknown=count, unknown_score=-20.0,
    )  # fmt: skip
    ids = []
    unigram.extend(word.encode(), ids)
    assert ids == expected[::-1]


@quick
@given(token_lists, words)
def test_the_longest_match(tokens, word):
    expected, at = [], 0
    while at < len(word):
        sizes = [len(t) for t in tokens if word.startswith(t, at)]
        if not sizes:
            expected = [len(tokens)]
            break
        expected.append(tokens.index(word[at : at + max(sizes)]))
        at += max(sizes)
    ids = []
    LongestMatch(Table([*tokens, "<unk>"]), len(tokens), len(tokens)).extend([word], ids)
    assert ids == expected


@quick
@given(
    st.lists(st.text("ab<", min_size=1, max_size=4), max_size=8, unique=True),
    st.text("ab< \n", max_size=40),
    st.data(),
)
def test_special_tokens_are_cut_longest_first(texts, text, data):
    """Each token in turn, the longest first: its leftmost free places are taken."""
    count = len(texts)
    flags = data.draw(st.lists(st.sampled_from([0, 1, 4]), min_size=count, max_size=count))
    everything = data.draw(st.booleans())
    free = [True] * len(text)
    expected = []
    order = sorted(range(count), key=lambda i: (-len(texts[i]), i))
    for token in order:
        if not everything and not flags[token] & 1:
            continue
        at = 0
        while (at := text.find(texts[token], at)) >= 0:
            end = at + len(texts[token])
            if not all(free[at:end]):
                at += 1
                continue
            while flags[token] & 4 and end < len(text) and free[end] and text[end].isspace():
                end += 1
            free[at:end] = [False] * (end - at)
            expected.append((at, end, token))
            at = end
    specials = Specials([(t.encode(), i, flags[i]) for i, t in enumerate(texts)])
    assert specials.cut(text.encode(), everything) == sorted(expected)


def test_a_token_that_trims_to_the_left_takes_free_space_only():
    specials = Specials([(b"<m>", 0, 2), (b"<x>", 1, 0)])
    assert specials.cut(b"a \n<m> <x>  <m>", True) == [(1, 6, 0), (7, 10, 1), (10, 15, 0)]


@pytest.mark.parametrize("size", [300_000])
@pytest.mark.parametrize("word", ["a", " ", "ab", "aab", "\u00e9"])
def test_a_word_of_any_length_is_done_in_reasonable_time(word, size):
    """What would take hours if it were quadratic, by every loop."""
    text = word * (size // len(word))
    tokens = ["a", "b", " ", "\u00e9", "aa", "ab", "  ", "aaaa", "    ", "<unk>"]
    lines = ["a a", "a b", "aa aa"]
    unknown = len(tokens) - 1
    ranks = np.array([*range(unknown), -1], np.int32)
    scores = -ranks.astype(np.float32)
    usable = np.arange(unknown, dtype=np.int32)
    table = Table(tokens)
    unigram = Unigram(table, scores, usable, unknown=unknown, unknown_score=-99.0)
    by_likelihood = []
    unigram.extend(text.encode(), by_likelihood)
    longest = []
    LongestMatch(table, unknown, unknown).extend([text], longest)
    for ids in (
        run(Merger.by_scores(table, ranks, unknown), text),
        run(Merger.by_merges(Table(tokens), len(tokens), lines, unknown=unknown), text),
        by_likelihood,
        longest,
    ):
        assert "".join(tokens[token] for token in ids) == text
    specials = Specials([(token.encode(), i, 1) for i, token in enumerate(tokens)])
    assert sum(end - start for start, end, _ in specials.cut(text.encode(), True)) == len(
        text.encode()
    )


@given(st.lists(st.binary(max_size=6), max_size=60))
@quick
def test_a_table_finds_the_last_of_equal_strings(strings):
    table = Table(strings)
    assert len(table) == len(strings)
    assert [table.text(i) for i in range(len(strings))] == strings
    for string in {*strings, b"missing", b"a"}:
        last = max((i for i, s in enumerate(strings) if s == string and s), default=None)
        assert table.get(string) == last
    assert table.longest == max(map(len, strings), default=0)
    with pytest.raises(IndexError):
        table.text(len(strings))


def test_a_table_knows_what_stands_before_a_character():
    table = Table(["\u2581a", "a\u2581", "\u00e9\u2581\u2581b", "x", "\u2581"])
    assert table.before("\u2581".encode()) == "a\u00e9\u2581"
