"""Tokens to text while they are drawn, never half a character."""

from codecs import getincrementaldecoder
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_core.text.tokenizer import Tokenizer

_Decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of a growing row of tokens.

    A character that is not whole yet is held back. Bytes that can no longer become a character
    (what follows does not continue them) are U+FFFD at once, as in ``bytes.decode``; a character
    still not whole at the end is left out, for nobody wants half of one to read. So the pieces of
    a stream make up `Tokenizer.decode` of all its tokens, wherever it is cut.

    special: control tokens have their text; shown: these have it anyway.
    """

    def __init__(
        self, tokenizer: "Tokenizer", special: bool = False, shown: Collection[int] = frozenset()
    ):
        self._tokenizer = tokenizer
        self._special = special
        self._shown = shown
        self._decoder = _Decoder("replace")
        self.held = b""  # of a character that is not whole yet

    def push(self, token: int) -> str:
        """The characters that ``token`` completes; may be empty."""
        alone = not self.held
        special = self._special or token in self._shown
        texts = self._tokenizer.texts
        if alone and not special and token in texts:
            return texts[token]
        text = self._decoder.decode(self._tokenizer.piece(token, special))
        self.held = self._decoder.getstate()[0]
        if alone and not special and not self.held:
            texts[token] = text
        return text

    def flush(self) -> str:
        """The end of the text: what is still held is dropped. The stream starts anew."""
        self._decoder.reset()
        self.held = b""
        return ""


def characters(raw: bytes) -> str:
    """The text of ``raw`` by the rule of `Detokenizer`."""
    return _Decoder("replace").decode(raw)
