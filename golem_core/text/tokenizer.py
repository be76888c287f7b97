"""Chooses the tokenizer that a model file asks for."""

from collections.abc import Mapping
from typing import Any

from golem_core.text.base import Tokenizer
from golem_core.text.bpe import ByteTokenizer, SpaceTokenizer
from golem_core.text.detokenizer import Detokenizer
from golem_core.text.errors import TokenizerError
from golem_core.text.sentencepiece import ScoreTokenizer, UnigramTokenizer
from golem_core.text.wordpiece import WordPieceTokenizer

__all__ = ["KINDS", "Detokenizer", "Tokenizer", "TokenizerError", "load_tokenizer"]

# tokenizer.ggml.model to the class that reads it.
KINDS: dict[str, type[Tokenizer]] = {
    "gpt2": ByteTokenizer,
    "llama": ScoreTokenizer,
    "gemma4": SpaceTokenizer,
    "t5": UnigramTokenizer,
    "bert": WordPieceTokenizer,
}


def load_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF header; ``TokenizerError`` names what is unknown or unusable."""
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise TokenizerError(
            "the file has no tokenizer.ggml.model: it holds no vocabulary, so it cannot read text"
        )
    if not isinstance(model, str) or model not in KINDS:
        raise TokenizerError(f"tokenizer.ggml.model is {model!r}; golem knows {', '.join(KINDS)}")
    return KINDS[model](metadata)
