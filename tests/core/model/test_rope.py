"""Rotary angles: against the formulas, and YaRN against llama.cpp's, written out pair by pair."""

import math

import numpy as np
import pytest

from golem_core.model import Hyper, ModelError, RopeScaling


def of(context=4096, **keys):
    named = {f"a.rope.{key.replace('__', '.')}": value for key, value in keys.items()}
    return RopeScaling.of(Hyper(named, "a", "m.gguf"), context)


def test_plain_angles_fall_by_the_base():
    rope = of().rope(8, 10000.0, "halves")
    np.testing.assert_allclose(rope.freq, [1.0, 0.1, 0.01, 0.001], rtol=1e-6)
    assert rope.pairing == "halves" and rope.scale == 1.0


def test_linear_scaling_divides_every_angle():
    rope = of(scaling__type="linear", scaling__factor=8.0).rope(8, 10000.0, "halves")
    np.testing.assert_allclose(rope.freq * 8, [1.0, 0.1, 0.01, 0.001], rtol=1e-6)


def test_the_old_key_of_linear_scaling_still_counts():
    assert of(scale_linear=4.0) == of(scaling__type="linear", scaling__factor=4.0)


def test_a_factor_without_a_kind_is_linear():
    assert of(scaling__factor=2.0).kind == "linear"


def test_factors_divide_their_pairs():
    factors = np.array([1.0, 2.0, 4.0, 1e30], np.float32)
    rope = of().rope(8, 10000.0, "adjacent", factors)
    np.testing.assert_allclose(rope.freq, [1.0, 0.05, 0.0025, 0.0], rtol=1e-6, atol=1e-30)


def llama_cpp_yarn(width, base, original, factor, fast, slow):
    """ggml_rope_yarn pair by pair, at position 1."""

    def corr_dim(turns):
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(0, math.floor(corr_dim(fast)))
    high = min(width - 1, math.ceil(corr_dim(slow)))
    angles = []
    for i0 in range(0, width, 2):
        extrapolated = base ** (-i0 / width)
        ramp = 1 - min(1, max(0, (i0 / 2 - low) / max(0.001, high - low)))
        angles.append(extrapolated / factor * (1 - ramp) + extrapolated * ramp)
    return angles, 1 + 0.1 * math.log(factor)


@pytest.mark.parametrize(("factor", "original"), [(4.0, 32768), (2.0, 8192), (1.0, 4096)])
def test_yarn_is_llama_cpps(factor, original):
    scaling = of(
        scaling__type="yarn", scaling__factor=factor, scaling__original_context_length=original
    )
    rope = scaling.rope(128, 1e6, "halves")
    angles, scale = llama_cpp_yarn(128, 1e6, original, factor, 32.0, 1.0)
    np.testing.assert_allclose(rope.freq, angles, rtol=1e-6)
    assert rope.scale == pytest.approx(scale)


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones():
    plain = of().rope(128, 1e6, "halves").freq
    yarn = of(32768, scaling__type="yarn", scaling__factor=4.0).rope(128, 1e6, "halves").freq
    np.testing.assert_allclose(yarn[0], plain[0])
    np.testing.assert_allclose(yarn[-1], plain[-1] / 4, rtol=1e-6)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(ModelError, match="'longrope'; one of none, linear, yarn is expected"):
        of(scaling__type="longrope")


def test_an_operator_overrides_the_file():
    file = of(scaling__type="linear", scaling__factor=8.0)
    assert file.override(kind="none").rope(8, 1e4, "halves").freq[1] == pytest.approx(0.1)
    assert file.override(factor=2.0).factor == 2.0
    assert of().override(factor=2.0).kind == "linear"
    assert of().override(kind="yarn", factor=2.0, original=100).original == 100
    assert file.override() == file
