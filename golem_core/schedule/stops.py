"""Stop texts: found across the borders of tokens, and never shown in part.

Text that may still become a stop text is held back until it cannot. Each stop text is followed
by its own matcher (Knuth, Morris, Pratt), so a token costs its own length, whatever the stops.
"""

from collections.abc import Sequence


class StopFilter:
    """Lets text through up to the first stop text.

    stops: non-empty texts; empty ones are ignored.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops = [stop for stop in stops if stop]
        self._tables = [_borders(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # characters of each stop the text ends with
        self._held = ""

    def push(self, text: str) -> tuple[str, str]:
        """Takes new text; returns what may be shown and the stop text found, "" for none.

        The stop text that begins first wins, the longer one on ties. Nothing may be pushed after
        one is found.
        """
        if not self._stops:
            return text, ""
        held = self._held + text
        found: list[tuple[int, int, str]] = []
        for i, (stop, table) in enumerate(zip(self._stops, self._tables, strict=True)):
            matched = self._matched[i]
            for at, letter in enumerate(text):
                while matched and stop[matched] != letter:
                    matched = table[matched - 1]
                if stop[matched] == letter:
                    matched += 1
                if matched == len(stop):
                    start = len(self._held) + at + 1 - matched
                    found.append((start, -matched, stop))
                    break
            self._matched[i] = matched
        if found:
            start, _, stop = min(found)
            self._held = ""
            return held[:start], stop
        keep = max(self._matched)
        shown = len(held) - keep
        self._held = held[shown:]
        return held[:shown], ""

    def flush(self) -> str:
        """The end of the answer: what was held back is no stop text after all."""
        held, self._held = self._held, ""
        return held


def _borders(stop: str) -> list[int]:
    """For every prefix, the length of its longest proper border."""
    table = [0] * len(stop)
    length = 0
    for i in range(1, len(stop)):
        while length and stop[i] != stop[length]:
            length = table[length - 1]
        if stop[i] == stop[length]:
            length += 1
        table[i] = length
    return table
