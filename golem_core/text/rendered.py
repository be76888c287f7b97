"""The ids of a prompt that a chat template wrote."""

from typing import Any


def encode_rendered(tokenizer: Any, text: str) -> list[int]:
    """The ids of a rendered conversation, its control tokens read as such.

    Many templates write the begin token themselves, and many tokenizers add one: it is there once.
    """
    if tokenizer.add_bos and tokenizer.bos is not None:
        text = text.removeprefix(tokenizer.text(tokenizer.bos))
    return tokenizer.encode(text, add_special=True, parse_special=True)
