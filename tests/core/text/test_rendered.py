"""A rendered conversation begins with one begin token, whoever writes it."""

import pytest

from golem_core.text.rendered import encode_rendered
from golem_core.text.tokenizer import load_tokenizer
from tests.core.text.vocabularies import CONTROL, byte_header


@pytest.mark.parametrize("written", ["", "<s>"])
@pytest.mark.parametrize("adds", [True, False])
def test_the_begin_token_is_there_once_and_only_where_somebody_wants_it(written, adds):
    keys = {"bos_token_id": 256, "add_bos_token": adds}
    tokenizer = load_tokenizer(byte_header(("<s>", CONTROL), ("<e>", CONTROL), **keys))
    ids = encode_rendered(tokenizer, f"{written}ab<e><s>")
    begin = [256] if adds or written else []
    assert ids == [*begin, *tokenizer.encode("ab"), 257, 256]


def test_a_vocabulary_without_a_begin_token_gets_none():
    tokenizer = load_tokenizer(byte_header(("<e>", CONTROL), add_bos_token=True))
    assert encode_rendered(tokenizer, "a<e>") == [*tokenizer.encode("a"), 256]
