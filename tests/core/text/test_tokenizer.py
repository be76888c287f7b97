"""What a tokenizer promises to the rest of golem, whatever its kind."""

import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.text import TokenizerError, load_tokenizer
from golem_core.text.sorter import shown_tokens
from golem_core.text.split import SPLITTERS
from golem_core.text.vocabulary import Kind
from tests.core.text.vocabularies import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER,
    byte_header,
    header,
    recorded,
)

SMALL = recorded()["vocabularies"]
KINDS = {name: load_tokenizer(record["metadata"]) for name, record in SMALL.items()}
KINDS["bytes"] = load_tokenizer(recorded()["bytes"]["metadata"])
BYTES = KINDS["bytes"]

BOTH = {"bos_token_id": 256, "eos_token_id": 257}
any_text = st.text(max_size=80)
quick = settings(max_examples=150, deadline=None)


@quick
@given(any_text)
def test_bytes_come_back_as_they_went(text):
    assert BYTES.decode(BYTES.encode(text)) == text
    assert BYTES.decode_bytes(BYTES.encode(text, parse_special=False)) == text.encode()


@quick
@given(st.text(st.characters(codec="utf-8", exclude_characters="\u2581"), max_size=60))
def test_sentencepiece_texts_come_back_whole(text):
    tokenizer = KINDS["llama"]
    ids = tokenizer.encode(text, add_special=True, parse_special=False)
    assert tokenizer.decode(ids, whole=True) == text


@pytest.mark.parametrize("name", KINDS)
@quick
@given(st.text(st.characters(), max_size=60), st.booleans(), st.booleans())
def test_no_text_is_an_error(name, text, add_special, parse_special):
    """Surrogates alone count as U+FFFD, pairs as the character they mean."""
    tokenizer = KINDS[name]
    ids = tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
    assert all(0 <= token < tokenizer.n_vocab for token in ids)
    clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert ids == tokenizer.encode(clean, add_special=add_special, parse_special=parse_special)


@pytest.mark.parametrize("name", KINDS)
@quick
@given(st.data(), st.booleans())
def test_streamed_pieces_make_up_the_decoded_text(name, data, special):
    tokenizer = KINDS[name]
    bytes_first = st.integers(0, min(300, tokenizer.n_vocab - 1))  # many halves of characters
    ids = data.draw(st.lists(bytes_first | st.integers(0, tokenizer.n_vocab - 1), max_size=30))
    stream = tokenizer.stream(special)
    pieces = [stream.push(token) for token in ids]
    held = stream.held
    assert "".join(pieces) + stream.flush() == tokenizer.decode(ids, special)
    assert stream.held == b""
    raw = tokenizer.decode_bytes(ids, special)
    assert "".join(pieces) == raw[: len(raw) - len(held)].decode("utf-8", "replace")
    assert len(held) < 4


def test_half_a_character_is_held_until_it_is_whole():
    fox = "🦊".encode()
    ids = [BYTES.encode("x")[0], *(BYTES.find(text) for text in ("ð", "Ł", "¦", "Ĭ"))]
    assert BYTES.decode_bytes(ids) == b"x" + fox
    stream = BYTES.stream()
    assert [stream.push(token) for token in ids] == ["x", "", "", "", "🦊"]
    assert BYTES.decode(ids[:4]) == "x"
    assert [stream.push(token) for token in ids[1:4]] == ["", "", ""]
    assert stream.held == fox[:3]
    assert stream.flush() == ""
    assert stream.push(ids[0]) == "x"


def test_bytes_that_become_no_character_are_shown_once_that_is_sure():
    lead, tail, x = BYTES.find("ð"), BYTES.find("Ł"), BYTES.find("x")
    stream = BYTES.stream()
    assert [stream.push(token) for token in (lead, x, tail, x)] == ["", "\ufffdx", "\ufffd", "x"]


def test_a_stream_shows_the_control_tokens_it_is_told_to():
    tokenizer = load_tokenizer(byte_header(("<a>", CONTROL), ("<b>", CONTROL), ("<c>", USER)))
    ids = tokenizer.encode("x<a>y<b><c>")
    for shown, text in (((), "xy<c>"), (("<a>",), "x<a>y<c>"), (("<a>", "<b>"), "x<a>y<b><c>")):
        stream = tokenizer.stream(shown=shown_tokens(tokenizer, shown, hidden=()))
        assert "".join(stream.push(token) for token in ids) == text
    assert not shown_tokens(tokenizer, ["<a>"], hidden={tokenizer.find("<a>")})


def test_special_tokens_in_a_text():
    tokenizer = load_tokenizer(
        byte_header(("<a>", CONTROL), ("<b>", USER), ("<u>", UNKNOWN), ("<n>", UNUSED))
    )
    a, b, u = (tokenizer.find(text) for text in ("<a>", "<b>", "<u>"))
    assert tokenizer.encode("<a><b><u>") == [a, b, u]
    plain = tokenizer.encode("<a><b><u>", parse_special=False)
    assert b in plain
    assert not {a, u} & set(plain)
    assert tokenizer.decode(plain) == "<a><b><u>"
    assert tokenizer.find("<n>") not in tokenizer.encode("<n>")
    assert [tokenizer.is_control(token) for token in (a, b, u)] == [True, False, True]
    assert tokenizer.decode([a, b, u]) == "<b>"
    assert tokenizer.decode([a, b, u], special=True) == "<a><b><u>"
    assert tokenizer.kind(b) is Kind.USER_DEFINED


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        ({}, []),
        ({"bos_token_id": 256}, []),
        ({"bos_token_id": 256, "add_bos_token": True}, [256]),
        ({"eos_token_id": 257, "add_eos_token": True}, [257]),
        ({**BOTH, "add_bos_token": True, "add_eos_token": True}, [256, 257]),
        ({"add_bos_token": True}, []),
        ({"pre": "llama-bpe", "bos_token_id": 256}, [256]),
        ({"pre": "llama-bpe", "bos_token_id": 256, "add_bos_token": False}, []),
        ({"pre": "tekken", "bos_token_id": 256}, [256]),
    ],
)  # fmt: skip
def test_bos_and_eos_go_around_a_text_where_the_model_wants_them(keys, ids):
    tokenizer = load_tokenizer(byte_header(("<s>", CONTROL), ("<e>", CONTROL), **keys))
    assert tokenizer.encode("", add_special=True) == ids
    assert tokenizer.encode("", add_special=False) == []
    assert len(tokenizer.encode("ab", add_special=True)) == 2 + len(ids)


def test_special_ids_are_read_found_by_text_or_missing():
    specials = [("<|im_end|>", NORMAL), ("<|fim_prefix|>", NORMAL), ("<p>", CONTROL)]
    tokenizer = load_tokenizer(
        byte_header(*specials, padding_token_id=258, bos_token_id=999, prefix_token_id=258)
    )
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (258, None, None, None)
    assert tokenizer.eot == 256
    assert tokenizer.fim_pre == 258  # the old name of the key goes before the text
    assert tokenizer.is_control(256)
    assert load_tokenizer(byte_header(*specials)).fim_pre == 257


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        ("<|im_end|> <|endoftext|> <x>", "<|im_end|> <|endoftext|>"),
        ("<|eot_id|> <|eom_id|> <|end_of_text|>", "<|eot_id|> <|eom_id|> <|end_of_text|>"),
        ("<end_of_turn> <eos> </s>", "<end_of_turn> <eos> </s>"),
        ("<turn|> <|tool_response> </s> <eos>", "<turn|> <|tool_response> <eos>"),
        ("<|end|> <x>", "<|end|>"),
        ("<|end|> <|return|> <|call|>", "<|return|> <|call|>"),
        ("<|end|> <|flush|> <|calls|>", "<|flush|> <|calls|>"),
        ("<|fim_pad|> <|repo_name|> <|file_sep|>", "<|fim_pad|> <|repo_name|> <|file_sep|>"),
        ("<x> <y>", ""),
    ],
)
def test_what_ends_a_generation_is_found_by_text(texts, ends):
    tokenizer = load_tokenizer(byte_header(*((text, USER) for text in texts.split())))
    assert tokenizer.eog == {tokenizer.find(text) for text in ends.split()}
    # What ends a generation has no text of its own, whatever the file called it.
    assert tokenizer.decode(sorted(tokenizer.eog)) == ""


def test_what_ends_a_generation_is_found_by_id():
    specials = [("<x>", CONTROL), ("<y>", CONTROL), ("<z>", CONTROL)]
    tokenizer = load_tokenizer(
        byte_header(*specials, eos_token_id=256, eot_token_id=257, eom_token_id=258)
    )
    assert tokenizer.eog == {256, 257, 258}


def test_tokens_that_must_not_be_drawn():
    keys = {"suppress_tokens": np.array([3, -1, 5, 10_000], np.int32)}
    assert load_tokenizer(byte_header(**keys)).suppress == (3, 5)
    assert load_tokenizer(byte_header()).suppress == ()


def test_pieces_are_those_of_every_token():
    assert BYTES.pieces == [BYTES.piece(token) for token in range(BYTES.n_vocab)]
    assert sum(piece == b"" for piece in BYTES.pieces) > 0


@pytest.mark.parametrize("token", [-1, 10**6])
def test_an_id_outside_of_the_vocabulary_is_refused(token):
    for method in (BYTES.piece, BYTES.text, BYTES.kind, BYTES.is_control, BYTES.stream().push):
        with pytest.raises(TokenizerError, match=str(token)):
            method(token)
    with pytest.raises(TokenizerError):
        BYTES.decode([token])


def test_control_tokens_are_not_made_from_plain_text():
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("<", NORMAL), ("<s", NORMAL), (">", NORMAL),
              ("s", NORMAL), ("<0x41>", BYTE)]  # fmt: skip
    tokenizer = load_tokenizer(
        header("llama", tokens, scores=[0.0] * len(tokens), add_space_prefix=False)
    )
    assert tokenizer.encode("<s>", parse_special=False) == [3, 4]
    assert tokenizer.encode("<s>") == [1]
    assert tokenizer.encode("A") == [6]
    assert tokenizer.encode("B") == [0]


@pytest.mark.parametrize("scores", [(-1.0, -2.0, -3.0), (-1.0, -3.0, -2.0)])
def test_a_word_is_not_cut_where_a_token_goes_on_over_a_space(scores):
    texts = ["<unk>", "a", "b", "\u2581", "a\u2581b", "a\u2581", "\u2581b"]
    tokenizer = load_tokenizer(
        header(
            "llama",
            [(text, NORMAL) for text in texts],
            scores=[0.0, 0.0, 0.0, 0.0, *scores],
            add_space_prefix=False,
        )
    )
    assert tokenizer.encode("a b") == [4]


@pytest.mark.parametrize("model", ["rwkv", "plamo2", "", 7, None])
def test_an_unknown_kind_is_refused_with_those_known(model):
    with pytest.raises(TokenizerError, match=r"gpt2.*t5|no tokenizer\.ggml\.model"):
        load_tokenizer(byte_header() | {"tokenizer.ggml.model": model})


def test_an_unknown_pre_tokenizer_is_refused_with_those_known():
    with pytest.raises(TokenizerError) as refused:
        load_tokenizer(byte_header(pre="qwen99"))
    assert "'qwen99'" in str(refused.value)
    assert all(re.search(rf"\b{re.escape(name)}\b", str(refused.value)) for name in SPLITTERS)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"tokens": None}, "tokens"),
        ({"tokens": []}, "tokens"),
        ({"tokens": 5}, "tokens"),
        ({"tokens": [1, 2]}, "tokens"),
        ({"merges": None}, "merges"),
        ({"merges": "a b"}, "merges"),
        ({"merges": [3]}, "merges"),
        ({"token_type": [1, 1]}, "token_type"),
        ({"token_type": ["x"] * 256}, "token_type"),
        ({"add_bos_token": "yes"}, "add_bos_token"),
        ({"model": "llama"}, "scores"),
        ({"model": "llama", "scores": [0.0]}, "scores"),
        ({"model": "t5", "scores": [0.0] * 256, "precompiled_charsmap": [1, 2, 3]}, "charsmap"),
        (
            {
                "model": "t5",
                "scores": [0.0] * 256,
                "precompiled_charsmap": [4, 0, 0, 0, 255, 255, 0, 0, 65],
            },
            "charsmap",
        ),
    ],
)
def test_a_vocabulary_that_makes_no_sense_is_refused_by_key(change, names):
    keys = byte_header() | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(TokenizerError, match=rf"tokenizer\.ggml\.\w*{names}"):
        load_tokenizer({key: value for key, value in keys.items() if value is not None})


@pytest.mark.parametrize("unit", [0x7FFFFFFF, 0xFFFFFFFF, 0x3FF00100, 0x100, 0x1FF])
def test_a_charsmap_that_points_outside_of_itself_is_an_error_and_no_crash(unit):
    blob = (1024).to_bytes(4, "little") + unit.to_bytes(4, "little") * 256 + b"a\0"
    tokens = [("<pad>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN), ("a", NORMAL)]
    tokenizer = load_tokenizer(
        header("t5", tokens, scores=[0.0] * 4, precompiled_charsmap=list(blob))
    )
    for text in ("a", "\x01", "\xff", "abc" * 50, "".join(map(chr, range(1, 300)))):
        try:
            ids = tokenizer.encode(text)
        except TokenizerError as error:
            assert "charsmap" in str(error)
        else:
            assert all(0 <= token < 4 for token in ids)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_header_gives_a_tokenizer_or_a_named_error(data):
    """Keys of wrong types and sizes, damaged tables, ids out of range."""
    name = data.draw(st.sampled_from(sorted(KINDS)))
    keys = dict((recorded()["bytes"] if name == "bytes" else SMALL[name])["metadata"])
    numbers = st.lists(st.integers(-2, 9) | st.floats(width=32), max_size=5)
    value = st.none() | st.integers(-5, 2000) | st.booleans() | st.text(max_size=5) | numbers
    value |= st.lists(st.text(max_size=6), max_size=5)
    for _ in range(data.draw(st.integers(1, 3))):
        keys[data.draw(st.sampled_from(sorted(keys)))] = data.draw(value)
    try:
        tokenizer = load_tokenizer(keys)
    except TokenizerError as error:
        assert "tokenizer.ggml" in str(error)
        return
    for text in ("Hello  world\n\u00e9\u4f60 <s>", ""):
        ids = tokenizer.encode(text, add_special=True)
        tokenizer.decode(ids, special=True)
    assert len(tokenizer.pieces) == tokenizer.n_vocab


def test_threads_share_a_tokenizer():
    texts = [text * 3 for text in recorded()["texts"]]
    tokenizer = load_tokenizer(recorded()["bytes"]["metadata"])
    expected = [BYTES.encode(text) for text in texts]
    wrong = []

    def work():
        for _ in range(5):
            wrong.extend(text for text, ids in zip(texts, expected, strict=True)
                         if tokenizer.encode(text) != ids)  # fmt: skip

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text", ["a", " ", "\n", "<", "1", "'", "\u0301", "aA", " \n", "<|im_"])
def test_long_runs_take_reasonable_time(name, text):
    """Nothing between the special tokens and the last merge is quadratic in a run's length."""
    tokenizer = KINDS[name]
    size = 120_000 // len(text)
    ids = tokenizer.encode(text * size)
    if name in ("bytes", "llama without a prefix"):
        assert tokenizer.decode(ids) == text * size
