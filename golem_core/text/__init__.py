"""Text and tokens: the tokenizers of model files, and the templates that write a chat as text."""

from golem_core.text.template import ChatTemplate, TemplateError
from golem_core.text.tokenizer import Detokenizer, Tokenizer, TokenizerError, load_tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "TemplateError",
    "Tokenizer",
    "TokenizerError",
    "load_tokenizer",
]
