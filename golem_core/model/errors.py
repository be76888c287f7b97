"""The exceptions of loading a model, apart from the rest so that every module can raise it."""


class ModelError(ValueError):
    """A model that cannot be served as asked: one line that says what was found and what to do."""


class CannotEmbed(NotImplementedError):
    """The model gives no vectors of texts, or nothing but vectors; the text says why."""
