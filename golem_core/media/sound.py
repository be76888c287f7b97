"""Recordings: bytes of a file -> mono f32 samples at 16 kHz.

WAV, MP3, FLAC, OGG with Vorbis or Opus, of any rate and number of channels, told apart by their
first bytes: a client's word on the format is not needed. Decoded in blocks, so that a file which
claims to be long costs no more than the bound.
"""

from __future__ import annotations

import io

import numpy as np

from golem_core.media.errors import MediaError, need, one_line
from golem_core.media.hush import hushed

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
        with hushed(), soundfile.SoundFile(io.BytesIO(data)) as file:
            return _read(file, seconds)
    except MediaError:
        raise
    except soundfile.LibsndfileError as error:
        text = one_line(error).rpartition(": ")[2]
        raise MediaError(f"a recording that cannot be decoded: {text} {KNOWN}") from None
    # As with pictures: whatever else a decoder of foreign bytes raises is said in one way.
    except Exception as error:
        raise MediaError(f"a recording that cannot be decoded: {one_line(error)}") from None


def sound_of(samples: np.ndarray, rate: int) -> np.ndarray:
    """A recording that a program holds, as ``decode_sound`` gives one.

    samples: (n,) or (n, channels), floats, or whole numbers of which the largest is loudest. rate:
    samples a second. Raises MediaError.
    """
    if samples.ndim not in (1, 2) or not samples.size or samples.shape[1:] > (CHANNELS,):
        raise MediaError(
            f"an array of the shape {samples.shape} is no recording: it has samples, and up to "
            f"{CHANNELS} channels beside each other"
        )
    _check_rate(rate)
    if samples.dtype.kind == "f":
        values = samples.astype(np.float32)
    elif samples.dtype in (np.int16, np.int32):
        values = samples.astype(np.float32) / -float(np.iinfo(samples.dtype).min)
    else:
        raise MediaError(f"a recording of {samples.dtype} samples: they are floats, int16 or int32")
    mono = values if values.ndim == 1 else values.mean(axis=1, dtype=np.float32)
    return resample(_finite(mono), rate)


def check_seconds(samples: np.ndarray, most: float) -> None:
    """Refuses a recording at 16 kHz that is longer. Raises MediaError."""
    if len(samples) > int(most * RATE):
        raise _too_long(most)


def _too_long(most: float) -> MediaError:
    return MediaError(f"a recording of more than {most:g} seconds, which is the longest")


def _check_rate(rate: int, channels: int = 1) -> None:
    if not 1000 <= rate <= 768000 or not 1 <= channels <= CHANNELS:
        raise MediaError(f"a recording of {channels} channels at {rate} Hz")


def _finite(mono: np.ndarray) -> np.ndarray:
    if not np.isfinite(mono).all():
        raise MediaError("a recording with samples that are no numbers")
    return mono


def _read(file, seconds: float) -> np.ndarray:
    """Mono samples at 16 kHz: no more of the file's own are in memory than a block."""
    rate, channels = file.samplerate, file.channels
    if file.format not in FORMATS:
        raise MediaError(f"a recording of the kind {file.format}; {KNOWN}")
    _check_rate(rate, channels)
    turned = _Resampler(rate)
    most, count = int(seconds * rate), 0
    parts = []
    while True:
        block = file.read(BLOCK, dtype="float32", always_2d=True)
        if not len(block):
            break
        count += len(block)
        if count > most:
            raise _too_long(seconds)
        with np.errstate(all="ignore"):  # of numbers that are none, which are refused
            parts.append(turned(_finite(block.mean(axis=1, dtype=np.float32))))
    if not count:
        raise MediaError("a recording without a sample")
    return np.concatenate([*parts, turned.rest()])


class _Resampler:
    """Samples of a rate at 16 kHz, block by block: the same as all at once, and at least one."""

    def __init__(self, rate: int):
        self._stream = None
        if rate != RATE:
            soxr = need("soxr", "a recording that is not at 16 kHz")
            self._stream = soxr.ResampleStream(rate, RATE, 1, dtype="float32")
        self._first = None  # sample
        self._made = 0

    def __call__(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
        if self._first is None:
            self._first = samples[:1]
        if self._stream is None:
            return samples
        made = self._stream.resample_chunk(samples, last=last)
        self._made += len(made)
        return np.ascontiguousarray(made, np.float32)

    def rest(self) -> np.ndarray:
        """What is still to come after the last block."""
        made = self(np.zeros(0, np.float32), last=True)
        return made if self._stream is None or self._made else self._first


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """Samples (n,) f32 of another rate at 16 kHz; at least one."""
    turned = _Resampler(rate)
    return np.concatenate([turned(samples), turned.rest()])
