"""What comes before an answer and may take long, on a thread of its own.

A request whose pictures are looked at first has nothing to say for a while. Its own thread is the
one that writes to the client, and tells it meanwhile that the request is still there.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from golem_server.errors import Refusal
from golem_server.threads import NO_THREAD, refused_a_thread

T = TypeVar("T")


class Preparing(Generic[T]):
    """Work that has begun.

    Raises:
        Refusal: where the system gives no thread.
    """

    def __init__(self, work: Callable[[], T]):
        self._work = work
        self._made: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        try:
            threading.Thread(target=self._run, name="golem-preparing", daemon=True).start()
        except RuntimeError as error:
            if not refused_a_thread(error):
                raise
            raise Refusal(NO_THREAD, "unavailable_error", retry=True) from None

    def _run(self) -> None:
        try:
            self._made = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is done, after so many seconds at most; None = as long as it takes."""
        return self._done.wait(seconds)

    def result(self) -> T:
        """What was made, when it is done. Raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._made
