"""Lines on stderr that threads do not tear apart."""

import sys


def say(line: str) -> None:
    """Write a line at once: ``print`` writes its newline apart."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
