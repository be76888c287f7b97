"""No number in a header can do worse than be refused in one line."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from golem_core.plugins import load_plugins
from tests.plugins import tiny

ODD = (
    0,
    -1,
    1,
    3,
    7,
    1 << 20,
    (1 << 32) - 1,
    (1 << 63),
    0.0,
    1e-30,
    1e30,
    math.nan,
    math.inf,
    "",
    "x",
    True,
    np.zeros(0, np.int32),
    np.array([1, 2], np.uint32),
    np.full(6, 1 << 30, np.uint32),
    None,
)


OPTIONAL = (
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.freq_base_swa",
    "attention.scale",
    "attention.sliding_window_pattern",
    "expert_count",
    "nextn_predict_layers",
    "final_logit_softcapping",
)


@pytest.mark.parametrize("name", ["llama", "qwen3moe", "gemma3", "gemma4-e2b", "gemma4-moe"])
def test_odd_header_values_are_used_or_refused_in_one_line(name, tiny_model):
    file = tiny.decoder(tiny_model(name)).file
    architecture = file.architecture
    model = load_plugins().architecture(architecture)
    keys = [k for k in file.metadata if k.startswith(f"{architecture}.")]
    keys += [f"{architecture}.{key}" for key in OPTIONAL]
    yarn = {f"{architecture}.rope.scaling.type": "yarn"}
    refused = 0
    for key in sorted(set(keys)):
        for value in ODD:
            header = {**file.metadata, **yarn, key: value}
            odd = SimpleNamespace(
                path="odd.gguf",
                architecture=architecture,
                metadata={k: v for k, v in header.items() if v is not None},
                tensors=file.tensors,
            )
            try:
                assert model(odd).program(64, 64).nodes
            except ValueError as error:
                refused += 1
                assert "\n" not in str(error)
    assert refused > len(keys)
