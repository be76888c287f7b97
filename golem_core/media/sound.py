"""Recordings: bytes of a file -> mono f32 samples at 16 kHz.

WAV, MP3, FLAC, OGG with Vorbis or Opus, of any rate and number of channels, told apart by their
first bytes: a client's word on the format is not needed. Decoded in blocks, so that a file which
claims to be long costs no more than the bound.
"""

from __future__ import annotations

import io

import numpy as np

from golem_core.media.errors import MediaError, need, one_line

RATE = 16000  # samples a second that models take
BLOCK = 1 << 16  # frames decoded at a time
CHANNELS = 64  # at most
FORMATS = ("WAV", "WAVEX", "RF64", "MP3", "FLAC", "OGG")
KNOWN = "WAV, MP3, FLAC, OGG Vorbis and Opus can be read"


def decode_sound(data: bytes, *, seconds: float = 600.0) -> np.ndarray:
    """The recording as (samples,) f32 at 16 kHz, the mean of its channels.

    seconds: longest it may be. Raises MediaError.
    """
    soundfile = need("soundfile", "a recording")
    if not data:
        raise MediaError(f"a recording of no bytes; {KNOWN}")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            mono, rate = _read(file, seconds)
    except MediaError:
        raise
    except soundfile.LibsndfileError as error:
        text = one_line(error).rpartition(": ")[2]
        raise MediaError(f"a recording that cannot be decoded: {text} {KNOWN}") from None
    # As with pictures: whatever else a decoder of foreign bytes raises is said in one way.
    except Exception as error:
        raise MediaError(f"a recording that cannot be decoded: {one_line(error)}") from None
    return resample(mono, rate)


def _read(file, seconds: float) -> tuple[np.ndarray, int]:
    """Mono samples and their rate."""
    rate, channels = file.samplerate, file.channels
    if file.format not in FORMATS:
        raise MediaError(f"a recording of the kind {file.format}; {KNOWN}")
    if not 1000 <= rate <= 768000 or not 1 <= channels <= CHANNELS:
        raise MediaError(f"a recording of {channels} channels at {rate} Hz")
    most = int(seconds * rate)
    parts, count = [], 0
    while True:
        block = file.read(BLOCK, dtype="float32", always_2d=True)
        if not len(block):
            break
        with np.errstate(all="ignore"):  # of numbers that are none, which are refused below
            parts.append(block.mean(axis=1, dtype=np.float32))
        count += len(block)
        if count > most:
            raise MediaError(f"a recording of more than {seconds:g} seconds, which is the longest")
    if not count:
        raise MediaError("a recording without a sample")
    mono = np.concatenate(parts)
    if not np.isfinite(mono).all():
        raise MediaError("a recording with samples that are no numbers")
    return mono, rate


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """Samples of another rate at 16 kHz; at least one."""
    if rate == RATE:
        return samples
    soxr = need("soxr", "a recording that is not at 16 kHz")
    made = soxr.resample(samples, rate, RATE)
    return np.ascontiguousarray(made if len(made) else samples[:1], np.float32)
