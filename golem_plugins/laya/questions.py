"""What a request may ask, checked before any of it is read: laya-serve's limits, order and words.

Clients match on these texts, so they are the reference's to the character. ``Refused`` carries
the status; a question that is wrong in itself is a 422, one that is too large a 413.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from golem_plugins.laya.checkpoint import LONGEST_ROW, SIZES, TYPES

CHOICES, LEVELS, OPTIONS = 100, 32, 512  # of a question, of a question, of a request
STATE_CHARACTERS = 50_000
PROBED = 64  # values of a state looked at before its exact length is taken
STATES = 64  # of a batch
IN_PROCESS = ("hooks", "hooks_raise", "hooks_timeout", "on_predict_start", "on_predict_end")
_LONE = re.compile("[\ud800-\udfff]")
_LABELS = "noul labels must map exactly 'false' and 'true' to distinct non-empty strings"
_BUCKETS = {f"{kind}:{size}" for kind in TYPES for size in SIZES} | {"default"}


class Refused(Exception):
    """A request that is answered with an error: status, and the text of ``detail``."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail)
        self.status = status
        self.detail = detail


def check_body(body: Any, most_questions: int) -> tuple[Any, dict[str, Any]]:
    """The state and the questions of a request; sizes are checked, the questions themselves not.

    Raises Refused.
    """
    if not isinstance(body, dict) or "questions" not in body:
        raise Refused(400, "request body must be an object with a 'questions' field")
    state, questions = body.get("state"), body["questions"]
    check_sizes(state, questions, most_questions)
    _check_rest(body)
    return state, questions


def check_batch(body: Any, most_questions: int) -> tuple[list[Any], dict[str, Any]]:
    """The states and the questions of a batch. Raises Refused."""
    if not isinstance(body, dict) or "questions" not in body or "states" not in body:
        raise Refused(400, "request body must be an object with 'states' and 'questions' fields")
    states, questions = body["states"], body["questions"]
    if not isinstance(states, list) or not states:
        raise Refused(400, "'states' must be a non-empty list")
    if len(states) > STATES:
        raise Refused(413, f"too many states in batch ({len(states)} > {STATES})")
    for state in states:
        check_sizes(state, questions, most_questions)
    _check_rest(body)
    return states, questions


def _check_rest(body: Mapping[str, Any]) -> None:
    given = sorted(key for key in IN_PROCESS if body.get(key) is not None)
    if given:
        raise Refused(
            422,
            f"{', '.join(given)} run inside the server process and cannot be sent to this "
            "endpoint; install them where laya-serve runs, or drop them",
        )
    if _has_lone_surrogate(body):
        raise Refused(
            400,
            "request body contains an unpaired surrogate escape; those cannot be encoded as UTF-8",
        )


# ---- sizes


def check_sizes(state: Any, questions: Any, most_questions: int) -> None:
    """Refuses what is missing or too large. Raises Refused."""
    if state is None:
        raise Refused(400, "'state' is required")
    if not isinstance(questions, dict):
        raise Refused(400, "'questions' must be an object")
    if len(questions) > most_questions:
        raise Refused(413, f"too many questions ({len(questions)} > {most_questions})")
    total = 0
    for name, question in questions.items():
        if isinstance(question, dict):
            total += _count_options(name, question)
    if total > OPTIONS:
        raise Refused(413, f"too many answer options across questions ({total} > {OPTIONS})")
    length = state_length(state)
    if length > STATE_CHARACTERS:
        raise Refused(413, f"state too large ({length} > {STATE_CHARACTERS} chars)")


def _count_options(name: str, question: Mapping[str, Any]) -> int:
    kind, criteria = question.get("type"), question.get("criteria")
    if kind == "choice" and isinstance(criteria, dict | list):
        if len(criteria) > CHOICES:
            text = f"too many choice options for {name!r} ({len(criteria)} > {CHOICES})"
            raise Refused(413, text)
        return len(criteria)
    if kind == "score" and isinstance(criteria, list):
        if len(criteria) > LEVELS:
            text = f"too many score levels for {name!r} ({len(criteria)} > {LEVELS})"
            raise Refused(413, text)
        if None in criteria:
            raise Refused(
                422,
                f"score question {name!r} has a null level at index {criteria.index(None)}; give "
                "every level a description",
            )
        return len(criteria)
    return 0


def state_length(state: Any) -> int:
    """Characters of the state's text; a smaller count where that is too large already."""
    if isinstance(state, str):
        return len(state)
    total, stack = 0, [state]
    for _ in range(PROBED):
        if not stack:
            break
        item = stack.pop()
        if isinstance(item, str):
            total += len(item)
            if total > STATE_CHARACTERS:
                return total
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        else:
            break
    try:
        return len(json.dumps(state, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        raise Refused(400, "'state' must be JSON-serializable") from None


def _has_lone_surrogate(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if _LONE.search(item):
                return True
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


# ---- controls


def read_length(body: Mapping[str, Any], key: str) -> int | None:
    """``max_len`` or ``head_max_len``. Raises Refused."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(422, f"{key} must be an integer")
    if value <= 0:
        raise Refused(422, f"{key} must be a positive integer")
    if value > LONGEST_ROW:
        raise Refused(422, f"{key} exceeds server limit ({value} > {LONGEST_ROW})")
    return value


def check_languages(body: Mapping[str, Any]) -> None:
    """``lang`` and ``lang_guess``, which route nothing here. Raises Refused."""
    for key in ("lang", "lang_guess"):
        if body.get(key) is not None and not isinstance(body[key], str):
            raise Refused(422, f'{key} must be a language code string such as "de", or null')


def read_min_confidence(value: Any) -> float | dict[str, float] | None:
    """A threshold for every answer, or one by shape. Raises Refused."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return _threshold(value)
    if not value:
        raise Refused(
            422,
            f"a min_confidence map must be a non-empty dict of bucket -> float, got {value!r}",
        )
    for key in value:
        if key not in _BUCKETS:
            raise Refused(
                422,
                "min_confidence map keys must be a bucket like 'choice:3-5' or 'default', "
                f"got {key!r}",
            )
        _threshold(value[key])
    return {key: float(threshold) for key, threshold in value.items()}


def _threshold(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= 1:
        raise Refused(422, f"min_confidence must be a float in [0.0, 1.0], got {value!r}")
    return float(value)


def check_batch_controls(body: Mapping[str, Any]) -> None:
    """``batch_size`` and ``sort_by_length``, which shape no pass here. Raises Refused."""
    size = body.get("batch_size")
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise Refused(422, "batch_size must be an integer")
        if size < 1:
            raise Refused(422, f"batch_size must be a positive integer, got {size!r}")
    by_length = body.get("sort_by_length")
    if by_length is not None and not isinstance(by_length, bool):
        raise Refused(422, "sort_by_length must be a boolean")


# ---- questions


def check_questions(questions: Mapping[str, Any]) -> None:
    """Every question by itself, in order. Raises Refused."""
    for name, question in questions.items():
        try:
            _check_question(name, question)
        except ValueError as error:
            raise Refused(422, str(error)) from None


def _check_question(name: str, question: Any) -> None:
    if not name.strip():
        raise ValueError(f"question id must be a non-empty string, got {name!r}")
    at = f"question {name!r}"
    if not isinstance(question, dict):
        raise ValueError(f"{at}: definition must be a dict, got {type(question).__name__}")
    kind = question.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{at}: unknown type {kind!r}; use one of {sorted(TYPES)}")
    _check_instructions(at, question)
    criteria = question.get("criteria")
    check = {"choice": _check_choice, "score": _check_score, "noul": _check_noul}[kind]
    check(at, criteria)
    if "option_order" in question:
        count = len(criteria) if kind != "noul" else 2
        _check_order(at, question["option_order"], count)
    if "labels" in question:
        if kind != "noul":
            raise ValueError(f"{at}: 'labels' is only supported for noul questions")
        _check_labels(at, question["labels"])


def _check_instructions(at: str, question: Mapping[str, Any]) -> None:
    ask = "add the text the model should answer"
    if "instructions" not in question:
        raise ValueError(f"{at}: no 'instructions'; {ask}")
    given = question["instructions"]
    if given is None:
        raise ValueError(f"{at}: 'instructions' must not be None; {ask}")
    blank = isinstance(given, str) and not given.strip()
    if blank or (isinstance(given, list | dict) and not given):
        raise ValueError(f"{at}: 'instructions' must not be empty; {ask}")


def _check_choice(at: str, criteria: Any) -> None:
    if not isinstance(criteria, dict | list):
        raise ValueError(
            f"{at}: a choice question takes 'criteria' as a dict of label -> description, or a "
            "list of labels"
        )
    if not criteria:
        raise ValueError(f"{at}: a choice question needs at least one criterion")
    rendered = "a label is rendered as option text and used as the answer key, so it must be a"
    for i, label in enumerate(criteria):
        if isinstance(label, list | dict):
            raise ValueError(
                f"{at}: choice label {i} is a {type(label).__name__}; {rendered} scalar (a "
                f"string, number or bool), got {label!r}"
            )
        if label is None:
            raise ValueError(
                f"{at}: choice label {i} is null; {rendered} string, number or bool -- a null "
                'label renders as the text "None" while its answer key is "null"'
            )
    first: dict[Any, int] = {}
    for i, label in enumerate(criteria if isinstance(criteria, list) else ()):
        if first.setdefault(label, i) != i:
            raise ValueError(
                f"{at}: choice label {i} ({label!r}) repeats label {first[label]}; the labels are "
                "the answer keys, so every option needs its own (1, 1.0 and True are one key)"
            )


def _check_score(at: str, criteria: Any) -> None:
    if not isinstance(criteria, list):
        raise ValueError(
            f"{at}: a score question takes 'criteria' as a list of level descriptions, index 0 "
            "first"
        )
    if not criteria:
        raise ValueError(f"{at}: a score question needs at least one level")


def _check_noul(at: str, criteria: Any) -> None:
    if criteria is None:
        return
    if not isinstance(criteria, dict):
        raise ValueError(
            f"{at}: a noul question takes 'criteria' as a dict with optional 'true'/'false' "
            "descriptions, or omits it"
        )
    keys = {str(key).lower() for key in criteria}
    if not keys <= {"true", "false"}:
        raise ValueError(
            f"{at}: a noul question takes 'criteria' keyed only 'true'/'false' (either or both, "
            f"and omitted is fine), got {sorted(keys)}. Those keys are the option texts the model "
            "reads; any other key was silently dropped and replaced with the defaults. If you want "
            "the answer worded differently, keep 'criteria' keyed 'true'/'false' and set 'labels' "
            "instead."
        )


def _check_order(at: str, order: Any, count: int) -> None:
    whole = isinstance(order, list) and [
        i for i in order if isinstance(i, int) and not isinstance(i, bool)
    ]
    if not isinstance(order, list) or len(order) != count or sorted(whole) != [*range(count)]:
        raise ValueError(
            f"{at}: 'option_order' must be a permutation of range({count}) -- one slot per "
            f"option, each option once -- got {order!r}"
        )


def _check_labels(at: str, labels: Any) -> None:
    if labels is None:
        return
    wrong = not isinstance(labels, dict) or set(labels) != {"false", "true"}
    texts: Sequence[Any] = [] if wrong else [labels["false"], labels["true"]]
    if wrong or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"{at}: {_LABELS}")
    if texts[0].strip() == texts[1].strip():
        raise ValueError(f"{at}: {_LABELS}")
