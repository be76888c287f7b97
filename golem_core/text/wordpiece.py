"""BERT's WordPiece: words and signs apart, each word by its longest beginnings."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from golem_core.text._merge import LongestMatch
from golem_core.text.base import SPACE, Tokenizer

# White_Space, as the tables of Unicode have it; str.isspace() counts four control characters too.
_WHITE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(code) for code in range(0x2000, 0x200B)
}
# Ideographs stand alone. The gap at U+2B820 is in Hugging Face's tokenizers, and so in the models.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPieceTokenizer(Tokenizer):
    """``bert``: a GGUF vocabulary has U+2581 before the pieces that begin a word.

    [CLS] and [SEP] go around a text whatever the file says of BOS and EOS, as in llama.cpp.
    """

    defaults: ClassVar[dict[str, int]] = {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}
    adds = (True, False)

    def __init__(self, metadata: Mapping[str, Any]):
        super().__init__(metadata)
        self._lowercase = self._vocabulary.setting("normalizer.lowercase", True)
        self._strip = self._vocabulary.setting("normalizer.strip_accents", self._lowercase)
        self._match = LongestMatch(
            self._vocabulary.table, self.n_vocab, -1 if self.unk is None else self.unk
        )

    def _encode(self, text: str, ids: list[int]) -> None:
        self._match.extend([SPACE + word for word in self._words(text)], ids)

    def _piece(self, token: int) -> bytes:
        return self._vocabulary.table.text(token).replace(SPACE.encode(), b" ")

    def _opening(self) -> list[int]:
        return [] if self.bos is None else [self.bos]

    def _closing(self) -> list[int]:
        return [] if self.sep is None else [self.sep]

    def _words(self, text: str) -> Iterator[str]:
        """Words of the normalised text, signs and ideographs as words of one character."""
        word: list[str] = []
        for char in unicodedata.normalize("NFD", text) if self._strip else text:
            category = unicodedata.category(char)
            alone = (
                category[0] == "P" or (category[0] == "S" and char < "\x7f") or _is_ideograph(char)
            )
            if char in _WHITE or alone:
                if word:
                    yield "".join(word)
                    word = []
                if alone:
                    yield char
            elif category[0] != "C" or category == "Cn":
                if self._strip and category[0] == "M":
                    continue
                if char not in "\0\ufffd":
                    word.append(char.lower()[0] if self._lowercase else char)
        if word:
            yield "".join(word)


def _is_ideograph(char: str) -> bool:
    code = ord(char)
    return code >= 0x3400 and any(first <= code <= last for first, last in _IDEOGRAPHS)
