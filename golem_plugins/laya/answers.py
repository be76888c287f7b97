"""From logits to an answer: probabilities, how sure they are, and the reply around them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from golem_plugins.laya.checkpoint import Agent, bucket
from golem_plugins.laya.model import softmax
from golem_plugins.laya.questions import Refused
from golem_plugins.laya.rows import Row, as_text, labels_of

MODEL = "laya-rl-agent"


def decode(
    agent: Agent, question: Mapping[str, Any], logits: np.ndarray, acts: np.ndarray
) -> dict[str, Any]:
    """A question's answer.

    logits: (k,) f32 in the order shown. acts: probabilities of the actions.
    """
    kind, k = question["type"], len(logits)
    p = softmax(logits / np.float32(agent.temperature_of(kind, k)))
    if question.get("option_order"):
        shown, p = p, np.empty_like(p)
        p[np.array(question["option_order"])] = shown
    if kind == "choice":
        answer = _choice(question, p)
    elif kind == "score":
        answer = _score(question, p)
    else:
        answer = {"type": "noul", "noul": rounded(p[1]), "confidence": rounded(p.max())}
    answer["answer_confidence"] = rounded(min(max(float(p.max()), 0.0), 1.0))
    answer["action"] = {"act_probability": rounded(acts[0])}
    return answer


def _choice(question: Mapping[str, Any], p: np.ndarray) -> dict[str, Any]:
    labels = labels_of(question)
    return {
        "type": "choice",
        "choice": labels[int(p.argmax())],
        "probabilities": {_key(label): rounded(v) for label, v in zip(labels, p, strict=True)},
        "confidence": rounded(_certainty(p)),
    }


def _score(question: Mapping[str, Any], p: np.ndarray) -> dict[str, Any]:
    levels = question["criteria"]
    return {
        "type": "score",
        "score": rounded(sum(i * float(v) for i, v in enumerate(p))),
        "legend": {str(i): as_text(level) for i, level in enumerate(levels)},
        "probabilities": {str(i): rounded(v) for i, v in enumerate(p)},
        "confidence": rounded(_certainty(p)),
    }


def rounded(value: Any) -> float:
    """Four decimals of a value, widened to double first."""
    return round(float(value), 4)


def _key(label: Any) -> str:
    """A label as the name of a JSON member."""
    return label if isinstance(label, str) else as_text(label)


def _certainty(p: np.ndarray) -> float:
    """1 minus the entropy as a share of the most there could be."""
    if len(p) < 2:
        return 1.0
    entropy = -np.sum(p * np.log(np.clip(p, 1e-12, 1.0)))
    return min(1.0, max(0.0, 1.0 - float(entropy) / math.log(len(p))))


def jev_confidence(answer: Mapping[str, Any]) -> float:
    """Jev's confidence of a choice or score, from the probabilities as they are told."""
    p = [float(value) for value in answer["probabilities"].values()]
    n = len(p)
    if n == 1:
        return 1.0
    total = sum(p)
    p = [value / total for value in p] if total else [1.0 / n] * n
    if answer["type"] == "choice":
        return (max(p) - 1.0 / n) / (1.0 - 1.0 / n)
    mode = max(range(n), key=p.__getitem__)
    spread = sum(value * abs(i - mode) for i, value in enumerate(p))
    uniform = sum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return max(0.0, 1.0 - spread / uniform)


def abstain(answer: dict[str, Any], threshold: float | Mapping[str, float]) -> None:
    """Says of an answer whether it is surer than asked for."""
    if isinstance(threshold, Mapping):
        options = len(answer.get("probabilities", (0, 0)))
        default = threshold.get("default", 0.0)
        threshold = threshold.get(bucket(answer["type"], options), default)
    low = answer["answer_confidence"] < threshold
    if low:
        answer["low_confidence"] = True
    answer["abstention"] = "abstained" if low else "passed"
    answer["abstention_threshold"] = threshold


def reply(
    answers: Mapping[str, dict[str, Any]],
    rows: Sequence[Row],
    threshold: float | Mapping[str, float] | None,
    routing: Mapping[str, Any],
) -> dict[str, Any]:
    """The body of an answered request. rows: in the order of the answers."""
    for answer in answers.values():
        if threshold is not None:
            abstain(answer, threshold)
        if answer["type"] != "noul":
            answer["x_jev_confidence"] = rounded(jev_confidence(answer))
    return {
        "model": MODEL,
        "answers": dict(answers),
        "usage": _usage(list(answers), rows),
        "routing": dict(routing),
    }


def written(value: Any, separators: tuple[str, str] | None = None) -> str:
    """An answer as JSON.

    Raises Refused, in the reference's words, for an infinite label and where a probability is NaN,
    which JSON does not have.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=separators, allow_nan=False)
    except ValueError:
        raise Refused(422, "Out of range float values are not JSON compliant") from None


def _usage(names: Sequence[str], rows: Sequence[Row]) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "input_tokens": sum(len(row.tokens) for row in rows),
        "output_tokens": 0,
    }
    if not rows:
        return usage
    dropped = [row.dropped for row in rows]
    usage["state_tokens"] = rows[0].state_tokens
    usage["state_tokens_dropped"] = max(dropped)
    usage["truncated"] = max(dropped) > 0
    usage["truncated_questions"] = [n for n, d in zip(names, dropped, strict=True) if d]
    collapsed = {
        name: {"total": row.options, "distinct": row.spans, "tokens_per_option": row.per}
        for name, row in zip(names, rows, strict=True)
        if row.spans < row.options
    }
    return usage | ({"options": collapsed} if collapsed else {})
