"""Files that llama.cpp and transformers wrote: read whole, and quantised as they did."""

import subprocess
import sys

import numpy as np
import pytest

from golem_core.formats.blocks import quantise
from golem_core.formats.gguf import GGUF
from golem_core.formats.safetensors import Safetensors
from tests.paths import external, gemma3_270m, smollm2

# Relative rms error of llama.cpp's own quantisation of these weights, plus what is left to chance.
ERRORS = {"Q8_0": 0.007, "Q6_K": 0.02, "Q5_K": 0.04, "Q5_0": 0.05, "Q5_1": 0.05, "Q4_0": 0.1}
ERRORS |= {"Q4_1": 0.09, "Q4_K": 0.08, "Q3_K": 0.16, "Q2_K": 0.32, "IQ4_NL": 0.08, "IQ4_XS": 0.08}
ERRORS |= {"F32": 0, "Q1_0": 0.61, "Q2_0": 0.74, "TQ1_0": 0.83, "TQ2_0": 0.83}

NAMES = ["q1_0", "q2_0", "q2_k", "q3_k_m", "q4_0", "q4_1", "q4_k_m", "q5_0", "q5_1", "q5_k_m"]
NAMES += ["q6_k", "q8_0", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0"]


@pytest.fixture(scope="module")
def qwen3_f32(tmp_path_factory):
    """The F32 weights that the recorded qwen3 files were quantised from."""
    script = external("llamacpp/make_tiny.py")
    folder = tmp_path_factory.mktemp("tiny")
    command = [sys.executable, str(script), str(folder), "--only", "qwen3"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "qwen3-f32.gguf"


@pytest.mark.parametrize("name", NAMES)
def test_files_llama_cpp_quantised_decode_to_the_weights_they_came_from(qwen3_f32, name):
    with GGUF.open(qwen3_f32) as plain, GGUF.open(external(f"llamacpp/qwen3-{name}.gguf")) as file:
        assert file.tensors.keys() == plain.tensors.keys()
        for tensor in file.tensors.values():
            x = plain.tensors[tensor.name].numpy()
            assert tensor.shape == x.shape
            error = np.sqrt(np.mean((tensor.numpy() - x) ** 2) / np.mean(x**2))
            assert error <= ERRORS[tensor.type.name], (tensor.name, tensor.type.name)


@pytest.mark.parametrize("name", ["q1_0", "q2_0", "tq1_0", "tq2_0", "q8_0"])
def test_these_types_are_quantised_as_llama_cpp_does_bit_for_bit(qwen3_f32, name):
    seen = 0
    with GGUF.open(qwen3_f32) as plain, GGUF.open(external(f"llamacpp/qwen3-{name}.gguf")) as file:
        for tensor in file.tensors.values():
            if tensor.type.name == name.upper():
                ours = quantise(plain.tensors[tensor.name].numpy(), tensor.type)
                assert np.array_equal(ours, tensor.data), tensor.name
                seen += 1
    assert seen > 20


def test_a_real_vocabulary_is_read_lazily_and_whole():
    with GGUF.open(external("llamacpp/vocab/ggml-vocab-gemma-4.gguf")) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert tokens._index is None
        assert [tokens[i] for i in (0, 1, 2, 3)] == ["<pad>", "<eos>", "<bos>", "<unk>"]
        texts = list(tokens)
        assert len(texts) == len(tokens) == 262144
        assert [tokens[i] for i in (1000, 262143)] == [texts[i] for i in (1000, 262143)]
        assert len(file.metadata["tokenizer.ggml.merges"]) == 514906


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("gemma_qwen/gguf/qwen3.gguf", "gemma_qwen/tiny/qwen3.safetensors"),
        ("gemma_qwen/gguf/qwen3_5.gguf", "gemma_qwen/tiny/qwen3_5.safetensors"),
    ],
)
def test_a_checkpoint_and_its_gguf_hold_the_same_embeddings(name, tensors):
    with GGUF.open(external(name)) as file, Safetensors.open(external(tensors)) as checkpoint:
        table = file.tensors["token_embd.weight"].numpy()
        names = [name for name in checkpoint.tensors if name.endswith("embed_tokens.weight")]
        other = checkpoint.numpy(names[0])
        assert table.shape == other.shape
        # The GGUF is F16 or F32; its rounding is all that may differ.
        assert np.abs(table - other).max() <= np.abs(other).max() * 2**-11


@pytest.mark.parametrize(
    ("find", "architecture", "n_params", "types"),
    [
        (smollm2, "llama", 134_515_008, {"F32", "Q4_1", "Q8_0"}),
        (gemma3_270m, "gemma3", 268_098_176, {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"}),
    ],
)
@pytest.mark.real
def test_real_models_are_read(find, architecture, n_params, types):
    with GGUF.open(find()) as file:
        assert file.architecture == architecture
        assert file.n_params == n_params
        assert {tensor.type.name for tensor in file.tensors.values()} == types
        for tensor in file.tensors.values():
            first = tensor.data.reshape(-1, tensor.data.shape[-1])[:1]
            assert np.isfinite(first).all()
