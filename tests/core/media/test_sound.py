"""Recordings of every kind, rate and number of channels; and those that are refused."""

import io
import struct
import sys

import numpy as np
import pytest

from golem_core.media import RATE, MediaError, MissingPackage, decode_sound

soundfile = pytest.importorskip("soundfile", reason="the extra media is not installed")


def sine(rate, seconds=0.5, frequency=440.0, channels=1):
    at = np.arange(int(rate * seconds)) / rate
    wave = 0.5 * np.sin(2 * np.pi * frequency * at)
    return np.repeat(wave[:, None], channels, 1).astype(np.float32)


def saved(samples, rate, format, subtype=None) -> bytes:
    made = io.BytesIO()
    soundfile.write(made, samples, rate, format=format, subtype=subtype)
    return made.getvalue()


def loudest(samples) -> float:
    """The frequency a recording at 16 kHz is loudest at."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return spectrum.argmax() * RATE / len(samples)


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        ("WAV", "PCM_U8"),
        ("WAV", "PCM_16"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("FLAC", "PCM_16"),
        ("MP3", None),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
    ],
)
@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (48000, 2)])
def test_every_kind_gives_the_sine_it_holds(format, subtype, rate, channels):
    found = decode_sound(saved(sine(rate, channels=channels), rate, format, subtype))
    assert found.dtype == np.float32
    assert found.ndim == 1
    assert abs(len(found) - 8000) < 1200  # coders of MP3 add silence at both ends
    assert abs(loudest(found) - 440) < 3
    assert abs(np.abs(found[2000:6000]).max() - 0.5) < 0.05


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 96000])
def test_any_rate_becomes_sixteen_thousand(rate):
    found = decode_sound(saved(sine(rate), rate, "WAV", "FLOAT"))
    assert abs(len(found) - 8000) <= 1
    wanted = sine(RATE)[:, 0]
    assert np.abs(found[1000:7000] - wanted[1000:7000]).max() < 2e-3


def test_samples_at_sixteen_thousand_are_untouched_and_channels_are_averaged():
    rng = np.random.default_rng(1)
    both = rng.uniform(-0.9, 0.9, (1000, 2)).astype(np.float32)
    found = decode_sound(saved(both, RATE, "WAV", "FLOAT"))
    np.testing.assert_allclose(found, both.mean(1), atol=1e-7)


def test_a_recording_longer_than_the_bound_is_refused():
    long = saved(np.zeros((RATE * 3, 1), np.float32), RATE, "FLAC", "PCM_16")
    with pytest.raises(MediaError, match="more than 2 seconds, which is the longest"):
        decode_sound(long, seconds=2)
    assert len(decode_sound(long, seconds=3)) == RATE * 3


def test_a_header_that_claims_hours_costs_nothing():
    """The frames that are there count, not those the header promises."""
    wave = bytearray(saved(sine(RATE), RATE, "WAV", "PCM_16"))
    at = wave.index(b"data") + 4
    struct.pack_into("<I", wave, at, 0xFFFFFF00)
    struct.pack_into("<I", wave, 4, 0xFFFFFFF0)
    assert len(decode_sound(bytes(wave))) == 8000


@pytest.mark.parametrize(
    ("bytes", "said"),
    [
        (b"", "a recording of no bytes; WAV, MP3, FLAC, OGG Vorbis and Opus can be read"),
        (b"hello", "a recording that cannot be decoded: .* WAV, MP3, FLAC"),
        (bytes(5000), "a recording that cannot be decoded"),
    ],
)
def test_what_is_no_recording_is_said(bytes, said):
    with pytest.raises(MediaError, match=said):
        decode_sound(bytes)


def test_an_empty_recording_other_kinds_and_numbers_that_are_none_are_refused():
    with pytest.raises(MediaError, match="without a sample"):
        decode_sound(saved(np.zeros((0, 1), np.float32), RATE, "WAV", "PCM_16"))
    with pytest.raises(MediaError, match="of the kind AIFF"):
        decode_sound(saved(sine(RATE), RATE, "AIFF", "PCM_16"))
    broken = sine(RATE)
    broken[7] = np.nan
    with pytest.raises(MediaError, match="no numbers"):
        decode_sound(saved(broken, RATE, "WAV", "FLOAT"))


def test_a_missing_decoder_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingPackage, match=r'soundfile is not installed .* pip install "golem-'):
        decode_sound(b"x")
