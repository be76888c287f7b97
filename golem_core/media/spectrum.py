"""The mel spectrum of a recording, as speech encoders take it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Mel:
    """Logarithms of magnitudes in mel bands, frame by frame.

    bands: triangles on the HTK scale between 0 and ``top`` Hz, their peaks 1, taken at the
    frequencies of the transform. window: samples of a frame, under a periodic Hann window and
    filled up with zeros to ``size``. hop: from one frame to the next; half a window of zeros
    stands before the first sample. floor: added before the logarithm.
    """

    bands: int = 128
    rate: int = 16000
    window: int = 320
    hop: int = 160
    size: int = 512
    top: float = 8000.0
    floor: float = 1e-3

    def frames(self, samples: int) -> int:
        """Frames of so many samples: those that lie in them whole, counted from the zeros on."""
        whole = samples + self.window // 2 - self.window - 1
        return max(0, int(whole / self.hop) + 1)  # rounded towards zero, as C divides

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """(samples,) f32 -> (frames, bands) f32."""
        return np.log(self.energies(samples) + self.floor).astype(np.float32)

    def energies(self, samples: np.ndarray) -> np.ndarray:
        """(frames, bands) f64, before the logarithm."""
        count = self.frames(len(samples))
        padded = np.zeros(max(count - 1, 0) * self.hop + self.window, np.float64)
        start = self.window // 2
        taken = samples[: len(padded) - start]
        padded[start : start + len(taken)] = taken
        cut = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop][:count]
        spectrum = np.abs(np.fft.rfft(cut * self._hann, self.size, axis=1))
        return spectrum @ self._triangles

    @cached_property
    def _hann(self) -> np.ndarray:
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)

    @cached_property
    def _triangles(self) -> np.ndarray:
        """(size / 2 + 1, bands)"""

        def mel(frequency):
            return 2595 * np.log10(1 + np.asarray(frequency) / 700)

        edges = 700 * (10 ** (np.linspace(mel(0.0), mel(self.top), self.bands + 2) / 2595) - 1)
        at = np.linspace(0, self.rate / 2, self.size // 2 + 1)[:, None]
        low, peak, high = edges[:-2], edges[1:-1], edges[2:]
        return np.maximum(0, np.minimum((at - low) / (peak - low), (high - at) / (high - peak)))
