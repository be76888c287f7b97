"""Tokenizers as Hugging Face ships them: a ``tokenizer.json`` of the BPE kind.

Checkpoints that are no GGUF files bring their vocabulary so. The file describes a pipeline: texts
of added tokens are cut out, what is left is normalised, cut into words and merged. Parts that
golem does not know are refused by name, for another cut would give other ids than the model was
trained on. The post-processor, truncation and padding are the caller's business and are ignored.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import regex

from golem_core.text._alphabet import Alphabet
from golem_core.text._merge import Merger
from golem_core.text._table import Table
from golem_core.text.base import SPACE
from golem_core.text.errors import TokenizerError
from golem_core.text.split import SPLITTERS

LONGEST = 64 << 20  # bytes of a file; the largest published ones have half of it
MOST_TOKENS = 1 << 21
_ALPHABET = Alphabet()

TextStep = Callable[[str], str]
WordStep = Callable[[list[str]], list[str]]


class JsonTokenizer:
    """One vocabulary. Safe to use from several threads.

    source: the file, or its parsed content. ``n_vocab`` ids, the added ones among them.
    """

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any]):
        name = "tokenizer.json"
        if not isinstance(source, Mapping):
            name, source = str(source), _load(Path(source))
        self._name = name
        model = self._part(source, "model", required=True)
        if model.get("type", "BPE") != "BPE":
            raise self._fail(f"a model of type {model.get('type')!r}; golem reads BPE")
        self._normalise = self._chain(source.get("normalizer"), self._normalizer)
        steps, bytewise = self._pre_tokenizers(source.get("pre_tokenizer"))
        self._words = steps
        self._build(model, bytewise)
        self._added(source.get("added_tokens") or [])

    def __repr__(self) -> str:
        return f"<JsonTokenizer {self._name}: {self.n_vocab} tokens>"

    def encode(self, text: str) -> list[int]:
        """The ids of a text, added tokens written out in it among them; nothing is put around."""
        ids: list[int] = []
        first = True
        for piece in self._raw.cut(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                for part in self._normal.cut(_apply(self._normalise, piece)):
                    if isinstance(part, int):
                        ids.append(part)
                    elif part:
                        self._merge(self._cut(part, first), ids)
                    first = False
            first = False
        return ids

    def find(self, text: str) -> int | None:
        """The id of a token by its text in the file, or None."""
        return self._ids.get(text)

    # ---- reading the file

    def _fail(self, text: str) -> TokenizerError:
        return TokenizerError(f"{self._name}: {text}")

    def _part(self, source: Mapping[str, Any], key: str, *, required: bool = False) -> Any:
        value = source.get(key)
        if value is None and not required:
            return None
        if not isinstance(value, Mapping):
            raise self._fail(f"{key} is {str(value)[:40]!r}, and an object is expected")
        return value

    def _chain(self, given: Any, read: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
        """The steps of a part that may be missing, one, or a Sequence of several."""
        if given is None:
            return []
        if not isinstance(given, Mapping):
            raise self._fail(f"{str(given)[:40]!r} where an object is expected")
        if given.get("type") == "Sequence":
            inner = given.get("normalizers") or given.get("pretokenizers") or []
            return [step for one in inner for step in self._chain(one, read)]
        return [read(given)]

    def _normalizer(self, given: Mapping[str, Any]) -> TextStep:
        kind = given.get("type")
        if kind in ("NFC", "NFD", "NFKC", "NFKD"):
            return lambda text: unicodedata.normalize(kind, text)
        if kind == "Lowercase":
            return str.lower
        if kind == "Prepend":
            front = str(given.get("prepend", ""))
            return lambda text: front + text if text else text
        if kind == "Strip":
            left, right = given.get("strip_left", True), given.get("strip_right", True)
            return lambda text: _strip(text, left, right)
        if kind == "Replace":
            find, content = self._pattern(given), str(given.get("content", ""))
            return lambda text: find.sub(lambda _: content, text)
        raise self._fail(
            f"a normalizer of type {kind!r}; golem knows NFC, NFD, NFKC, NFKD, Lowercase, "
            "Prepend, Strip, Replace and Sequence"
        )

    def _pattern(self, given: Mapping[str, Any]) -> regex.Pattern[str]:
        pattern = given.get("pattern")
        if isinstance(pattern, Mapping) and isinstance(pattern.get("String"), str):
            return regex.compile(regex.escape(pattern["String"]))
        if isinstance(pattern, Mapping) and isinstance(pattern.get("Regex"), str):
            try:
                return regex.compile(pattern["Regex"])
            except regex.error as error:
                raise self._fail(f"the pattern {pattern['Regex'][:80]!r}: {error}") from None
        raise self._fail(f"the pattern {str(pattern)[:80]!r} is neither String nor Regex")

    def _pre_tokenizers(self, given: Any) -> tuple[list[tuple[WordStep, WordStep]], bool]:
        """Steps as they are for the first piece of a text, and for later ones; bytewise or not."""
        bytewise = False

        def read(one: Mapping[str, Any]) -> tuple[WordStep, WordStep]:
            nonlocal bytewise
            kind = one.get("type")
            if kind == "ByteLevel":
                bytewise = True
                return (self._byte_level(one),) * 2
            if kind == "Metaspace":
                return self._metaspace(one)
            if kind == "Split":
                return (self._splitting(one),) * 2
            if kind == "Digits":
                pattern = regex.compile(
                    r"\p{Nd}|[^\p{Nd}]+" if one.get("individual_digits") else r"\p{Nd}+|[^\p{Nd}]+"
                )
                return (_each(pattern.findall),) * 2
            raise self._fail(
                f"a pre_tokenizer of type {kind!r}; golem knows ByteLevel, Metaspace, Split, "
                "Digits and Sequence"
            )

        return self._chain(given, read), bytewise

    def _byte_level(self, given: Mapping[str, Any]) -> WordStep:
        split = SPLITTERS["gpt-2"] if given.get("use_regex", True) else lambda word: [word]
        if not given.get("add_prefix_space", False):
            return _each(split)
        return _each(lambda word: split(word if word.startswith(" ") else " " + word))

    def _metaspace(self, given: Mapping[str, Any]) -> tuple[WordStep, WordStep]:
        mark = given.get("replacement", SPACE)
        scheme = given.get("prepend_scheme")
        if scheme is None:
            scheme = "always" if given.get("add_prefix_space", True) else "never"
        if scheme not in ("always", "first", "never") or not isinstance(mark, str) or not mark:
            raise self._fail(f"a Metaspace with the prepend_scheme {scheme!r}")
        cut = regex.compile(f"{regex.escape(mark)}?[^{regex.escape(mark)}]*")

        def step(front: bool) -> WordStep:
            def words(word: str) -> list[str]:
                word = word.replace(" ", mark)
                if front and not word.startswith(mark):
                    word = mark + word
                if not given.get("split", True):
                    return [word]
                return [piece for piece in cut.findall(word) if piece]

            return _each(words)

        return step(scheme != "never"), step(scheme == "always")

    def _splitting(self, given: Mapping[str, Any]) -> WordStep:
        find, behavior = self._pattern(given), given.get("behavior")
        if given.get("invert"):
            raise self._fail("a Split that is inverted; golem knows the plain one")
        if behavior not in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext"):
            raise self._fail(f"a Split with the behavior {behavior!r}")
        return _each(lambda word: _split(find, behavior, word))

    def _build(self, model: Mapping[str, Any], bytewise: bool) -> None:
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(key):
                raise self._fail(f"a BPE with {key} {model[key]!r}, which golem does not know")
        self._ids = dict(self._vocabulary(model.get("vocab")))
        self.n_vocab = max(self._ids.values(), default=-1) + 1
        texts = [""] * self.n_vocab
        for text, number in self._ids.items():
            texts[number] = text
        unknown = model.get("unk_token")
        self._unknown = -1 if unknown is None else self._ids.get(unknown, -1)
        self._fuses = bool(model.get("fuse_unk")) and self._unknown >= 0
        merges = [line if isinstance(line, str) else " ".join(line) for line in self._merges(model)]
        self._refuse_strangers(merges)
        table = _ALPHABET.table(texts) if bytewise else Table(texts)
        self._merger = Merger.by_merges(
            table,
            self.n_vocab,
            merges,
            alphabet=_ALPHABET if bytewise else None,
            unknown=-1 if bytewise else self._unknown,
            whole=bool(model.get("ignore_merges")),
        )
        if not bytewise and not model.get("byte_fallback") and "<0x00>" in self._ids:
            raise self._fail("a vocabulary with byte tokens and byte_fallback off")

    def _vocabulary(self, given: Any) -> Iterable[tuple[str, int]]:
        if not isinstance(given, Mapping) or not given:
            raise self._fail("model.vocab must be an object of tokens and their ids")
        for text, number in given.items():
            if not isinstance(number, int) or not 0 <= number < MOST_TOKENS:
                raise self._fail(f"the token {text[:40]!r} has the id {str(number)[:40]}")
            yield text, number

    def _merges(self, model: Mapping[str, Any]) -> Sequence[Any]:
        given = model.get("merges")
        if not isinstance(given, list) or not all(
            isinstance(one, str)
            or (isinstance(one, list) and len(one) == 2 and all(isinstance(t, str) for t in one))
            for one in given
        ):
            raise self._fail("model.merges must be a list of pairs")
        if any(" " in text for one in given if isinstance(one, list) for text in one):
            raise self._fail("a merge of a text with a space in it, which golem does not know")
        return given

    def _refuse_strangers(self, merges: Sequence[str]) -> None:
        """Merges make tokens of tokens; one that does not is of another vocabulary."""
        known = self._ids
        for line in merges:
            left, _, right = line.partition(" ")
            if left in known and right in known and left + right in known:
                continue
            if not line.startswith("#version"):
                raise self._fail(f"the merge {line[:80]!r} is not of tokens of its vocabulary")

    def _added(self, given: Any) -> None:
        if not isinstance(given, list):
            raise self._fail("added_tokens must be a list")
        raw: list[_Added] = []
        normal: list[_Added] = []
        for one in given:
            if (
                not isinstance(one, Mapping)
                or not isinstance(one.get("content"), str)
                or not isinstance(one.get("id"), int)
                or not 0 <= one["id"] < MOST_TOKENS
            ):
                raise self._fail(f"the added token {str(one)[:80]}")
            self._ids[one["content"]] = one["id"]
            self.n_vocab = max(self.n_vocab, one["id"] + 1)
            flags = (bool(one.get(name)) for name in ("single_word", "lstrip", "rstrip"))
            if one.get("normalized", not one.get("special")):
                normal.append(_Added(_apply(self._normalise, one["content"]), one["id"], *flags))
            else:
                raw.append(_Added(one["content"], one["id"], *flags))
        self._raw, self._normal = _Finder(raw), _Finder(normal)

    # ---- a text

    def _cut(self, text: str, first: bool) -> list[str]:
        words = [text]
        for at_first, later in self._words:
            words = (at_first if first else later)(words)
        return words

    def _merge(self, words: list[str], ids: list[int]) -> None:
        if not self._fuses:
            self._merger.extend(words, ids)
            return
        for word in words:
            made: list[int] = []
            self._merger.extend([word], made)
            for number in made:
                if number != self._unknown or not ids or ids[-1] != number:
                    ids.append(number)


class _Added:
    """A token that is cut out of texts by its own text."""

    __slots__ = ("id", "left", "right", "single", "text")

    def __init__(self, text: str, id: int, single: bool, left: bool, right: bool):
        self.text = text
        self.id = id
        self.single = single
        self.left = left
        self.right = right


class _Finder:
    """Cuts added tokens out of a text, the leftmost and of those the longest first."""

    def __init__(self, tokens: list[_Added]):
        self._tokens = {one.text: one for one in tokens if one.text}
        ordered = sorted(self._tokens, key=len, reverse=True)
        firsts = "".join(sorted({text[0] for text in ordered}))
        self._pattern = (
            regex.compile(
                f"(?=[{regex.escape(firsts, special_only=False)}])(?:"
                + "|".join(
                    regex.escape(text, special_only=True, literal_spaces=True) for text in ordered
                )
                + ")"
            )
            if ordered
            else None
        )

    def cut(self, text: str) -> Iterable[str | int]:
        """The pieces of the text in order, ids where tokens stood."""
        if self._pattern is None or not text:
            return [text]
        pieces: list[str | int] = []
        at = 0
        for match in self._pattern.finditer(text):
            token = self._tokens[match[0]]
            start, end = match.span()
            if token.single and (
                _is_word(text[start - 1 : start]) or _is_word(text[end : end + 1])
            ):
                continue
            if token.left:
                start = max(at, len(text[:start].rstrip()))
            if token.right:
                end = len(text) - len(text[end:].lstrip())
            if at < start:
                pieces.append(text[at:start])
            # One that lies in the white space another swallowed counts all the same.
            pieces.append(token.id)
            at = end
        if at < len(text):
            pieces.append(text[at:])
        return pieces


def _load(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > LONGEST:
            raise TokenizerError(f"{path}: is too long for a tokenizer")
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: is not JSON: {str(error)[:200]}") from None
    except OSError as error:
        raise TokenizerError(f"{path}: {error.strerror or error}") from None
    if not isinstance(value, Mapping):
        raise TokenizerError(f"{path}: an object is expected")
    return value


def _apply(steps: Sequence[TextStep], text: str) -> str:
    for step in steps:
        text = step(text)
    return text


def _each(cut: Callable[[str], list[str]]) -> WordStep:
    return lambda words: [piece for word in words for piece in cut(word)]


def _strip(text: str, left: bool, right: bool) -> str:
    text = text.lstrip() if left else text
    return text.rstrip() if right else text


def _split(find: regex.Pattern[str], behavior: str, word: str) -> list[str]:
    """The pieces of a word around the matches of a pattern."""
    pieces: list[str] = []
    at, front = 0, ""
    for match in find.finditer(word):
        start, end = match.span()
        if end == start:
            continue
        before, own = word[at:start], match[0]
        if behavior == "MergedWithPrevious":
            pieces.append(before + own)
        elif behavior == "MergedWithNext":
            pieces.append(front + before)
            front = own
        else:
            pieces += [before, own if behavior == "Isolated" else ""]
        at = end
    pieces.append(front + word[at:])
    return [piece for piece in pieces if piece]


def _is_word(char: str) -> bool:
    return bool(char) and (char.isalnum() or char == "_")
