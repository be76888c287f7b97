"""One pass: which columns of which conversations go through the model together.

Drawn tokens are never held back; prompts share what is left of the pass, and while anyone draws
no more of it than ``Pace`` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from golem_core.schedule.answer import Answer
from golem_core.schedule.pace import Pace

DRAWN, PROMPT = 0, 1  # roles of a run


class Run(NamedTuple):
    """Consecutive columns of one conversation in a pass."""

    answer: Answer
    first: int  # column
    count: int
    role: int  # DRAWN or PROMPT
    scored: int  # of its last columns, whose logits are asked for
    row: int  # of the first of those


class Pass(NamedTuple):
    """The runs of a pass, drawn ones first, and the arrays an executor reads."""

    runs: list[Run]
    inputs: dict[str, np.ndarray]
    columns: int
    drawn: int  # columns


def form(answers: Sequence[Answer], width: int, quantum: int, pace: Pace) -> Pass:
    """The next pass of the answers that hold slots, oldest first.

    width: columns of the widest pass. quantum: a prompt that takes several passes is cut at
    multiples of it where the pass has room for one.
    """
    runs, column, row = [], 0, 0
    reading = []
    for answer in answers:
        if answer.drawing:
            count, scored = answer.width, 1 + len(answer.draft)
            runs.append(Run(answer, column, count, DRAWN, scored, row))
            column += count
            row += scored
        elif answer.leader is None:
            reading.append(answer)
    drawn = column
    if reading:
        room = width - drawn
        if drawn:
            room = min(room, pace.prompt_columns(drawn))
        for answer, count in shares(reading, room, quantum):
            scored = int(count == answer.unread)
            runs.append(Run(answer, column, count, PROMPT, scored, row))
            column += count
            row += scored
    return Pass(runs, _inputs(runs), column, drawn)


def shares(reading: Sequence[Answer], room: int, quantum: int) -> list[tuple[Answer, int]]:
    """Cuts ``room`` columns between prompts: equal parts, what short ones leave to the others.

    Short prompts then end soon, whoever came first, and none waits for a long one.
    """
    taken: list[tuple[Answer, int]] = []
    by_length = sorted(reading, key=lambda a: a.unread)
    for i, answer in enumerate(by_length):
        fair = -(-room // (len(by_length) - i))
        count = min(answer.unread, fair)
        if count < answer.unread and quantum > 1:
            count = _cut(answer.start, count, quantum, min(room, answer.unread))
        count = answer.cut(count)
        if count:
            taken.append((answer, count))
            room -= count
    return taken


def _cut(start: int, count: int, quantum: int, room: int) -> int:
    """Moves the end of a chunk to a multiple of quantum, down if it can, else up, else not."""
    end = (start + count) // quantum * quantum
    if end <= start:
        end = (start // quantum + 1) * quantum
    return end - start if end - start <= room else count


def _inputs(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    table = [(r.answer.slot.index, r.first, r.count, r.answer.start, r.role) for r in runs]
    outputs: list[int] = []
    for run in runs:
        end = run.first + run.count
        outputs += range(end - run.scored, end)
    if runs[-1].role == DRAWN:
        tokens = np.array([t for run in runs for t in run.answer.columns(run.count)], np.int32)
    else:
        tokens = np.concatenate([run.answer.columns(run.count) for run in runs], dtype=np.int32)
    return {
        "runs": np.array(table, np.int32),
        "tokens": tokens,
        "outputs": np.array(outputs, np.int32),
    }
