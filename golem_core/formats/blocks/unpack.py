"""What the decoders of several block types share: scales and packed codes out of raw blocks.

Every function takes blocks as u8 arrays ``(n, bytes of a block)`` and returns one row per block.
"""

import numpy as np

# Codes of IQ4_NL and IQ4_XS, and of MXFP4 (e2m1 numbers, doubled).
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
FP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The f16 at byte ``at`` of each block, as f32 ``(n, 1)``."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def fields(packed: np.ndarray, bits: int, group: int) -> np.ndarray:
    """Codes of ``bits`` bits, stored in groups of ``group`` bytes: u8 ``(n, bytes * 8 / bits)``.

    The lowest bits of a group's bytes are its first ``group`` codes, the next bits the next.
    """
    n, size = packed.shape
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    codes = packed.reshape(n, size // group, 1, group) >> shifts
    codes &= np.uint8((1 << bits) - 1)
    return codes.reshape(n, size * 8 // bits)


def bits(packed: np.ndarray) -> np.ndarray:
    """Single bits, lowest of each byte first: u8 ``(n, bytes * 8)`` of 0 and 1."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def scales_and_mins(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 6-bit scales and minima of Q4_K and Q5_K: ``(n, 12)`` -> two f32 ``(n, 8)``.

    Bytes 0-3 and 4-7 hold the first four scales and minima in their low six bits and, above
    them, the high two bits of the last four, whose low four bits are the nibbles of bytes 8-11.
    """
    low, high, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (rest & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([high & 63, (rest >> 4) | ((high >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def trits(packed: np.ndarray, digits: int) -> np.ndarray:
    """Base-3 digits packed as fractions of 256: ``(n, bytes)`` -> u8 ``(n, digits * bytes)``.

    Digit k of every byte comes before digit k + 1 of any.
    """
    n, size = packed.shape
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:digits, None]
    shifted = packed.reshape(n, 1, size) * powers  # wraps at 256: the digits before k drop out
    return ((shifted.astype(np.uint16) * 3) >> 8).astype(np.uint8).reshape(n, digits * size)
