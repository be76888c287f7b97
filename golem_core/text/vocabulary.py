"""What a GGUF header says about a vocabulary, whatever kind of tokenizer reads it.

Texts, kinds and scores of the tokens, the special ids, what ends a generation. The rules are
llama.cpp's, which patch over what files commonly leave out: the ids that end a generation are
found by text, and a token found that way is a control token whatever the file calls it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from golem_core.text._special import Specials
from golem_core.text._table import Table
from golem_core.text.errors import TokenizerError


class Kind(IntEnum):
    """Token types of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_IDS = {
    "bos": "bos",
    "eos": "eos",
    "eot": "eot",
    "eom": "eom",
    "unk": "unknown",
    "sep": "seperator",  # spelled so in the files
    "pad": "padding",
    "mask": "mask",
    "fim_pre": "fim_pre",
    "fim_suf": "fim_suf",
    "fim_mid": "fim_mid",
    "fim_pad": "fim_pad",
    "fim_rep": "fim_rep",
    "fim_sep": "fim_sep",
}
_OLD_NAMES = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
# The first of these texts that a vocabulary has, where the file gives no id.
_BY_TEXT = {
    "eot": [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<end_of_utterance>",
    ],
    "eom": ["<|eom_id|>"],
    "fim_pre": [
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<\uff5cfim\u2581begin\uff5c>",
        "<PRE>",
        "\u2581<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ],
    "fim_suf": [
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<\uff5cfim\u2581hole\uff5c>",
        "<SUF>",
        "\u2581<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ],
    "fim_mid": [
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<\uff5cfim\u2581end\uff5c>",
        "<MID>",
        "\u2581<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ],
    "fim_pad": ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    "fim_rep": ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    "fim_sep": ["<|file_sep|>"],
}
# What ends a generation, wherever a vocabulary has it: the ends of a turn, and a few more.
_ENDS = [
    *_BY_TEXT["eot"],
    *_BY_TEXT["eom"],
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
]
_ALWAYS_SHOWN = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"]
_ALWAYS_FOUND, _TRIM_LEFT, _TRIM_RIGHT = 1, 2, 4


class Vocabulary:
    """Tokens and special ids of a file; ``TokenizerError`` for a header that makes no sense.

    defaults: ids by name ("bos") for files that give none. ids: the same names to id or None.
    eog: ids that end a generation. suppress: ids that may never be drawn. kinds: u8 (n_vocab).
    """

    def __init__(self, metadata: Mapping[str, Any], defaults: Mapping[str, int]):
        self._metadata = metadata
        texts = list(self._array("tokens", str))
        if not texts:
            raise TokenizerError("tokenizer.ggml.tokens is empty: the file holds no vocabulary")
        self.n_vocab = len(texts)
        self.table = Table(texts)
        kinds = self.numbers("token_type")
        self.kinds = np.full(self.n_vocab, Kind.NORMAL, np.uint8)
        if kinds is not None:
            self.kinds[:] = np.where((kinds >= 0) & (kinds <= 6), kinds, Kind.UNDEFINED)
        self.ids = {name: self._special_id(name, defaults.get(name)) for name in _IDS}
        self.eog = self._find_ends()
        suppressed = np.asarray(self._metadata.get("tokenizer.ggml.suppress_tokens", ()))
        numbers = suppressed.ravel().tolist() if suppressed.dtype.kind in "iu" else ()
        self.suppress = tuple(token for token in numbers if 0 <= token < self.n_vocab)

    def text(self, token: int) -> str:
        """The text of a token as the file has it; bytes that are no UTF-8 as surrogates."""
        return self.table.text(token).decode("utf-8", "surrogateescape")

    def find(self, text: str) -> int | None:
        """The token with exactly this text, or None."""
        token = self.table.get(text.encode("utf-8", "surrogateescape"))
        return token if token is not None and token < self.n_vocab else None

    def setting(self, name: str, default: Any) -> Any:
        """``tokenizer.ggml.NAME``, which must be of the default's type."""
        value = self._metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, type(default)):
            raise TokenizerError(
                f"tokenizer.ggml.{name} must be a {type(default).__name__}, it is {value!r}"
            )
        return value

    def strings(self, name: str) -> Sequence[str]:
        """An array of strings that the tokenizer cannot do without."""
        return self._array(name, str)

    def numbers(self, name: str) -> np.ndarray | None:
        """``tokenizer.ggml.NAME``, one number a token, or None."""
        if f"tokenizer.ggml.{name}" not in self._metadata:
            return None
        values = np.asarray(self._metadata[f"tokenizer.ggml.{name}"])
        if values.ndim != 1 or values.dtype.kind not in "iuf" or len(values) < self.n_vocab:
            raise TokenizerError(
                f"tokenizer.ggml.{name} must be {self.n_vocab} numbers, one for each token; it is "
                f"{values.dtype} of shape {values.shape}"
            )
        return values[: self.n_vocab]

    def blob(self, name: str) -> bytes:
        """``tokenizer.ggml.NAME``, an array of bytes; empty when the file has none."""
        values = np.asarray(self._metadata.get(f"tokenizer.ggml.{name}", ()))
        if values.ndim != 1 or (len(values) and values.dtype.kind not in "iu"):
            raise TokenizerError(
                f"tokenizer.ggml.{name} must be an array of bytes; it is {values.dtype} of shape "
                f"{values.shape}"
            )
        return values.astype(np.uint8).tobytes()

    def of_kind(self, *kinds: Kind) -> np.ndarray:
        """Ids of the tokens of these kinds, ascending."""
        return np.flatnonzero(np.isin(self.kinds, kinds))

    def specials(self) -> Specials:
        """The finder of tokens that are cut out of a text before anything else."""
        flags = self._trims()
        tokens = []
        for token in self.of_kind(Kind.UNKNOWN, Kind.CONTROL, Kind.USER_DEFINED).tolist():
            found = _ALWAYS_FOUND if self.kinds[token] == Kind.USER_DEFINED else 0
            text = self.table.text(token)
            if text:
                tokens.append((text, token, found | flags.get(token, 0)))
        return Specials(tokens)

    def _array(self, name: str, element: type) -> Sequence[Any]:
        key = f"tokenizer.ggml.{name}"
        values = self._metadata.get(key)
        if values is None:
            raise TokenizerError(f"the file has no {key}, so golem cannot turn text into tokens")
        strange = isinstance(values, str | bytes | np.ndarray) or not isinstance(values, Sequence)
        if strange or (len(values) and not isinstance(values[0], element)):
            raise TokenizerError(f"{key} must be an array of strings")
        return values

    def _special_id(self, name: str, default: int | None) -> int | None:
        if default is not None and default >= self.n_vocab:
            default = None
        for spelled in (_IDS[name], _OLD_NAMES.get(name)):
            value = self._metadata.get(f"tokenizer.ggml.{spelled}_token_id")
            if isinstance(value, int) and 0 <= value < self.n_vocab:
                return value
        return default

    def _find_ends(self) -> frozenset[int]:
        for name, texts in _BY_TEXT.items():
            if self.ids[name] is None:
                self.ids[name] = self._first_control(texts)
        ends = {self.ids["fim_pad"], self.ids["fim_rep"], self.ids["fim_sep"]}
        by_text = {text: self.find(text) for text in _ENDS}
        for token in by_text.values():
            if token is not None:
                self.kinds[token] = Kind.CONTROL
                ends.add(token)
        for text in _ALWAYS_SHOWN:
            self._set_kind(self.find(text), Kind.USER_DEFINED)
        ends |= {self.ids["eos"], self.ids["eot"], self.ids["eom"]}
        self._spare(by_text, ends)
        return frozenset(ends - {None})

    def _spare(self, by_text: dict[str, int | None], ends: set[int | None]) -> None:
        """Take back two texts that end a generation in some vocabularies and not in others."""

        def has(*texts: str) -> bool:
            return all(by_text[text] in ends and by_text[text] is not None for text in texts)

        harmony = has("<|return|>") and (has("<|call|>") or has("<|calls|>"))
        solar = has("<|flush|>") and (has("<|call|>") or has("<|calls|>"))
        if has("<|end|>") and (harmony or solar):
            ends.discard(by_text["<|end|>"])
            self._set_kind(by_text["<|end|>"], Kind.USER_DEFINED)
        if has("</s>", "<|tool_response>"):
            ends.discard(by_text["</s>"])
            self._set_kind(by_text["</s>"], Kind.NORMAL)

    def _first_control(self, texts: Iterable[str]) -> int | None:
        for text in texts:
            token = self.find(text)
            if token is not None:
                self._set_kind(token, Kind.CONTROL)
                return token
        return None

    def _set_kind(self, token: int | None, kind: Kind) -> None:
        if token is not None:
            self.kinds[token] = kind

    def _trims(self) -> dict[int, int]:
        """White space that special tokens swallow, known by the names of model families only."""
        architecture = str(self._metadata.get("general.architecture", ""))
        pre = str(self._metadata.get("tokenizer.ggml.pre", ""))
        name = str(self._metadata.get("general.name", "")).lower()
        flags: dict[int | None, int] = {}
        if any(part in architecture for part in ("nomic-bert-moe", "jina-bert-v3")) or any(
            part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")
        ):
            flags[self.find("<mask>")] = _TRIM_LEFT
        elif "phi-3" in name or "phi3" in name:
            for token in self.of_kind(Kind.UNKNOWN, Kind.CONTROL, Kind.USER_DEFINED).tolist():
                flags[token] = _TRIM_RIGHT
            for text in ("<unk>", "<s>", "<|endoftext|>"):
                flags.pop(self.find(text), None)
        elif "modern-bert" in name:
            flags[self.find("[MASK]")] = _TRIM_LEFT
        return {token: flag for token, flag in flags.items() if token is not None}
