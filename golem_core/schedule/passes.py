"""One pass: which columns of which conversations go through the model together.

Drawn tokens are never held back; prompts share what is left of the pass. While anyone draws, the
prompts' share is cut so that the pass lasts a quarter of a second at most, by the pace measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golem_core.schedule.answer import Answer

DRAWN, PROMPT = 0, 1  # roles of a run
LONGEST = 0.25  # seconds a pass may last while anyone draws
FEW = 16  # prompt columns below which a pass says little about the pace of reading


class Pace:
    """How long passes take, from those seen: a floor for drawing, and seconds a prompt column."""

    def __init__(self):
        self.last = 0.0  # seconds the last pass took
        self._draw = 0.0  # a pass that only draws
        self._column: float | None = None  # a prompt column more
        self._sure = False  # _column comes from passes with enough columns

    def saw(self, drawn: int, prompt: int, seconds: float) -> None:
        """A pass of so many drawn and prompt columns took so long."""
        self.last = seconds
        if not prompt:
            self._draw = (self._draw + seconds) / 2 if self._draw else seconds
            return
        sure = prompt >= FEW
        if self._sure and not sure:
            return
        column = max(seconds - (self._draw if drawn else 0.0), 0.0) / prompt
        if self._column is None or sure > self._sure:
            self._column, self._sure = column, sure
        else:
            self._column = (self._column + column) / 2

    def prompt_columns(self) -> int:
        """Prompt columns that fit beside the drawn ones; at least 1."""
        if not self._column:
            return FEW
        return max(1, int((LONGEST - self._draw) / self._column))


@dataclass(frozen=True)
class Run:
    """Consecutive columns of one conversation in a pass."""

    answer: Answer
    first: int  # column
    count: int
    role: int  # DRAWN or PROMPT
    scored: bool  # its last column's logits are asked for


@dataclass(frozen=True)
class Pass:
    """The runs of a pass, drawn ones first, and the arrays an executor reads."""

    runs: list[Run]
    inputs: dict[str, np.ndarray]

    @property
    def columns(self) -> int:
        return len(self.inputs["tokens"])

    @property
    def drawn(self) -> int:
        return sum(run.role == DRAWN for run in self.runs)

    @property
    def scored(self) -> list[Run]:
        """The runs that get a row of logits, in the rows' order."""
        return [run for run in self.runs if run.scored]


def form(answers: Sequence[Answer], width: int, quantum: int, pace: Pace) -> Pass:
    """The next pass of the answers that hold slots, oldest first.

    width: columns of the widest pass. quantum: a prompt that takes several passes is cut at
    multiples of it where the pass has room for one.
    """
    drawing = [a for a in answers if a.drawing][:width]
    reading = [a for a in answers if not a.drawing]
    room = width - len(drawing)
    if drawing:
        room = min(room, pace.prompt_columns())
    runs = [Run(a, i, 1, DRAWN, True) for i, a in enumerate(drawing)]
    column = len(drawing)
    for answer, count in shares(reading, room, quantum):
        runs.append(Run(answer, column, count, PROMPT, count == answer.unread))
        column += count
    return Pass(runs, _inputs(runs, column))


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


def _inputs(runs: Sequence[Run], columns: int) -> dict[str, np.ndarray]:
    table = np.empty((len(runs), 5), np.int32)  # slot, first column, count, index of it, role
    tokens = np.empty(columns, np.int32)
    outputs = []
    for i, run in enumerate(runs):
        answer = run.answer
        table[i] = (answer.slot.index, run.first, run.count, answer.start, run.role)
        tokens[run.first : run.first + run.count] = answer.columns(run.count)
        if run.scored:
            outputs.append(run.first + run.count - 1)
    return {"runs": table, "tokens": tokens, "outputs": np.array(outputs, np.int32)}
