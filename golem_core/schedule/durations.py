"""Durations as log lines write them: Go's notation, which golem's lines have always used."""


def go_duration(seconds: float, round_to: float = 0.0) -> str:
    """``1m2.3s``, ``51.31s``, ``139ms``, ``829.813µs``, ``0s``.

    round_to: seconds a whole number of which is shown; 0 shows nanoseconds.
    """
    if round_to:
        seconds = round(seconds / round_to) * round_to
    nanoseconds = round(seconds * 1e9)
    if nanoseconds < 0:
        return "-" + go_duration(-seconds)
    if nanoseconds == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if nanoseconds < min(size * 1000, 10**9):
            return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return text + _decimal(rest, 10**9) + "s"


def _decimal(value: int, size: int) -> str:
    """value / size with no trailing zeros; size is a power of ten."""
    whole, part = divmod(value, size)
    digits = str(part).rjust(len(str(size)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if part else str(whole)
