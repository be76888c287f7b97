"""SentencePiece vocabularies as GGUF files hold them: merged by score, or cut by likelihood."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from golem_core.text._merge import Merger
from golem_core.text._unigram import Charsmap, Unigram
from golem_core.text.base import SPACE, Tokenizer
from golem_core.text.errors import TokenizerError
from golem_core.text.split import word_pattern
from golem_core.text.vocabulary import Kind


class SentencePieceTokenizer(Tokenizer):
    """What both kinds share: U+2581 for a space in every normal token."""

    space_prefix: ClassVar[bool] = False  # where the file is silent

    def __init__(self, metadata: Mapping[str, Any]):
        super().__init__(metadata)
        scores = self._vocabulary.numbers("scores")
        if scores is None:
            raise TokenizerError(
                f"a {self.model!r} vocabulary needs tokenizer.ggml.scores; the file has none"
            )
        self._scores = np.nan_to_num(scores.astype(np.float32), nan=-np.inf)
        self._space_prefix = self._vocabulary.setting("add_space_prefix", self.space_prefix)

    def _piece(self, token: int) -> bytes:
        return self._vocabulary.table.text(token).replace(SPACE.encode(), b" ")


class ScoreTokenizer(SentencePieceTokenizer):
    """``llama``: neighbours whose text together is a token are joined, the best score first.

    A text gets a space in front, and so does what follows a special token. Control tokens are not
    made from plain text, as in SentencePiece itself.
    """

    defaults: ClassVar[dict[str, int]] = {"bos": 1, "eos": 2, "unk": 0}
    adds = (True, False)
    space_prefix = True

    def __init__(self, metadata: Mapping[str, Any]):
        super().__init__(metadata)
        order = np.unique(-self._scores, return_inverse=True)[1].astype(np.int32)
        made = np.isin(self._vocabulary.kinds, (Kind.UNKNOWN, Kind.CONTROL, Kind.BYTE))
        ranks = np.where(made, np.int32(-1), order)
        table = self._vocabulary.table
        self._merger = Merger.by_scores(table, ranks, -1 if self.unk is None else self.unk)
        self._words = word_pattern(table.before(SPACE.encode()))

    def _encode(self, text: str, ids: list[int]) -> None:
        if self._space_prefix:
            text = " " + text
        self._merger.extend(self._words.findall(text.replace(" ", SPACE)), ids)


class UnigramTokenizer(SentencePieceTokenizer):
    """``t5``: the likeliest cut of a normalised text into tokens."""

    defaults: ClassVar[dict[str, int]] = {"eos": 1, "unk": 2, "pad": 0}
    adds = (False, True)

    def __init__(self, metadata: Mapping[str, Any]):
        super().__init__(metadata)
        kinds = self._vocabulary.kinds
        if self.unk is None:
            raise TokenizerError("a 't5' vocabulary needs tokenizer.ggml.unknown_token_id")
        normal = self._scores[kinds == Kind.NORMAL]
        scores = np.where(kinds == Kind.USER_DEFINED, np.float32(0), self._scores)
        usable = np.isin(kinds, (Kind.NORMAL, Kind.USER_DEFINED, Kind.UNUSED))
        self._unigram = Unigram(
            self._vocabulary.table,
            np.ascontiguousarray(scores, np.float32),
            np.flatnonzero(usable).astype(np.int32),
            unknown=self.unk,
            unknown_score=float((normal.min() if len(normal) else np.float32(0)) - np.float32(10)),
        )
        own = self._vocabulary.of_kind(Kind.USER_DEFINED).tolist()
        self._charsmap = Charsmap(
            self._vocabulary.blob("precompiled_charsmap"),
            [self._vocabulary.table.text(token) for token in own],
            prefix=self._space_prefix,
            merge=self._vocabulary.setting("remove_extra_whitespaces", False),
        )

    def _encode(self, text: str, ids: list[int]) -> None:
        self._unigram.extend(self._charsmap.normalise(text.encode()), ids)
