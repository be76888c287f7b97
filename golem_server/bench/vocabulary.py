"""Vocabularies without a language: enough for a tokenizer to load, padded to any size.

Every byte is a token, a few words are merged, the special tokens of chat are there; the rest is
filler that nobody can type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_WORDS = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
)
_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = 1, 2, 3, 4, 6
_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA3 = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
_GEMMA4 = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>", "<|think|>")
_GEMMA4 += ("<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>")
_GEMMA4_SHOWN = ("<|channel>", "<channel|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>")
_GEMMA4_SHOWN += ("<|tool_response>", "<tool_response|>", '<|"|>')
_GEMMA = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")


def byte_level(size: int, pre: str) -> dict[str, Any]:
    """The ``tokenizer.*`` keys of a byte-level BPE of ``size`` tokens (at least 400)."""
    characters = _printable_bytes()
    tokens = list(characters)
    merges: list[str] = []
    for word in _WORDS:
        _learn([characters[b] for b in f" {word}".encode()], tokens, merges)
    types = [_NORMAL] * len(tokens)
    special = _LLAMA3 if pre == "llama-bpe" else _CHATML
    first = len(tokens)
    tokens += special
    types += [_CONTROL] * len(special)
    _fill(tokens, types, size)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": first,
        "tokenizer.ggml.eos_token_id": first + len(special) - 1,
        "tokenizer.ggml.padding_token_id": first,
        "tokenizer.ggml.add_bos_token": pre == "llama-bpe",
    }


def sentencepiece(size: int) -> dict[str, Any]:
    """The ``tokenizer.*`` keys of a SentencePiece BPE of ``size`` tokens (at least 500)."""
    tokens = list(_GEMMA) + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [_CONTROL] * len(_GEMMA) + [_BYTE] * 256
    types[_GEMMA.index("<unk>")] = _UNKNOWN
    scores = [-1000.0] * len(tokens)
    pieces = ["\u2581", "\n", *map(chr, range(33, 127))]
    for word in _WORDS:
        _learn(list(f"\u2581{word}"), pieces, [])
    tokens += pieces
    types += [_NORMAL] * len(pieces)
    scores += [-float(rank) for rank in range(len(pieces))]
    _fill(tokens, types, size)
    scores += [-1000.0] * (size - len(scores))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": _GEMMA.index("<bos>"),
        "tokenizer.ggml.eos_token_id": _GEMMA.index("<end_of_turn>"),
        "tokenizer.ggml.unknown_token_id": _GEMMA.index("<unk>"),
        "tokenizer.ggml.padding_token_id": _GEMMA.index("<pad>"),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
    }


def gemma_pieces(size: int) -> dict[str, Any]:
    """The ``tokenizer.*`` keys of Gemma 4's BPE over characters, ``size`` tokens (at least 500)."""
    tokens = [*_GEMMA4, *_GEMMA4_SHOWN]
    types = [_CONTROL] * len(_GEMMA4) + [_USER] * len(_GEMMA4_SHOWN)
    types[tokens.index("<unk>")] = _UNKNOWN
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types += [_BYTE] * 256
    pieces = ["\u2581", "\n", *map(chr, range(33, 127)), "\n\n"]
    merges = ["\n \n"]
    for word in _WORDS:
        _learn(list(f"\u2581{word}"), pieces, merges)
    tokens += pieces
    types += [_NORMAL] * len(pieces)
    _fill(tokens, types, size)
    return {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.full(size, -1000.0, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": tokens.index("<bos>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<turn|>"),
        "tokenizer.ggml.unknown_token_id": tokens.index("<unk>"),
        "tokenizer.ggml.padding_token_id": tokens.index("<pad>"),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
    }


def _printable_bytes() -> list[str]:
    """The character that byte-level vocabularies write for each byte (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]


def _learn(symbols: list[str], tokens: list[str], merges: list[str]) -> None:
    """Adds what spells the symbols from left to right."""
    whole = symbols[0]
    for symbol in symbols[1:]:
        if whole + symbol not in tokens:
            tokens.append(whole + symbol)
            merges.append(f"{whole} {symbol}")
        whole += symbol


def _fill(tokens: list[str], types: list[int], size: int) -> None:
    if len(tokens) > size:
        raise ValueError(f"a vocabulary of {size} tokens: {len(tokens)} are needed")
    tokens += [f"[PAD{i}]" for i in range(len(tokens), size)]
    types += [_NORMAL] * (
        size - len(types)
    )  # with a text, so that a stream shows each that is drawn
