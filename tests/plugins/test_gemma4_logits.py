"""Gemma 4's numbers on tiny random models of every kind of size, against transformers'.

The files hold the same weights as the checkpoints that transformers 5.24 ran; llama.cpp's logits
differ from those by its f16 table of GELU.
"""

import itertools

import numpy as np
import pytest
from safetensors.numpy import load_file

from golem_core.state import States
from tests.paths import external
from tests.plugins import tiny
from tests.plugins.tiny import relative_rms

KINDS = ("reference", "cpu")
NAMES = ("gemma4_e2b", "gemma4_moe", "gemma4_dense12b")
SPAN = slice(5, 17)  # the columns of a picture in the recording


def opened(kind, name, sees=False, **more):
    model = tiny.decoder(external(f"gemma_qwen/gguf/{name}.gguf"))
    model.sees = sees
    return tiny.executor(kind, model, **more)


def recorded(name):
    """What transformers made; a batch of one is left out."""
    found = load_file(external(f"gemma_qwen/tiny/{name}.io.safetensors"))
    return {key: a[0] if a.shape[0] == 1 else a for key, a in found.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_layer_and_the_logits_are_those_of_transformers(name, kind):
    ex, oracle = opened(kind, name), recorded(name)
    states = oracle["hidden_states"].reshape(oracle["hidden_states"].shape[0], -1)
    taps = [f"blk.{i}" for i in range(len(states) - 2)]
    found = tiny.run(ex, (0, 0, oracle["input_ids"], 1), wanted=(*taps, "hidden", "logits"))
    ex.close()
    close = 1e-5 if kind == "reference" else 1e-3  # keys and values are f16 on the cpu
    # The recorded states are the embeddings, then each block's result, the last one normed.
    for tap, wanted in zip((*taps, "hidden"), states[1:], strict=True):
        assert relative_rms(found[tap].reshape(-1), wanted) < close, tap
    assert relative_rms(found["logits"], oracle["logits"]) < close
    assert relative_rms(found["logits"], oracle["logits_llamacpp"]) < 1e-3


def picture(oracle, first, last):
    """The inputs of the columns first .. last - 1 of the recording with a picture in it."""
    columns = np.arange(first, last)
    inside = (columns >= SPAN.start) & (columns < SPAN.stop)
    ids = oracle["input_ids"].astype(np.int32)[first:last]
    return {
        "runs": np.array([[0, 0, last - first, first, 1]], np.int32),
        "tokens": np.where(inside, 0, ids),
        "outputs": np.arange(last - first, dtype=np.int32),
        "embeddings": oracle["soft"][columns[inside] - SPAN.start],
        "place": np.where(inside, np.cumsum(inside) - 1, -1),
        "until": np.where(inside, SPAN.stop - 1, columns),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [(0, 28), (0, 5, 17, 28), (0, 3, 18, 28)], ids=str)
def test_a_picture_sees_itself_whole_in_sliding_blocks(kind, cuts):
    """And no cut of the prompt that leaves the picture in one pass changes what comes of it.

    The recording was made with keys and values in f32, and so are they here: their rounding to f16
    costs this random model's picture 4e-3, which the test below tells from errors.
    """
    more = {"cache": ("f32", "f32")} if kind == "cpu" else {}
    ex, oracle = opened(kind, "gemma4_dense12b", sees=True, **more), recorded("gemma4_dense12b")
    found = [
        ex.run(picture(oracle, a, b), ("logits",))["logits"].copy()
        for a, b in itertools.pairwise(cuts)
    ]
    ex.close()
    assert relative_rms(np.concatenate(found), oracle["bidir_logits"]) < 2e-5


def test_the_picture_on_the_cpu_is_that_of_a_reference_whose_keys_and_values_are_f16():
    """With the default cache, all that parts golem from the recording is that rounding."""
    oracle = recorded("gemma4_dense12b")
    rounded, fast = (opened(kind, "gemma4_dense12b", sees=True) for kind in KINDS)
    rounded.states = States(rounded.program.states, 1, 256, 64, type_k="f16", type_v="f16")
    truth = rounded.run(picture(oracle, 0, 28), ("logits",))["logits"]
    found = fast.run(picture(oracle, 0, 28), ("logits",))["logits"]
    assert relative_rms(found, truth) < 5e-4
    assert relative_rms(truth, oracle["bidir_logits"]) < 5e-3
    fast.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_without_media_is_one_whose_columns_all_have_no_place(kind):
    ex, oracle = opened(kind, "gemma4_dense12b", sees=True), recorded("gemma4_dense12b")
    plain = tiny.run(ex, (0, 0, oracle["input_ids"], 1))["logits"]
    count = len(oracle["input_ids"])
    bound = picture(oracle, 0, count) | {
        "tokens": oracle["input_ids"],
        "embeddings": np.zeros((0, 72), np.float32),
        "place": np.full(count, -1),
        "until": np.arange(count),
    }
    np.testing.assert_array_equal(ex.run(bound, ("logits",))["logits"], plain)
    # Media in one pass leave nothing behind for the next one.
    ex.run(picture(oracle, 0, count), ("logits",))
    again = tiny.run(ex, (0, 0, oracle["input_ids"], 1))["logits"]
    np.testing.assert_array_equal(again, plain)
    ex.close()


@pytest.mark.parametrize("name", NAMES)
def test_only_sizes_without_block_embeddings_look_ahead_in_a_picture(name):
    model = tiny.decoder(external(f"gemma_qwen/gguf/{name}.gguf"))
    assert not {"embeddings", "place", "until"} & set(model.program(64, 64).inputs)
    model.sees = True
    media = {"embeddings", "place", "until"} & set(model.program(64, 64).inputs)
    assert media == {"embeddings", "place"} | ({"until"} if name != "gemma4_e2b" else set())
