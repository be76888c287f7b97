"""What a chat template may use up: time, memory, output.

Templates come out of files that strangers publish. Every operation that can make something large
from something small asks here first, so that a hostile one ends with an error within its time,
before the memory is gone. A long conversation is not the template's fault: what it holds comes on
top.
"""

import time
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import Undefined
from jinja2.sandbox import SecurityError

SECONDS = 2.0  # of this thread's own time: a busy machine makes no template hostile
OUTPUT_BYTES = 1 << 20
MADE_BYTES = 128 << 20  # of everything made on the way, kept or not
TEXT_CHARACTERS = 8 << 20  # of one string
ITEMS = 200_000  # of one container, with everything inside it
DEPTH = 200
GIVEN_TIMES = 16  # a conversation may be gone through so often
GIVEN_A_SECOND = 4 << 20  # … at so many characters a second
STEP_BYTES = 64  # what a step may leave behind that nobody counts
LOOK_EVERY = 32  # steps between two looks at the clock
LARGE = 1 << 16  # bytes that take long enough to look at once


class OverBudget(Exception):
    """A template asked for too much; the text says of what."""


class Budget:
    """What is left for one rendering."""

    __slots__ = ("_deadline", "_left", "_steps", "output", "text")

    def __init__(self, given: int = 0) -> None:
        self._deadline = time.thread_time() + SECONDS + given / GIVEN_A_SECOND
        self._left = MADE_BYTES + GIVEN_TIMES * given
        self._steps = 0
        self.output = OUTPUT_BYTES + 4 * given  # bytes
        self.text = TEXT_CHARACTERS + given  # characters of one string

    def tick(self) -> None:
        """Count a step."""
        self._steps += 1
        self._left -= STEP_BYTES
        if not self._steps % LOOK_EVERY:
            self._look()

    def made(self, size: int) -> None:
        """Count bytes that are about to be made, or just were."""
        self._left -= size
        if size > LARGE or self._left < 0:
            self._look()

    def _look(self) -> None:
        if time.thread_time() > self._deadline:
            raise OverBudget(f"it ran for more than {SECONDS:g} seconds")
        if self._left < 0:
            raise OverBudget(f"it used up the memory it may in {self._steps} steps")


_current: ContextVar[Budget] = ContextVar("golem_template_budget")


@contextmanager
def budget(given: int = 0) -> Iterator[Budget]:
    """A fresh budget for what is rendered inside.

    given: characters of what is to be rendered, for which there is room beside the limits.
    """
    token = _current.set(Budget(given))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def tick() -> None:
    """Count a step of the rendering that runs."""
    _current.get().tick()


def made(size: int) -> None:
    """Count bytes."""
    _current.get().made(size)


def made_text(characters: int) -> None:
    """Count a string before it is made."""
    now = _current.get()
    if characters > now.text:
        raise OverBudget(f"it wanted a text of {characters} characters")
    now.made(characters)


def made_items(count: int) -> None:
    """Count a list before it is made."""
    if count > ITEMS:
        raise OverBudget(f"it wanted a list of {count} items")
    _current.get().made(STEP_BYTES + 16 * count)


def weigh(value: Any, *, written: bool = False) -> int:
    """The characters of all strings in ``value`` as they are written out, a few for other things.

    A list that holds another many times, which holds a third many times, is small in memory and
    endless to write, compare or hash: it is walked as it would be written. ``written``: it is
    going to be, so it must be plain data.
    """
    tick()
    characters = items = 0
    stack = [(value, 0)]
    while stack:
        part, depth = stack.pop()
        if isinstance(part, str):
            characters += len(part)
            continue
        characters += 8
        if isinstance(part, dict):
            inner = [*part.keys(), *part.values()] if len(part) <= ITEMS else part
        elif isinstance(part, list | tuple):
            inner = part
        elif written and not (part is None or isinstance(part, int | float | range | Undefined)):
            raise SecurityError(f"a {type(part).__name__} cannot be written as text")
        else:
            continue
        items += len(inner)
        if items > ITEMS:
            raise OverBudget(f"it built a value of more than {ITEMS} parts")
        if inner and depth >= DEPTH:
            raise OverBudget(f"it nested values more than {DEPTH} deep")
        stack += [(child, depth + 1) for child in inner]
    made(items)
    return characters


class Steps:
    """What a loop walks over, every step counted."""

    def __init__(self, iterable: Any):
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        now = _current.get()
        for item in self._iterable:
            now.tick()
            yield item

    def __len__(self) -> int:
        if not isinstance(self._iterable, Sized):
            raise TypeError("its length is not known before its end")
        return len(self._iterable)
