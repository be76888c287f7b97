"""The exceptions of loading a model, apart from the rest so that every module can raise it."""


class ModelError(ValueError):
    """A model that cannot be served as asked: one line that says what was found and what to do."""


class MemoryShort(ModelError):
    """A model that needs more memory than there is.

    needs: that, without advice. context: positions of all slots that would fit, 0 = none.
    """

    def __init__(self, needs: str, context: int):
        self.needs = needs
        self.context = context
        if context:
            advice = f"-context {context} would fit"
        else:
            advice = "no -context would fit, a smaller model or quantisation may"
        super().__init__(f"{needs}; {advice}")


class CannotEmbed(NotImplementedError):
    """The model gives no vectors of texts, or nothing but vectors; the text says why."""
