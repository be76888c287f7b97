"""The mel spectrum against two recordings of one wave, and against sines."""

import numpy as np

from golem_core.media import Mel
from tests.paths import data


def test_the_spectrum_equals_transformers_and_llama_cpps():
    """They differ in the floor alone: added to the energy, or the least it may be."""
    told = np.load(data("media/towers.npz"))
    mel, wave = Mel(), told["gemma4_mel.wave"]
    assert np.abs(mel(wave) - told["gemma4_mel.mel_hf"]).max() < 1e-4
    cut = np.log(np.maximum(mel.energies(wave), 1e-3))
    assert np.abs(cut - told["gemma4_mel.mel_llamacpp"]).max() < 1e-4


def test_frames_are_counted_as_c_divides():
    counts = {10: 1, 160: 1, 320: 1, 1600: 9, 16000: 99, 480000: 2999}
    assert {n: Mel().frames(n) for n in counts} == counts
    for n in counts:
        assert Mel()(np.zeros(n, np.float32)).shape == (counts[n], 128)


def test_a_sine_is_loudest_in_the_band_of_its_frequency():
    at = np.arange(16000) / 16000
    middles = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 130) / 2595) - 1)[1:-1]
    for frequency in (440.0, 1000.0, 3000.0):
        loud = Mel().energies(np.sin(2 * np.pi * frequency * at).astype(np.float32))
        band = loud.mean(0).argmax()
        assert abs(middles[band] - frequency) < 40
