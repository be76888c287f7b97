"""What a file says about itself besides numbers: its kind, its quantisation, its sampling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from golem_core.formats.gguf import GGUF
from golem_core.model.errors import ModelError

# general.file_type, llama.cpp's LLAMA_FTYPE.
FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    21: "Q2_K_S",
    25: "IQ4_NL",
    30: "IQ4_XS",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    40: "Q1_0",
    41: "Q2_0",
}

ENCODERS = {
    "t5": "encoder-decoder",
    "t5encoder": "encoder-decoder",
    "bert": "encoder",
    "nomic-bert": "encoder",
    "nomic-bert-moe": "encoder",
}


def name_of(path: Path) -> str:
    """What a model is called: its file without ``.gguf``."""
    return path.name.removesuffix(".gguf")


def file_type(file: GGUF) -> str:
    """The file's quantisation by name; without a known one, the type of most of its bytes."""
    named = FILE_TYPES.get(file.metadata.get("general.file_type"))
    if named is not None:
        return named
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type.name] += tensor.nbytes
    return sizes.most_common(1)[0][0] if sizes else "empty"


def sampling(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The ``general.sampling.*`` values of a header, by the last part of their keys."""
    start = "general.sampling."
    return {key.removeprefix(start): metadata[key] for key in metadata if key.startswith(start)}


def refuse_other_kinds(file: GGUF, *, encoders: bool = False) -> None:
    """Refuses by name what is a GGUF file but no chat model, nor an encoder where one is wanted.

    Raises ModelError.
    """
    kind = file.metadata.get("general.type")
    if kind == "adapter" or "adapter.type" in file.metadata:
        raise ModelError(
            f"{file.path}: this is a LoRA adapter, which golem does not apply to chat models; "
            "give -model a model it has been merged into"
        )
    if kind == "imatrix" or file.metadata.get("general.architecture") == "imatrix":
        raise ModelError(f"{file.path}: this is an importance matrix, no model")
    architecture = file.architecture
    if architecture == "clip" or kind == "mmproj":
        raise ModelError(
            f"{file.path}: this is a projector for pictures or sound, no chat model; give -model "
            "the language model it belongs to"
        )
    kind = ENCODERS.get(architecture)
    if kind is not None and not (encoders and kind == "encoder"):
        hint = "give it to -embed" if kind == "encoder" else "golem does not serve them"
        raise ModelError(f"{file.path}: {architecture} is an {kind} model, no chat model; {hint}")
    if not file.tensors:
        raise ModelError(f"{file.path}: this file holds a vocabulary and no weights")


class OfFile:
    """What an open model of any kind tells of its ``file``."""

    file: GGUF

    @cached_property
    def n_params(self) -> int:
        return self.file.n_params

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the weights in the file."""
        return self.file.size_bytes

    @cached_property
    def file_type(self) -> str:
        """How the file is quantised: "Q4_K_M"."""
        return file_type(self.file)
