"""tokenizer.json: every text gets the ids that the tokenizers package gives it.

The files are those of the tiny Laya checkpoints, and small ones put together here for parts that
the two do not have.
"""

import json
import random

import pytest

from golem_core.text.errors import TokenizerError
from golem_core.text.tokenizer_json import JsonTokenizer
from tests.plugins.laya_oracle import NAMES, unpack

tokenizers = pytest.importorskip("tokenizers")

POOL = [
    *"abcdefgh .,!?   \n\t'\"éñ漢字🙂👍🏽_0123456789",
    *("[MASK]", "<mask>", "[SEP]", "[CLS]", "[unused1]", "<eos>", "<bos>", "<pad>"),
    *("  ", "        ", "'s", "'ll", "\u0301", "\u00a0", "\u3000", "\u2581", "e\u0301", "\x00"),
]


def texts(seed, count=400, pool=POOL):
    draw = random.Random(seed)
    made = ["".join(draw.choice(pool) for _ in range(draw.randint(0, 30))) for _ in range(count)]
    return ["", " ", "  a  ", "The quick brown fox.", *made]


def assert_alike(source, seed, pool=POOL):
    text = json.dumps(source)
    theirs = tokenizers.Tokenizer.from_str(text)
    mine = JsonTokenizer(json.loads(text))
    for sample in texts(seed, pool=pool):
        expected = theirs.encode(sample, add_special_tokens=False).ids
        assert mine.encode(sample) == expected, repr(sample)
    assert mine.n_vocab == theirs.get_vocab_size()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("laya")
    return {n: unpack(n, folder) / "tokenizer" / "tokenizer.json" for n in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_real_pipelines_give_the_packages_ids(files, name):
    assert_alike(json.loads(files[name].read_text()), seed=1)


def bpe(**changes):
    """A small BPE over characters: merges of "ab", "abc", "▁a"."""
    vocab = ["<unk>", *"abcdefgh .!0123456789", "\u2581", "ab", "abc", "\u2581a", "\u2581ab"]
    model = {
        "type": "BPE",
        "vocab": {text: i for i, text in enumerate(vocab)},
        "merges": ["a b", "ab c", "\u2581 a", "\u2581a b"],
        "unk_token": "<unk>",
        "fuse_unk": False,
        "byte_fallback": False,
    }
    return {"added_tokens": [], "model": model | changes}


SMALL = [*"aabbccd .!01\n", "abc", "ab", "\u2581", "é", "漢"]
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "split": True}


@pytest.mark.parametrize(
    "source",
    [
        bpe(),
        bpe(fuse_unk=True),
        bpe(ignore_merges=True),
        bpe() | {"pre_tokenizer": METASPACE | {"prepend_scheme": "always"}},
        bpe() | {"pre_tokenizer": METASPACE | {"prepend_scheme": "first"}},
        bpe() | {"pre_tokenizer": METASPACE | {"prepend_scheme": "never"}},
        bpe() | {"pre_tokenizer": METASPACE | {"prepend_scheme": "always", "split": False}},
        bpe() | {"normalizer": {"type": "Prepend", "prepend": "\u2581"}},
        bpe()
        | {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "NFKC"},
                    {"type": "Strip", "strip_left": True, "strip_right": False},
                    {"type": "Lowercase"},
                    {"type": "Replace", "pattern": {"Regex": " +"}, "content": "\u2581"},
                ],
            }
        },
        bpe() | {"pre_tokenizer": {"type": "Digits", "individual_digits": True}},
        bpe() | {"pre_tokenizer": {"type": "Digits", "individual_digits": False}},
    ],
)
def test_other_parts_give_the_packages_ids(source):
    assert_alike(source, seed=2, pool=SMALL)


@pytest.mark.parametrize(
    "behavior", ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext"]
)
def test_splits_give_the_packages_ids(behavior):
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": False}
    assert_alike(bpe() | {"pre_tokenizer": split}, seed=3, pool=SMALL)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
def test_added_tokens_give_the_packages_ids(normalized, flag):
    def added(text, number, **flags):
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
        about = {"id": number, "content": text, "normalized": normalized}
        return about | plain | flags

    source = bpe() | {
        "normalizer": {"type": "NFC"},
        "added_tokens": [added("<x>", 30, **{flag: True}), added("<x><y>", 31), added("\n", 32)],
    }
    source["model"]["vocab"] |= {"<x>": 30, "<x><y>": 31, "\n": 32, "?": 27, "!!": 28, "(": 29}
    assert_alike(source, seed=4, pool=[*SMALL, "<x>", "<y>", "<x><y>", "  "])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "model is 'None'"),
        ({"model": {"type": "Unigram"}}, "'Unigram'; golem reads BPE"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "model.vocab must be"),
        (bpe(vocab={"a": -1}), "the token 'a' has the id -1"),
        (bpe(vocab={"a": 1 << 40}), "the token 'a' has the id"),
        (bpe(merges="a b"), "model.merges must be a list"),
        (bpe(merges=[["a", 1]]), "model.merges must be a list"),
        (bpe(vocab={"a": 0, "b": 1}, merges=["a b"]), "the merge 'a b' is not of tokens"),
        (bpe(vocab={"a": 0, "ab": 1}, merges=[["a", "b"]]), "the merge 'a b' is not of tokens"),
        (bpe(vocab={"a": 0}, merges=["a"]), "the merge 'a' is not of tokens"),
        (bpe(dropout=0.1), "dropout 0.1"),
        (bpe(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (bpe() | {"normalizer": {"type": "BertNormalizer"}}, "type 'BertNormalizer'; golem knows"),
        (bpe() | {"pre_tokenizer": {"type": "Whitespace"}}, "type 'Whitespace'; golem knows"),
        (
            bpe() | {"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}},
            "the pattern",
        ),
        (bpe() | {"added_tokens": [{"id": "x", "content": "a"}]}, "the added token"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(source, message):
    with pytest.raises(TokenizerError, match=message):
        JsonTokenizer(source)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(TokenizerError, match="No such file"):
        JsonTokenizer(path)
    for text in ("{", "[1]", "[" * 100000):
        path.write_text(text)
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            JsonTokenizer(path)
