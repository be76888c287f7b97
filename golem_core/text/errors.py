"""The errors of this folder that callers see."""


class TokenizerError(ValueError):
    """A vocabulary that cannot be used, or an id outside of it; the text says which and why."""


class TemplateError(ValueError):
    """A chat template that cannot be read or rendered, or that refused the conversation.

    ``refused``: the text is the template's own, from its raise_exception().
    """

    def __init__(self, text: str, *, refused: bool = False):
        super().__init__(text)
        self.refused = refused
