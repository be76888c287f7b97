"""Vocabularies for tests: the recorded small ones, and what is needed to make one by hand."""

import functools
import gzip
import json
from collections.abc import Sequence
from typing import Any

from tests import paths

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@functools.cache
def recorded() -> dict[str, Any]:
    """What ref/text_vectors.py wrote."""
    with gzip.open(paths.data("text/vocabularies.json.gz")) as file:
        return json.load(file)


def alphabet() -> list[str]:
    """GPT-2's characters for the 256 bytes: printable ones are themselves, the others follow."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(code) for code in range(256, 512))
    return [chr(byte) if byte in plain else next(others) for byte in range(256)]


def header(model: str, tokens: Sequence[tuple[str, int]], **keys: Any) -> dict[str, Any]:
    """A GGUF header with these texts and kinds; other keys of the tokenizer by their last name."""
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        **{f"tokenizer.ggml.{name}": value for name, value in keys.items()},
    }


def byte_header(*specials: tuple[str, int], merges: Sequence[str] = (), **keys: Any):
    """A gpt2 header: the 256 bytes, what the merges make, then ``specials``."""
    made = [merge.replace(" ", "", 1) for merge in merges]
    tokens = [(text, NORMAL) for text in dict.fromkeys([*alphabet(), *made])]
    keys = {"pre": "gpt-2", "merges": list(merges), **keys}
    return header("gpt2", [*tokens, *specials], **keys)
