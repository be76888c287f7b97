"""Recordings of every kind, rate and number of channels; and those that are refused."""

import io
import struct
import sys
import tracemalloc

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
        ("WAV", "PCM_32"),
        ("WAV", "FLOAT"),
        ("WAV", "DOUBLE"),
        ("WAV", "ULAW"),
        ("WAV", "ALAW"),
        ("WAV", "IMA_ADPCM"),
        ("WAV", "MS_ADPCM"),
        ("WAVEX", "PCM_16"),
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


def test_hours_of_silence_take_no_more_memory_than_what_is_kept_of_them():
    """A few bytes at a rate of 655 kHz on eight channels, which are 42 million values."""
    made = io.BytesIO()
    with soundfile.SoundFile(made, "w", 655350, 8, format="FLAC", subtype="PCM_16") as file:
        for _ in range(80):
            file.write(np.zeros((1 << 16, 8), np.int16))
    data = made.getvalue()
    assert len(data) < 100_000
    tracemalloc.start()
    try:
        found = decode_sound(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == round(80 * (1 << 16) * RATE / 655350)
    assert peak < found.nbytes + (12 << 20)  # blocks of 65536 frames, and copies of them


@pytest.mark.parametrize("rate", [8000, 44100, 655350])
def test_blocks_are_resampled_as_the_whole_is(rate):
    soxr = pytest.importorskip("soxr", reason="the extra media is not installed")
    wave = np.random.default_rng(rate).uniform(-0.5, 0.5, 3 * (1 << 16) + 17).astype(np.float32)
    found = decode_sound(saved(wave, rate, "WAV", "FLOAT"))
    np.testing.assert_array_equal(found, soxr.resample(wave, rate, RATE))


@pytest.mark.parametrize(
    ("format", "subtype"),
    [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", None), ("OGG", "VORBIS"), ("OGG", "OPUS")],
)
def test_of_a_recording_cut_short_what_is_there_is_taken_or_it_is_refused(format, subtype):
    """Decoders differ in how much they need to begin; none makes up what is not there."""
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, 96000).astype(np.float32)
    whole = saved(noise, 48000, format, subtype)
    for part in (0.02, 0.1, 0.5, 0.9):
        try:
            found = decode_sound(whole[: int(len(whole) * part)])
        except MediaError as error:
            assert "cannot be decoded" in str(error) or "without a sample" in str(error)
            continue
        assert 0 < len(found) < (part + 0.1) * 2 * RATE


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
