"""Which tokens of a vocabulary spell a breaker, whole, in part, or with the tokens after them."""

from golem_core.sample import dry_heads

WORDS = [b"a", b"\n", b"x\ny", b"ab", b"b", b"c", b"bc", b"zab", b"abc", b""]


class Tokenizer:
    n_vocab = len(WORDS)

    def piece(self, token, special=False):
        assert special
        return WORDS[token]

    def encode(self, text, *, add_special, parse_special):
        assert not add_special and not parse_special
        return [WORDS.index(c.encode()) for c in text]


def entries(heads):
    found = {}
    for token in range(len(WORDS)):
        for e in range(heads.first[token], heads.first[token + 1]):
            tail = heads.tails[heads.start[e] : heads.start[e + 1]]
            found.setdefault(WORDS[token], []).append(tuple(WORDS[i] for i in tail))
    return found


def test_tokens_that_hold_a_breaker_are_heads_with_no_tail():
    assert entries(dry_heads(Tokenizer(), ["\n"])) == {b"\n": [()], b"x\ny": [()]}


def test_tokens_that_end_in_its_beginning_are_heads_and_the_rest_is_their_tail():
    assert entries(dry_heads(Tokenizer(), ["abc"])) == {
        b"a": [(b"b", b"c")],
        b"ab": [(b"c",)],
        b"zab": [(b"c",)],
        b"abc": [()],
    }


def test_several_breakers_share_the_table_and_empty_ones_are_left_out():
    heads = entries(dry_heads(Tokenizer(), ["\n", "", "bc"]))
    assert heads[b"b"] == [(b"c",)]
    assert heads[b"bc"] == [()]
    assert heads[b"\n"] == [()]


def test_no_breaker_found_gives_an_empty_table():
    heads = dry_heads(Tokenizer(), ["q"])
    assert not heads.first.any()
    assert len(heads.tails) == 1
