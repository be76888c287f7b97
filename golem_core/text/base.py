"""What tokenizers of every kind share.

Special tokens are cut out of a text first, BOS and EOS are put around it, and a token's bytes are
known without the rest of the text, so that an answer can be shown while it is being drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from golem_core.text.detokenizer import Detokenizer, characters
from golem_core.text.errors import TokenizerError
from golem_core.text.vocabulary import Kind, Vocabulary

SPACE = "\u2581"  # what SentencePiece vocabularies write for a space
_HIDDEN = (Kind.CONTROL, Kind.UNKNOWN)


class Tokenizer(ABC):
    """One vocabulary.

    ``n_vocab`` tokens; ``bos``, ``eos``, ``eot``, ``eom``, ``unk``, ``sep``, ``pad``, ``mask`` and
    ``fim_*`` ids or None; ``add_bos`` / ``add_eos``: what encode() adds when asked for specials;
    ``eog``: ids that end a generation; ``suppress``: ids never to be drawn; ``model``, ``pre``: the
    kind and pre-tokenizer the file names. Safe to use from several threads.
    """

    defaults: ClassVar[dict[str, int]] = {}
    adds: ClassVar[tuple[bool, bool]] = (False, False)  # BOS, EOS, where the file is silent

    def __init__(self, metadata: Mapping[str, Any]):
        self._vocabulary = Vocabulary(metadata, self.defaults)
        self.model = str(metadata.get("tokenizer.ggml.model", ""))
        self.pre = str(metadata.get("tokenizer.ggml.pre", ""))
        self.n_vocab = self._vocabulary.n_vocab
        self.eog = self._vocabulary.eog
        self.suppress = self._vocabulary.suppress
        for name, token in self._vocabulary.ids.items():
            setattr(self, name, token)
        add_bos, add_eos = self.adds
        self.add_bos = self._vocabulary.setting("add_bos_token", add_bos)
        self.add_eos = self._vocabulary.setting("add_eos_token", add_eos)
        self._specials = self._vocabulary.specials()
        self._kinds = self._vocabulary.kinds.tobytes()

    bos: int | None
    eos: int | None
    eot: int | None
    eom: int | None
    unk: int | None
    sep: int | None
    pad: int | None
    mask: int | None

    def encode(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """The ids of ``text``.

        add_special: put BOS and EOS around it where the model wants them. parse_special: special
        tokens written out in the text become their ids; otherwise they are plain text, except
        those the file calls user-defined. A lone surrogate counts as U+FFFD.
        """
        ids = self._opening() if add_special else []
        raw = _utf8(text)
        at = 0
        for start, end, token in self._specials.cut(raw, parse_special):
            if start > at:
                self._encode(raw[at:start].decode(), ids)
            ids.append(token)
            at = end
        if at < len(raw):
            self._encode(raw[at:].decode(), ids)
        if add_special:
            ids += self._closing()
        return ids

    def piece(self, token: int, special: bool = False) -> bytes:
        """The bytes a token stands for; none for control tokens unless ``special``."""
        kind = self._kind(token)
        if kind == Kind.NORMAL:
            return self._piece(token)
        if kind == Kind.USER_DEFINED or (special and kind in _HIDDEN):
            return self._vocabulary.table.text(token)
        return self._byte(token) if kind == Kind.BYTE else b""

    def decode_bytes(self, ids: Iterable[int], special: bool = False) -> bytes:
        """The bytes of ``ids`` in a row, whether or not they are whole characters."""
        return b"".join([self.piece(token, special) for token in ids])

    def decode(self, ids: Iterable[int], special: bool = False, *, whole: bool = False) -> str:
        """The text of ``ids``: what stream() gives piece by piece.

        Bytes that can be no character become U+FFFD; half a character at the end is left out.
        whole: the ids are a whole text and not the rest of one, so the space that encode() put in
        front of it is taken off again.
        """
        text = characters(self.decode_bytes(ids, special))
        return text[1:] if whole and self._space_prefix and text.startswith(" ") else text

    def stream(self, special: bool = False, *, shown: Collection[int] = frozenset()) -> Detokenizer:
        """A decoder for tokens as they are drawn. shown: control tokens whose text is wanted."""
        return Detokenizer(self, special, shown)

    @cached_property
    def pieces(self) -> list[bytes]:
        """`piece` of every token; special tokens are empty. For grammars and samplers."""
        return [self.piece(token) for token in range(self.n_vocab)]

    @cached_property
    def texts(self) -> dict[int, str]:
        """Texts of tokens that are whole characters, as far as a stream has met them."""
        return {}

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest text that is one token: a text of more than n times as many is more
        than n tokens."""
        return max(len(self.piece(token, special=True)) for token in range(self.n_vocab))

    def text(self, token: int) -> str:
        """A token's text as the vocabulary has it."""
        self._kind(token)
        return self._vocabulary.text(token)

    def find(self, text: str) -> int | None:
        """The token with exactly this text in the vocabulary, or None."""
        return self._vocabulary.find(text)

    def kind(self, token: int) -> Kind:
        """What the vocabulary calls a token."""
        return Kind(self._kind(token))

    def is_control(self, token: int) -> bool:
        """Whether a token steers the model and has no text of its own."""
        return self._kind(token) in _HIDDEN

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model} {self.pre}: {self.n_vocab} tokens>"

    _space_prefix = False

    @abstractmethod
    def _encode(self, text: str, ids: list[int]) -> None:
        """Append the ids of ``text``, which is not empty and holds no special tokens."""

    @abstractmethod
    def _piece(self, token: int) -> bytes:
        """The bytes of a normal token."""

    def _opening(self) -> list[int]:
        return [self.bos] if self.add_bos and self.bos is not None else []

    def _closing(self) -> list[int]:
        return [self.eos] if self.add_eos and self.eos is not None else []

    def _byte(self, token: int) -> bytes:
        text = self._vocabulary.text(token)
        try:
            return bytes([int(text[3:5], 16)]) if text.startswith("<0x") else b""
        except ValueError:
            return b""

    def _kind(self, token: int) -> int:
        if not 0 <= token < self.n_vocab:
            raise TokenizerError(f"token {token} is not in the vocabulary of {self.n_vocab}")
        return self._kinds[token]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return joined.encode()
