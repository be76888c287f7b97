"""Follows a thought through an answer, so that one can be bounded while it is drawn.

Thoughts are marked by texts, which may take several tokens and end inside of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Thinking:
    """How an answer thinks.

    marks: the texts that open and close a thought. inside: the prompt ends in an open one.
    budget: most tokens of thought, -1 = any number. closing: the ids that end a thought when the
    budget is spent.
    """

    marks: tuple[str, str]
    inside: bool = False
    budget: int = -1
    closing: Sequence[int] = ()


class Thought:
    """What has been drawn of an answer, seen as thought and not thought."""

    def __init__(self, thinking: Thinking):
        self.open = thinking.inside
        self.closed = False  # one has been closed
        self._thinking = thinking
        self._count = 0  # tokens drawn while one was open
        self._tail = ""  # may be the beginning of a mark
        self._longest = max(map(len, thinking.marks))

    def push(self, text: str) -> None:
        """One more token, and the text that it released."""
        self._count += self.open
        tail = self._tail + text
        while True:
            mark = self._thinking.marks[self.open]
            at = tail.find(mark)
            if at < 0:
                break
            tail = tail[at + len(mark) :]
            self.closed |= self.open
            self.open = not self.open
        self._tail = tail[max(0, len(tail) - self._longest + 1) :]

    @property
    def rest(self) -> str:
        """The last of the text, after the last mark."""
        return self._tail

    def overdue(self) -> Sequence[int]:
        """The ids that must be drawn next because the budget is spent; none while it is not."""
        spent = self.open and 0 <= self._thinking.budget <= self._count
        return self._thinking.closing if spent else ()
