"""What is said where the system gives no more threads: Python's own words name no remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

from golem_core.settings import SettingsError

NO_THREAD = (
    "the system lets this process start no more threads; raise ulimit -u, ulimit -v or the "
    "container's limits of processes and memory, or lower -queue, -parallel or -threads"
)


def refused_a_thread(error: BaseException) -> bool:
    """Whether an error is what Python says of a thread it was not given."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


@contextmanager
def starting(count: int = 0) -> Iterator[None]:
    """Around what starts threads. Raises SettingsError where there are none to be had.

    count: how many, when they are those that handle requests.
    """
    try:
        yield
    except RuntimeError as error:
        if not refused_a_thread(error):
            raise
        wanted = f" ({count} handle requests: -parallel + -queue + 16)" if count else ""
        raise SettingsError(NO_THREAD + wanted) from error
