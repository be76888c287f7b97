"""Why a request is not answered. Each text says what was seen and what would help."""

import copyreg
from pathlib import Path
from typing import Any


class ScheduleError(Exception):
    """Base of everything the engine refuses or fails a request with.

    One that fails several requests is copied for each, text and all: an exception's own way would
    call a class that makes its text of something else with that text.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__


class QueueFull(ScheduleError):
    """As many requests wait as may; nothing was kept of this one."""

    def __init__(self, bound: int):
        self.bound = bound
        super().__init__(
            f"every slot is taken and the queue of {bound} is full: try again later, or start the "
            "server with a larger -queue"
        )


class TimedOut(ScheduleError):
    """Base of the two ways in which an answer can take too long. seconds: what was allowed."""

    def __init__(self, seconds: float, message: str):
        self.seconds = seconds
        super().__init__(message)


class QueueTimeout(TimedOut):
    """No slot came free in time. Nothing was computed, no slot was touched."""

    def __init__(self, seconds: float):
        super().__init__(
            seconds,
            f"no slot came free within {seconds:g} s: try again later, or start the server with "
            "a larger -queue-timeout or -parallel",
        )


class RequestTimeout(TimedOut):
    """The answer was not finished in time. What was read and drawn stays in its slot."""

    def __init__(self, seconds: float):
        super().__init__(
            seconds,
            f"the answer was not finished within {seconds:g} s: ask for fewer tokens, or start "
            "the server with a larger -request-timeout",
        )


class ContextExceeded(ScheduleError, ValueError):
    """A prompt as long as the slot's context or longer; found before a slot is waited for."""

    def __init__(self, n_prompt: int, n_ctx: int, *, counted: bool = True):
        self.n_prompt = n_prompt  # tokens; not counted: at least so many
        self.n_ctx = n_ctx  # positions of a slot
        told = n_prompt if counted else f"at least {n_prompt}"
        super().__init__(
            f"request ({told} tokens) exceeds the available context size ({n_ctx} tokens), "
            "try increasing it"
        )


class EngineClosed(ScheduleError):
    """The engine is not serving: not started, closing or closed."""


class PassFailed(ScheduleError):
    """The pass this request took part in failed; the cause is chained. Its slot was cleared."""


class DeadEnd(PassFailed):
    """What this request's grammar allows cannot be drawn, or it gave up; others went on."""


class ModelChanged(PassFailed):
    """The model's file was replaced, cut or touched while it was being served."""

    def __init__(self, path: Path):
        super().__init__(
            f"{path} changed on disk while it was being served (replaced, removed, cut, written to "
            "or touched): requests fail until it is loaded again; restart the server (a model "
            "pinned in -models is verified and loaded again when it is asked for)"
        )
