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


def form(
    answers: Sequence[Answer],
    width: int,
    quantum: int,
    pace: Pace,
    widest: int | None = None,
    scores: int = 1 << 30,
) -> Pass:
    """The next pass of the answers that hold slots, oldest first.

    width: columns of a pass. quantum: a prompt that takes several passes is cut at multiples of it
    where the pass has room for one. widest: columns of a pass with a picture that is fed whole,
    however long it takes. scores: columns that may be scored; prompts that are scored whole share
    what the others leave of them.
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
        taken = []
        most = (widest or width) - drawn
        seen = next((a for a in reading if 0 < a.picture <= most), None)
        if seen is not None:
            taken.append((seen, seen.picture))
            room -= seen.picture
            reading.remove(seen)
        whole = sum(answer.scoring for answer in reading)
        left = scores - row - (len(reading) + len(taken) - whole)
        taken += shares(reading, room, quantum, max(1, left // max(1, whole)))
        for answer, count in taken:
            scored = count if answer.scoring else int(count == answer.unread)
            runs.append(Run(answer, column, count, PROMPT, scored, row))
            column += count
            row += scored
    return Pass(runs, _inputs(runs), column, drawn)


def repeated(batch: Pass, answers: Sequence[Answer]) -> bool:
    """Makes a pass that is over the next one, in the same arrays, where nothing but the last tokens
    has changed: the same answers draw, a column each. False: it has to be formed."""
    runs, inputs = batch.runs, batch.inputs
    if not len(answers) == len(runs) == batch.columns == batch.drawn or len(inputs) != 3:
        return False
    table, tokens = inputs["runs"], inputs["tokens"]
    for i, answer in enumerate(answers):
        if answer is not runs[i].answer or answer.draft or answer.replay:
            return False
        table[i, 3] = answer.slot.count
        tokens[i] = answer.tokens[-1]
    return True


def shares(
    reading: Sequence[Answer], room: int, quantum: int, scores: int
) -> list[tuple[Answer, int]]:
    """Cuts ``room`` columns between prompts: equal parts, what short ones leave to the others.

    Short prompts then end soon, whoever came first, and none waits for a long one. scores: columns
    at most of a prompt that is scored whole.
    """
    taken: list[tuple[Answer, int]] = []
    by_length = sorted(reading, key=lambda a: a.unread)
    for i, answer in enumerate(by_length):
        fair = max(-(-room // (len(by_length) - i)), 0)
        most = min(answer.unread, scores) if answer.scoring else answer.unread
        count = min(most, fair)
        if count < answer.unread and quantum > 1:
            count = _cut(answer.start, count, quantum, min(room, most))
        count = answer.cut(count, room)
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
    inputs = {
        "runs": np.array(table, np.int32),
        "tokens": tokens,
        "outputs": np.array(outputs, np.int32),
    }
    if any(run.answer.media is not None for run in runs):
        inputs |= _media(runs, len(tokens))
    return inputs


def _media(runs: Sequence[Run], columns: int) -> dict[str, np.ndarray]:
    """What a pass has besides tokens: rows in their places, and positions that are no indices."""
    at = np.concatenate([r.answer.start + np.arange(r.count, dtype=np.int32) for r in runs])
    place, until = np.full(columns, -1, np.int32), at.copy()
    rows: list[np.ndarray] = []
    for run in runs:
        answer = run.answer
        if run.role == DRAWN or answer.media is None:
            continue
        for first, part, last in answer.media.rows_in(answer.at, run.count):
            here = slice(run.first + first, run.first + first + len(part))
            place[here] = sum(map(len, rows)) + np.arange(len(part))
            until[here] = until[here] if last is None else last
            rows.append(part)
    inputs = _positions(runs, at)
    if rows:
        inputs |= {"embeddings": np.concatenate(rows), "place": place, "until": until}
    return inputs


def _positions(runs: Sequence[Run], at: np.ndarray) -> dict[str, np.ndarray]:
    """The columns' positions, where a picture has put those of some prompt behind its indices."""
    found = [m.positions for r in runs if (m := r.answer.media) and m.positions is not None]
    if not found:
        return {}
    positions = np.repeat(at[:, None], found[0].shape[1], axis=1)
    for run in runs:
        media = run.answer.media
        if media is None or media.positions is None:
            continue
        here = slice(run.first, run.first + run.count)
        if run.role == DRAWN:
            positions[here] += media.shift
        else:
            positions[here] = media.positions[run.answer.at : run.answer.at + run.count]
    return {"positions": positions}
