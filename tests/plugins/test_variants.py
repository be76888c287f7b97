"""The same model written in the other ways a file may choose gives the same logits."""

import numpy as np
import pytest

from golem_core.graph.ops import Rope
from tests.plugins import tiny

TOKENS = [5, 400, 17, 17, 230, 9, 311, 42]


def logits(path, **scaling):
    ex = tiny.executor("reference", tiny.decoder(path, **scaling))
    return tiny.run(ex, (0, 0, TOKENS, 1))["logits"]


@pytest.fixture
def changed(tiny_model, tmp_path):
    """changed(name, **what) -> a tiny model rewritten."""

    def model(name, **what):
        return tiny.rewrite(tiny_model(name), tmp_path / "m.gguf", **what)

    return model


def part(name, weights, i):
    return weights[f"blk.{i}.{name}"]


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_queries_keys_and_values_in_one_tensor(name, changed, tiny_model):
    weights = dict(tiny.weights(name))
    parts = ("attn_q", "attn_k", "attn_v")
    fused = {
        f"blk.{i}.attn_qkv.weight": np.concatenate([part(p, weights, i) for p in parts])
        for i in range(3)
    }
    drop = [f"blk.{i}.{p}.weight" for i in range(3) for p in parts]
    path = changed(name, drop=drop, tensors=fused)
    assert tiny.relative_rms(logits(path), logits(tiny_model(name))) < 1e-6


def test_biases_of_zero_change_nothing_and_others_do(changed, tiny_model):
    sizes = {"attn_q": 256, "attn_k": 128, "attn_v": 128, "attn_output": 256, "ffn_gate": 512}
    names = {f"blk.{i}.{p}.bias": n for i in range(3) for p, n in sizes.items()}
    plain = logits(tiny_model("llama"))
    np.testing.assert_array_equal(
        logits(changed("llama", tensors={k: np.zeros(n) for k, n in names.items()})), plain
    )
    for name, size in names.items():
        if name.startswith("blk.1.") and "attn_k" not in name:
            path = changed("llama", tensors={name: np.full(size, 0.5)})
            assert tiny.relative_rms(logits(path), plain) > 1e-3, name


def test_rope_factors_of_two_are_angles_of_half_the_speed(changed, tiny_model):
    path = changed("llama", tensors={"rope_freqs.weight": np.full(32, 2.0)})
    halved = logits(tiny_model("llama"), kind="linear", factor=2.0)
    assert tiny.relative_rms(logits(path), halved) < 1e-6
    assert tiny.relative_rms(halved, logits(tiny_model("llama"))) > 1e-2


def test_rope_factors_are_read_pair_by_pair(changed):
    factors = np.geomspace(1, 8, 32)
    model = tiny.decoder(changed("llama", tensors={"rope_freqs.weight": factors}))
    np.testing.assert_allclose(model.rope.freq * factors, Rope.of(64, 1e5).freq, rtol=1e-6)


def test_an_attention_scale_in_the_header_replaces_the_usual_one(changed, tiny_model):
    usual = changed("llama", keys={"llama.attention.scale": 0.125})
    np.testing.assert_array_equal(logits(usual), logits(tiny_model("llama")))
    other = changed("llama", keys={"llama.attention.scale": 0.5})
    assert tiny.relative_rms(logits(other), logits(tiny_model("llama"))) > 1e-2


def experts_of_one(weights, merged=False):
    """Every feed-forward as four equal experts and a router."""
    rng = np.random.default_rng(0)
    tensors, drop = {}, []
    for i in range(3):
        gate, up, down = (part(f"ffn_{p}", weights, i) for p in ("gate", "up", "down"))
        stacks = {"gate": gate, "up": up, "down": down}
        if merged:
            stacks = {"gate_up": np.concatenate([gate, up]), "down": down}
        for p, matrix in stacks.items():
            tensors[f"blk.{i}.ffn_{p}_exps.weight"] = np.stack([matrix] * 4)
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = rng.standard_normal((4, 256)) / 16
        drop += [f"blk.{i}.ffn_{p}.weight" for p in ("gate", "up", "down")]
    return {"tensors": tensors, "drop": drop}


@pytest.mark.parametrize("merged", [False, True])
def test_a_mixture_of_equal_experts_is_the_dense_model(merged, changed, tiny_model):
    """Mixtral's form: weights of the chosen experts add up to 1."""
    keys = {"llama.expert_count": 4, "llama.expert_used_count": 2}
    path = changed("llama", keys=keys, **experts_of_one(dict(tiny.weights("llama")), merged))
    assert tiny.relative_rms(logits(path), logits(tiny_model("llama"))) < 1e-5


def test_a_sliding_pattern_as_flags_or_as_a_period(changed, tiny_model):
    """Six blocks, every third of them full, said in either way."""
    key = "gemma3.attention.sliding_window_pattern"
    period = logits(changed("gemma3", keys={key: 3}))
    flags = [True, True, False, True, True, False]
    np.testing.assert_array_equal(logits(changed("gemma3", keys={key: flags})), period)
    assert tiny.decoder(tiny_model("gemma3")).sliding == (True,) * 5 + (False,)


def test_the_angles_of_sliding_blocks_have_their_own_base_and_are_never_stretched(changed):
    keys = {
        "gemma3.rope.freq_base_swa": 500.0,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    }
    model = tiny.decoder(changed("gemma3", keys=keys))
    np.testing.assert_allclose(model.rope_of_window.freq, Rope.of(128, 500.0).freq)
    np.testing.assert_allclose(model.rope.freq, Rope.of(128, 1e6, scale=1 / 8).freq)


def test_a_final_softcap_bounds_the_logits(changed, tiny_model):
    plain = logits(tiny_model("gemma3"))
    capped = logits(changed("gemma3", keys={"gemma3.final_logit_softcapping": 2.0}))
    np.testing.assert_allclose(capped, 2.0 * np.tanh(plain / 2.0), rtol=1e-5, atol=1e-6)


def test_gemma3_of_62_blocks_scales_by_width_over_heads(tiny_model):
    model = tiny.decoder(tiny_model("gemma3"))
    assert model.scale == pytest.approx(128**-0.5)
    model.blocks = 62
    assert model.scale == pytest.approx((256 / 4) ** -0.5)
