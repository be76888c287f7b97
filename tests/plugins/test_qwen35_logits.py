"""The gated delta nets' numbers: transformers' layers, three axes, and how files pack the heads."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.paths import external
from tests.plugins import tiny, tiny_next
from tests.plugins.tiny import relative_rms

KINDS = ("reference", "cpu", "cpu f32")  # the latter with keys and values in f32
# Of the typical column; of all columns together. With keys and values in f16 it is their rounding:
# llama.cpp's logits with an f16 cache lie at 1.25e-4 and 1.10e-3 from transformers' too, golem's at
# 1.27e-4 and 1.10e-3. One column of the recording magnifies any rounding.
CLOSE = {"reference": (2e-5, 1e-4), "cpu": (2e-4, 1.25e-3), "cpu f32": (2e-5, 1e-4)}


def opened(kind, sees=False):
    model = tiny.decoder(external("gemma_qwen/gguf/qwen3_5.gguf"))
    model.sees = sees
    more = {"cache": ("f32", "f32")} if kind == "cpu f32" else {}
    return tiny.executor(kind.split()[0], model, pass_width=96, **more)


@pytest.fixture(scope="module")
def recorded():
    return load_file(external("gemma_qwen/tiny/qwen3_5.io.safetensors"))


def typical(found, wanted):
    """The distance of the median column."""
    pairs = zip(found, wanted, strict=True)
    return float(np.median([relative_rms(f, w) for f, w in pairs]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_and_the_logits_are_those_of_transformers(kind, recorded):
    """70 columns, so that llama.cpp's and transformers' chunks of 64 are crossed."""
    ex = opened(kind)
    taps = [f"blk.{i}" for i in range(7)]
    found = tiny.run(ex, (0, 0, recorded["input_ids"], 1), wanted=(*taps, "hidden", "logits"))
    ex.close()
    # The recorded states are the embeddings, then each block's result, the last one normed.
    for tap, wanted in zip((*taps, "hidden"), recorded["hidden_states"][1:], strict=True):
        assert typical(found[tap], wanted) < CLOSE[kind][0], tap
        assert relative_rms(found[tap], wanted) < CLOSE[kind][1], tap
    for name in ("logits", "logits_llamacpp"):
        assert typical(found["logits"], recorded[name]) < CLOSE[kind][0]
        assert relative_rms(found["logits"], recorded[name]) < CLOSE[kind][1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_delta_net_ends_in_the_state_of_transformers(kind, recorded):
    ex = opened(kind)
    tiny.run(ex, (0, 0, recorded["input_ids"], 1))
    tiled = recorded["l0_state"][[0, 2, 1, 3]].transpose(0, 2, 1)  # the file's heads, (value, key)
    assert relative_rms(ex.states.matrices["delta.0"][0], tiled) < 1e-5
    ex.close()


@pytest.mark.parametrize("kind", KINDS)
def test_positions_of_three_axes_turn_pairs_in_turn(kind, recorded):
    ex = opened(kind, sees=True)
    ids, count = recorded["input_ids"].astype(np.int32), 70
    inputs = {
        "runs": np.array([[0, 0, count, 0, 1]], np.int32),
        "tokens": ids,
        "outputs": np.arange(count, dtype=np.int32),
    }
    plain = ex.run(inputs, ("logits",))["logits"].copy()
    inputs["positions"] = recorded["mrope_pos3"].T.astype(np.int32)
    turned = ex.run(inputs, ("logits",))["logits"]
    assert typical(turned, recorded["mrope_logits"]) < CLOSE[kind][0]
    assert typical(plain, recorded["logits"]) < CLOSE[kind][0]
    assert relative_rms(plain, turned) > 0.01
    ex.close()


@pytest.mark.parametrize("one_matrix", [False, True])
@pytest.mark.parametrize("name", ["qwen35", "qwen35moe"])
def test_qwen3next_is_the_same_net_packed_otherwise(name, one_matrix, tiny_model, tmp_path):
    source = tiny_model(name)
    if name == "qwen35moe":
        source = tiny_next.moe_named_dense(source, tmp_path / "dense-name.gguf")
    path = tiny_next.packed_as_next(source, tmp_path / "next.gguf", one_matrix)
    ids = np.random.default_rng(1).integers(0, 480, 40)
    found, wanted = (
        tiny.run(tiny.executor("reference", tiny.decoder(p)), (0, 0, ids, 1))["logits"]
        for p in (path, source)
    )
    assert relative_rms(found, wanted) < 1e-4
    cpu = tiny.run(tiny.executor("cpu", tiny.decoder(path)), (0, 0, ids, 1))["logits"]
    assert relative_rms(cpu, wanted) < 2e-3


def test_the_blocks_that_predict_further_tokens_are_not_run(tiny_model, tmp_path):
    """A ninth block counted as nextn_predict_layers changes nothing, whatever it holds."""
    source = tiny_model("qwen35")
    keys = {"qwen35.block_count": 9, "qwen35.nextn_predict_layers": 1}
    path = tiny.rewrite(source, tmp_path / "mtp.gguf", keys)
    assert tiny.decoder(path).blocks == 8


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ssm.group_count", 3, "ssm.time_step_rank is 4; a multiple of the 3 groups"),
        ("ssm.inner_size", 500, "ssm.inner_size is 500; the 512 of its heads"),
        ("ssm.conv_kernel", None, "ssm.conv_kernel is missing"),
        ("ssm.state_size", 0, "ssm.state_size is 0; a whole number from 1"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_with_the_key(
    key, value, words, tiny_model, tmp_path
):
    path = tiny.rewrite(tiny_model("qwen35"), tmp_path / "bad.gguf", {f"qwen35.{key}": value})
    with pytest.raises(ValueError, match=words):
        tiny.decoder(path)
