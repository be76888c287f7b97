"""What a model is called and what it can do: for listings, whether or not it is in memory."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HEAD_BYTES = 1 << 20  # of a file, that a digest without a pin is made of
LONGEST_ARRAY = 8  # of a header's arrays, that a card keeps

# llama.cpp's numbers for tokenizer.ggml.model
VOCABULARIES = {"none": 0, "llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}


@dataclass(frozen=True)
class Card:
    """A model that is served.

    digest: 64 hexadecimal digits. Of a file that nobody pinned they are not its checksum, which
    would take reading it all, but that of its first MiB and its size. modified: of the file,
    seconds since 1970. context: positions of a slot. info: the file's header; long arrays are
    None. can: "completion", "tools", "thinking", "insert".
    """

    name: str
    path: Path
    digest: str
    size: int  # bytes of the weights
    modified: float
    architecture: str
    blocks: int
    quantization: str
    parameters: int
    context: int
    trained: int
    width: int
    vocabulary: int
    vocabulary_kind: int
    template: str
    can: tuple[str, ...]
    info: Mapping[str, Any] = field(default_factory=dict)
    pinned: bool = False

    @property
    def parameter_size(self) -> str:
        """Weights as people say them: 134.5M, 7.6B."""
        named = self.info.get("general.size_label")
        if isinstance(named, str) and named:
            return named
        billions = self.parameters / 1e9
        return f"{billions:.1f}B" if billions >= 1 else f"{1000 * billions:.2f}M"


def card_of(model: Any, name: str, context: int) -> Card:
    """The card of an opened model. context: positions of a slot."""
    metadata = model.file.metadata
    path = Path(model.path)
    kind = str(metadata.get("tokenizer.ggml.model", "none"))
    return Card(
        name=name,
        path=path,
        digest=_digest(path),
        size=model.size_bytes,
        modified=_modified(path),
        architecture=model.architecture,
        blocks=model.blocks,
        quantization=model.file_type,
        parameters=model.n_params,
        context=context,
        trained=model.context_length,
        width=model.embedding_length,
        vocabulary=model.n_vocab,
        vocabulary_kind=VOCABULARIES.get(kind, 0),
        template=model.template.source,
        can=_abilities(model),
        info={key: _short(value) for key, value in metadata.items()},
    )


def _abilities(model: Any) -> tuple[str, ...]:
    found = ["completion"]
    if model.call is not None and _uses(model.template, "tools"):
        found.append("tools")
    if model.reasoning is not None and any(
        _uses(model.template, text) for text in ("enable_thinking", *model.reasoning)
    ):
        found.append("thinking")
    if fim_tokens(model.tokenizer):
        found.append("insert")
    return tuple(found)


def _uses(template: Any, word: str) -> bool:
    return word in template.source


def fim_tokens(tokenizer: Any) -> tuple[int, int, int] | None:
    """The tokens before what comes before a gap, after it, and before what fills it."""
    found = tuple(getattr(tokenizer, f"fim_{part}", None) for part in ("pre", "suf", "mid"))
    return None if None in found else found


def _short(value: Any) -> Any:
    """A header's value as JSON has it, None for a long array."""
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if len(value) > LONGEST_ARRAY:
        return None
    return [_short(item) for item in value]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        size = path.stat().st_size
    except OSError:
        head, size = str(path).encode(), 0
    return hashlib.sha256(head + size.to_bytes(8, "little")).hexdigest()


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
