"""Ends of an answer that depend on its lines: their indentation, and a time that is up.

The rules are llama-server's (``n_indent``, ``t_max_predict_ms``): the first line is free, and time
is looked at only where a line ends after one has ended before.
"""

_SPACES = " \t"


class Lines:
    """Follows the lines of one answer.

    indent: spaces and tabs that every line after the first must begin with, 0 = any. limit_ms:
    milliseconds of drawing after which a line is the last, -1 = any number.
    """

    def __init__(self, indent: int = 0, limit_ms: float = -1):
        self.seen = False  # a line has ended
        self._indent = indent
        self._limit = limit_ms
        self._begun: int | None = None  # indentation of the line so far, None once it has text

    def push(self, text: str, ms: float) -> tuple[str, bool]:
        """Takes the text of a token drawn ``ms`` after the first one.

        Returns what of it belongs to the answer, and whether the answer ends with that.
        """
        if self._indent > 0:
            kept = self._indented(text)
            if kept < len(text):
                return text[:kept], True
        ends = "\n" in text
        over = ends and 0 < self._limit < ms
        self.seen |= ends
        return text, over

    def _indented(self, text: str) -> int:
        """How many characters come before a line that is not indented enough."""
        for place, character in enumerate(text):
            if self._begun is not None and character not in _SPACES:
                if self._begun < self._indent:
                    return place
                self._begun = None
            if character == "\n":
                self.seen = True
                self._begun = 0
            elif self._begun is not None:
                self._begun += 1
        return len(text)
