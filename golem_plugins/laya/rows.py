"""From a checked question and a state to the row of tokens that the model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core.text.tokenizer_json import JsonTokenizer

OPTION_TOKENS = 48  # of an option's text at most
LEAST_QUESTION = 16  # tokens left to a question before its options are cut further
DEFAULT_LABELS = {"false": "false", "true": "true"}
DEFAULT_TEXTS = {"false": "no, the statement does not hold", "true": "yes, the statement holds"}


class DoesNotFit(ValueError):
    """A question whose options' marks do not fit into a row."""


@dataclass(frozen=True)
class Specials:
    """Ids around and inside a row, and the text of the mask token."""

    cls: int
    sep: int
    mask: int
    mask_text: str


@dataclass(frozen=True)
class Row:
    """One question as the model reads it.

    tokens: (T,) i32. markers: places of the options' mask tokens, in the order shown. kind: id of
    the question's type. spans: how many different texts the options have left, and tokens of each
    at most where they were cut for room.
    """

    tokens: np.ndarray
    markers: np.ndarray
    kind: int
    state_tokens: int
    dropped: int
    options: int
    spans: int
    per: int | None


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def labels_of(question: Mapping[str, Any]) -> list[Any]:
    """The answer keys of a choice question, in order."""
    return list(question["criteria"])


def option_texts(question: Mapping[str, Any]) -> list[str]:
    """The options of a checked question, in their own order."""
    kind, criteria = question["type"], question.get("criteria")
    if kind == "choice":
        described = criteria if isinstance(criteria, Mapping) else dict.fromkeys(criteria)
        return [
            str(label) if text is None or text == "" else f"{label}: {as_text(text)}"
            for label, text in described.items()
        ]
    if kind == "score":
        return [f"level {i}: {as_text(level)}" for i, level in enumerate(criteria)]
    given = {str(key).lower(): text for key, text in (criteria or {}).items()}
    labels = question.get("labels") or DEFAULT_LABELS
    made = []
    for key in ("false", "true"):
        text = given.get(key)
        text = DEFAULT_TEXTS[key] if text is None or text == "" else as_text(text)
        made.append(f"{labels[key].strip()}: {text}")
    return made


class RowBuilder:
    """Builds the rows of one checkpoint."""

    def __init__(self, tokenizer: JsonTokenizer, specials: Specials, types: Sequence[str]):
        self._tokenizer = tokenizer
        self._specials = specials
        self._types = list(types)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, in which the mask token cannot be written."""
        return self._tokenizer.encode(text.replace(self._specials.mask_text, " "))

    def row(
        self,
        name: str,
        question: Mapping[str, Any],
        state: Sequence[int],
        newest: bool,
        max_len: int,
        head_max_len: int,
    ) -> Row:
        """The row of a question. state: its ids; newest: what does not fit goes from its front.

        Raises DoesNotFit.
        """
        s = self._specials
        texts = option_texts(question)
        order = question.get("option_order") or range(len(texts))
        options = [[s.mask, *self.encode(" " + texts[i])[:OPTION_TOKENS]] for i in order]
        head = self.encode(f"{question['type']} question: {as_text(question['instructions'])}")
        budget, per = head_max_len - sum(map(len, options)), None
        if budget < LEAST_QUESTION:
            per = max(4, (head_max_len - LEAST_QUESTION) // max(1, len(options)))
            options = [option[:per] for option in options]
            budget = head_max_len - sum(map(len, options))
        ids = [s.cls, *head[: max(8, budget)], s.sep]
        markers = []
        for option in options:
            markers.append(len(ids))
            ids += option
        ids.append(s.sep)
        room = max(0, max_len - len(ids) - 1)
        kept = (state[-room:] if room else []) if newest else state[:room]
        ids = [*ids, *kept, s.sep][:max_len]
        fitting = [m for m in markers if m < max_len]
        if len(fitting) < len(options):
            raise DoesNotFit(
                f"question {name!r}: only {len(fitting)} of its {len(options)} option markers fit "
                f"in max_len={max_len} with head_max_len={head_max_len} spent on the question; "
                "lower head_max_len, raise max_len, or use fewer options"
            )
        return Row(
            tokens=np.array(ids, np.int32),
            markers=np.array(markers, np.int32),
            kind=self._types.index(question["type"]),
            state_tokens=len(state),
            dropped=len(state) - len(kept),
            options=len(options),
            spans=len({tuple(option) for option in options}),
            per=per,
        )
