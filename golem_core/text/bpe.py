"""Byte-pair tokenizers: words are cut out by a pre-tokenizer and merged pair by pair."""

from collections.abc import Mapping
from typing import Any

from golem_core.text._alphabet import Alphabet
from golem_core.text._merge import Merger
from golem_core.text.base import SPACE, Tokenizer
from golem_core.text.split import splitter, word_pattern

_ALPHABET = Alphabet()


class ByteTokenizer(Tokenizer):
    """``gpt2``: merges over bytes, which the vocabulary spells in GPT-2's printable alphabet.

    Every text comes back from decode() as it was, if the vocabulary has all 256 bytes.
    """

    def __init__(self, metadata: Mapping[str, Any]):
        self._split = splitter(str(metadata.get("tokenizer.ggml.pre", "default")))
        self.adds = (self._split.add_bos, False)
        super().__init__(metadata)
        texts = self._vocabulary.strings("tokens")
        self._bytes = _ALPHABET.table(texts)
        self._merger = Merger.by_merges(
            self._bytes,
            self.n_vocab,
            self._vocabulary.strings("merges"),
            alphabet=_ALPHABET,
            whole=self._split.whole_words,
        )

    def _encode(self, text: str, ids: list[int]) -> None:
        self._merger.extend(self._split(text), ids)

    def _piece(self, token: int) -> bytes:
        return self._bytes.text(token) or self._vocabulary.table.text(token)


class SpaceTokenizer(Tokenizer):
    """``gemma4``: merges over characters, with U+2581 for spaces and ``<0xNN>`` for lone bytes."""

    adds = (True, False)

    def __init__(self, metadata: Mapping[str, Any]):
        super().__init__(metadata)
        self.add_bos = True  # files that say otherwise are wrong, llama.cpp overrides them too
        table = self._vocabulary.table
        self._merger = Merger.by_merges(
            table, self.n_vocab, self._vocabulary.strings("merges"), whole_newlines=True
        )
        self._words = word_pattern(table.before(SPACE.encode()), apart="\n")

    def _encode(self, text: str, ids: list[int]) -> None:
        self._merger.extend(self._words.findall(text.replace(" ", SPACE)), ids)

    def _piece(self, token: int) -> bytes:
        return self._vocabulary.table.text(token).replace(SPACE.encode(), b" ")
