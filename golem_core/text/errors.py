"""The one error of this folder that callers of a tokenizer see."""


class TokenizerError(ValueError):
    """A vocabulary that cannot be used, or an id outside of it; the text says which and why."""
