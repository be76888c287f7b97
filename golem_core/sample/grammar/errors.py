"""What is wrong with a grammar or a schema, said so that its author can find it."""

from __future__ import annotations


class GrammarError(ValueError):
    """A grammar that cannot be used. ``str()`` is the whole message.

    line, column: where, counted from 1; None when the grammar as a whole is meant.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None):
        self.line = line
        self.column = column
        super().__init__(message if line is None else f"{message} (line {line}, column {column})")


class GrammarLimit(GrammarError):
    """A grammar that asks for more memory or time than one answer may take."""


class SchemaError(GrammarError):
    """A JSON schema that cannot be kept exactly.

    keyword: what cannot be kept ("" when the schema as a whole is meant). path: JSON pointer of
    the schema it stands in, as a fragment ("#/properties/a"). reason: the message without them.
    """

    def __init__(self, keyword: str, path: str, reason: str, message: str = ""):
        self.keyword = keyword
        self.path = path
        self.reason = reason
        text = message or f"JSON schema error at {path}: {reason}"
        super().__init__(f"JSON schema conversion failed:\n{text}")
