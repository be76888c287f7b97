"""Every architecture's logits on tiny random models, against what llama.cpp computes on them."""

import gzip

import numpy as np
import pytest

from golem_core.cpu import features
from tests.paths import data, external
from tests.plugins import tiny
from tests.plugins.tiny import relative_rms
from tests.rounding import ROOM, columns_rounded, median_distance, prompt_rule

EXECUTORS = ("reference", "cpu")
F32 = ("llama", "qwen3", "qwen3-tied", "qwen3moe", "gemma3")
F32 += ("gemma4-e2b", "gemma4-moe", "gemma4-dense", "qwen35", "qwen35moe")
QUANTISED = (
    "llama-q4_k_m",
    "llama-q8_0",
    "qwen3-iq4_nl",
    "qwen3-iq4_xs",
    "qwen3-q1_0",
    "qwen3-q2_k",
    "qwen3-q3_k_m",
    "qwen3-q4_0",
    "qwen3-q4_1",
    "qwen3-q4_k_m",
    "qwen3-q5_0",
    "qwen3-q5_1",
    "qwen3-q5_k_m",
    "qwen3-q6_k",
    "qwen3-q8_0",
    "qwen3moe-mxfp4_moe",
    "qwen3moe-q4_k_m",
    "gemma3-q4_k_m",
    "gemma3-q8_0",
    "gemma4-e2b-q4_k_m",
    "gemma4-moe-q4_k_m",
    "gemma4-dense-q4_k_m",
    "gemma4-dense-q8_0",
    "qwen35-q4_k_m",
    "qwen35-q8_0",
    "qwen35-q2_0",
    "qwen35-tq1_0",
    "qwen35-tq2_0",
    "qwen35moe-q4_k_m",
)
UNMEASURED = ("qwen3-q2_0", "qwen3-tq1_0", "qwen3-tq2_0")  # the oracle has no figure for them


def logits(kind, path, tokens):
    ex = tiny.executor(kind, tiny.decoder(path))
    try:
        return tiny.run(ex, (0, 0, tokens, 1))["logits"]
    finally:
        ex.close()


def kl(found, truth):
    """KL divergence of the median column's next-token distribution, truth first."""

    def log_softmax(x):
        x = x.astype(np.float64) - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    p, q = log_softmax(truth), log_softmax(found)
    return float(np.median((np.exp(p) * (p - q)).sum(-1)))


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", F32)
def test_f32_logits_are_those_of_llama_cpp(name, kind, tiny_model, oracle):
    found = logits(kind, tiny_model(name), oracle[name]["tokens"])
    assert relative_rms(found, oracle["logits"][name]) < 2e-3


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", F32)
def test_f32_greedy_answers_are_those_of_llama_cpp(name, kind, tiny_model, oracle):
    """F32 models are insensitive to rounding: every drawn token is the same."""
    ex = tiny.executor(kind, tiny.decoder(tiny_model(name)))
    ids = list(oracle[name]["tokens"])
    last = tiny.run(ex, (0, 0, ids, 1))["logits"][-1]
    for wanted in oracle[name]["greedy"]:
        assert int(last.argmax()) == wanted
        last = tiny.run(ex, (0, len(ids), [wanted], 0))["logits"][-1]
        ids.append(wanted)
    ex.close()


@pytest.mark.parametrize("kind", EXECUTORS)
def test_every_layer_of_qwen3_is_that_of_transformers(kind, tmp_path):
    path = tmp_path / "qwen3.gguf"
    path.write_bytes(gzip.decompress(data("models/qwen3.gguf.gz").read_bytes()))
    points = np.load(data("models/qwen3_waypoints.npz"))
    model = tiny.decoder(path)
    ex = tiny.executor(kind, model)
    taps = [f"blk.{i}" for i in range(model.blocks)]
    tokens = points["input_ids"]
    found = tiny.run(ex, (0, 0, tokens, 1), wanted=(*taps, "hidden", "logits"))
    ex.close()
    # The recorded states are the embeddings, then each block's result, the last one normed.
    for tap, wanted in zip(taps[:-1], points["hidden_states"][1:-1], strict=True):
        assert relative_rms(found[tap], wanted) < 1e-3
    assert relative_rms(found["hidden"], points["hidden_states"][-1]) < 1e-3
    assert relative_rms(found["logits"], points["logits"]) < 1e-3
    assert relative_rms(found["logits"], points["logits_llamacpp"]) < 1e-3


def cost(path, oracle, base):
    """Distances from llama.cpp's F32 logits: of the cpu executor, of the reference; KL to the
    reference and distance from it, each of the executor and then of a reference that rounds alike.

    All are those of the median column, see tests/rounding.py.
    """
    tokens, wanted = oracle[base]["tokens"], oracle["logits"][base]
    found, truth = (logits(kind, path, tokens) for kind in ("cpu", "reference"))
    with columns_rounded(prompt_rule(features()["set"])):
        rounded = logits("reference", path, tokens)
    distances = [median_distance(x, wanted) for x in (found, truth)]
    apart = [median_distance(x, truth) for x in (found, rounded)]
    return *distances, kl(found, truth), kl(rounded, truth), *apart


@pytest.mark.parametrize("name", F32)
def test_q8_0_costs_no_more_than_in_llama_cpp(name, tiny_model, oracle):
    distance, least, *_ = cost(tiny_model(name, "Q8_0"), oracle, name)
    assert 0.9 * least < distance < 1.1 * oracle["rel_rms_vs_f32"][f"{name}-q8_0"]


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_files_are_no_farther_from_f32_than_in_llama_cpp(name, oracle):
    """Within a tenth; closer only as far as the file's own weights are. And no farther from the
    reference than rounding the columns takes it."""
    distance, least, divergence, allowed, apart, expected = cost(
        external(f"llamacpp/{name}.gguf"), oracle, name.rsplit("-", 1)[0]
    )
    print(
        f"{name}: distance {distance:.4f}, KL to the reference {divergence:.6f}, "
        f"from the reference {apart:.4f} of {expected:.4f}"
    )
    assert 0.9 * least < distance < 1.1 * oracle["rel_rms_vs_f32"][name]
    assert apart < ROOM * expected
    assert divergence < ROOM**2 * allowed  # which grows with the distance's square


@pytest.mark.parametrize("name", UNMEASURED)
def test_ternary_files_run_close_to_the_reference(name, oracle):
    path = external(f"llamacpp/{name}.gguf")
    tokens = oracle["qwen3"]["tokens"]
    truth = logits("reference", path, tokens)
    assert relative_rms(logits("cpu", path, tokens), truth) < 0.1
