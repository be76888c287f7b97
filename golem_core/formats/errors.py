"""The one exception of the file readers, apart from them so that every module here can raise it."""


class FormatError(ValueError):
    """A file that cannot be read. The text is one line: the file, what is wrong, and where."""


def shown(text: object, limit: int = 80) -> str:
    """``repr(text)`` cut to ``limit`` characters: names in a hostile file may be long or odd."""
    quoted = repr(text if not isinstance(text, str) or len(text) <= limit else text[:limit])
    return quoted if len(quoted) <= limit + 2 else quoted[:limit] + "…"
