"""f32 to block types, by rounding to the nearest code of simply chosen scales.

For tests and tools: llama.cpp searches for better scales where the K types are concerned. Types
the ``gguf`` package can quantise come out as there, bit for bit.
"""

from collections.abc import Callable

import numpy as np

from golem_core.formats.blocks.decode import power_of_two
from golem_core.formats.blocks.types import BlockType, resolve
from golem_core.formats.blocks.unpack import FP4_VALUES, IQ4_VALUES

_CHUNK = 1 << 18  # weights encoded at a time


def quantise(x: np.ndarray, type: BlockType | str) -> np.ndarray:
    """f32 ``(..., weights)`` -> u8 ``(..., row bytes)`` of ``type``.

    ``ValueError`` when a row is no whole number of blocks. The values must be finite.
    """
    kind = resolve(type)
    values = np.asarray(x, np.float32)
    shape = (*values.shape[:-1], kind.row_bytes(values.shape[-1]))
    blocks = values.reshape(-1, kind.weights)
    out = np.empty((len(blocks), kind.bytes), np.uint8)
    step = _CHUNK // kind.weights
    for at in range(0, len(blocks), step):
        out[at : at + step] = _ENCODERS[kind.name](blocks[at : at + step])
    return out.reshape(shape)


def _half(values: np.ndarray) -> np.ndarray:
    """Numbers as the bytes of their nearest f16."""
    return values.astype("<f2").view(np.uint8)


def _as_stored(scale: np.ndarray) -> np.ndarray:
    """What is left of an f32 scale once it is an f16."""
    return scale.astype(np.float16).astype(np.float32)


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, and 0 where a block is all zeros."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _largest(blocks: np.ndarray) -> np.ndarray:
    """The signed value of largest magnitude along the last axis, kept as an axis of one."""
    at = np.abs(blocks).argmax(axis=-1, keepdims=True)
    return np.take_along_axis(blocks, at, axis=-1)


def _away(x: np.ndarray) -> np.ndarray:
    """Nearest integers, halves away from zero."""
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)


def _codes(x: np.ndarray, scale: np.ndarray, low: int, high: int) -> np.ndarray:
    """``x / scale`` rounded into low .. high, counted from low: u8."""
    return (np.clip(np.rint(x * _inverse(scale)), low, high) - low).astype(np.uint8)


def _fields(codes: np.ndarray, bits: int, group: int) -> np.ndarray:
    """The inverse of `unpack.fields`: codes u8 -> bytes, eight over ``bits`` codes in each."""
    parts = codes.reshape(len(codes), -1, 8 // bits, group)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.bitwise_or.reduce(parts << shifts, axis=2).reshape(len(codes), -1)


def _bits(flags: np.ndarray) -> np.ndarray:
    return np.packbits(flags, axis=1, bitorder="little")


def _join(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, axis=1)


def _f32(blocks: np.ndarray) -> np.ndarray:
    return blocks.astype("<f4").view(np.uint8)


def _f16(blocks: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return _half(blocks)


def _bf16(blocks: np.ndarray) -> np.ndarray:
    bits = blocks.view(np.uint32)
    even = (bits >> 16) & 1  # halves go to the even neighbour
    rounded = (bits + (np.uint32(0x7FFF) + even)) >> 16
    quiet = (bits >> 16) | 64  # a NaN must not round up to infinity
    return np.where(np.isnan(blocks), quiet, rounded).astype("<u2").view(np.uint8)


def _symmetric(blocks: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and codes of Q4_0 and Q5_0: the largest value becomes the lowest code."""
    d = _largest(blocks) / -levels
    codes = np.trunc(blocks * _inverse(d) + np.float32(levels + 0.5))
    return d, np.clip(codes, 0, 2 * levels - 1).astype(np.uint8)


def _ranged(blocks: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, minimum and codes of Q4_1 and Q5_1: the codes span least to greatest."""
    low = blocks.min(axis=1, keepdims=True)
    d = (blocks.max(axis=1, keepdims=True) - low) / np.float32(top)
    codes = np.trunc((blocks - low) * _inverse(d) + np.float32(0.5))
    return d, low, np.clip(codes, 0, top).astype(np.uint8)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    d, codes = _symmetric(blocks, 8)
    return _join(_half(d), _fields(codes, 4, 16))


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    d, low, codes = _ranged(blocks, 15)
    return _join(_half(d), _half(low), _fields(codes, 4, 16))


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    d, codes = _symmetric(blocks, 16)
    return _join(_half(d), _bits(codes >> 4), _fields(codes & 15, 4, 16))


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    d, low, codes = _ranged(blocks, 31)
    return _join(_half(d), _half(low), _bits(codes >> 4), _fields(codes & 15, 4, 16))


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    return _join(_half(d), _away(blocks * _inverse(d)).astype(np.int8).view(np.uint8))


def _q1_0(blocks: np.ndarray) -> np.ndarray:
    # The mean magnitude, summed in order as llama.cpp does: numpy's own sum rounds otherwise.
    d = np.cumsum(np.abs(blocks), axis=1, dtype=np.float32)[:, -1:] / np.float32(blocks.shape[1])
    return _join(_half(d), _bits(blocks >= 0))


def _ternary(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest magnitude, and codes 0, 1, 2 for -1, 0, +1 times it."""
    d = np.abs(blocks).max(axis=1, keepdims=True)
    return d, (_away(blocks * _inverse(d)) + 1).astype(np.uint8)


def _q2_0(blocks: np.ndarray) -> np.ndarray:
    d, codes = _ternary(blocks)
    return _join(_half(d), _fields(codes, 2, 1))


def _tq2_0(blocks: np.ndarray) -> np.ndarray:
    d, codes = _ternary(blocks)
    return _join(_fields(codes, 2, 32), _half(d))


def _trits(codes: np.ndarray, digits: int) -> np.ndarray:
    """The inverse of `unpack.trits`; fewer than five digits are followed by zeros."""
    powers = np.array([81, 27, 9, 3, 1], np.uint16)[:digits, None]
    value = (codes.reshape(len(codes), digits, -1) * powers).sum(axis=1)
    return ((value * 256 + 242) // 243).astype(np.uint8)


def _tq1_0(blocks: np.ndarray) -> np.ndarray:
    d, codes = _ternary(blocks)
    parts = (_trits(codes[:, :160], 5), _trits(codes[:, 160:240], 5), _trits(codes[:, 240:], 4))
    return _join(*parts, _half(d))


def _ptq1_0(blocks: np.ndarray) -> np.ndarray:
    d, codes = _ternary(blocks)
    parts = (_trits(codes[:, :80], 5), _trits(codes[:, 80:120], 5), _trits(codes[:, 120:], 4))
    return _join(*parts, _half(d))


def _nearest(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Index into ``table`` of the entry nearest each value, the first of equals: u8."""
    best = np.zeros(values.shape, np.uint8)
    least = np.abs(values - table[0])
    for index, entry in enumerate(table[1:], 1):
        error = np.abs(values - entry)
        better = error < least
        best[better] = index
        np.minimum(error, least, out=least)
    return best


def _iq4_nl(blocks: np.ndarray) -> np.ndarray:
    d = _largest(blocks) / -127
    return _join(_half(d), _fields(_nearest(blocks * _inverse(d), IQ4_VALUES), 4, 16))


def _mxfp4(blocks: np.ndarray) -> np.ndarray:
    peak = np.abs(blocks).max(axis=1, keepdims=True)
    exponent = np.floor(np.log2(np.where(peak > 0, peak, 1))) + (127 - 2)
    e = np.where(peak > 0, np.clip(exponent, 0, 254), 0).astype(np.uint8)
    scaled = power_of_two(e)
    # Compared as products, not quotients: ties then fall as the format's other writers have them.
    codes = np.zeros(blocks.shape, np.uint8)
    least = np.abs(blocks)
    for index, entry in enumerate(FP4_VALUES[1:], 1):
        error = np.abs(scaled * entry - blocks)
        codes[error < least] = index
        np.minimum(error, least, out=least)
    return _join(e, _fields(codes, 4, 16))


def _two_level(scales: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Positive scales ``(n, k)`` as codes 0 .. top times an f16: f32 ``(n, 1)``, u8 ``(n, k)``."""
    d = scales.max(axis=1, keepdims=True) / np.float32(top)
    return d, _codes(scales, _as_stored(d), 0, top)


def _signed_two_level(scales: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Signed scales ``(n, k)`` as codes -levels .. levels - 1 times an f16: f32, f32 codes."""
    d = _largest(scales) / -levels
    return d, _codes(scales, _as_stored(d), -levels, levels - 1).astype(np.float32) - levels


def _with_minima(blocks: np.ndarray, size: int, top: int, scale_top: int) -> tuple[np.ndarray, ...]:
    """d, dmin, scales, minima and codes where value = d * scale * code - dmin * minimum.

    ``size`` weights share a scale and a minimum; codes reach ``top``, scales ``scale_top``.
    """
    parts = blocks.reshape(len(blocks), -1, size)
    low = np.minimum(parts.min(axis=2), 0)
    d, scales = _two_level((np.maximum(parts.max(axis=2), 0) - low) / np.float32(top), scale_top)
    dmin, minima = _two_level(-low, scale_top)
    offset = _as_stored(dmin) * minima
    codes = _codes(parts + offset[:, :, None], (_as_stored(d) * scales)[:, :, None], 0, top)
    return d, dmin, scales, minima, codes.reshape(blocks.shape)


def _packed_scales(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """The inverse of `unpack.scales_and_mins`: two u8 ``(n, 8)`` of 6 bits -> ``(n, 12)``."""
    low = scales[:, :4] | ((scales[:, 4:] >> 4) << 6)
    high = minima[:, :4] | ((minima[:, 4:] >> 4) << 6)
    return _join(low, high, (scales[:, 4:] & 15) | (minima[:, 4:] << 4))


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    d, dmin, scales, minima, codes = _with_minima(blocks, 16, 3, 15)
    return _join(scales | (minima << 4), _fields(codes, 2, 32), _half(d), _half(dmin))


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    d, dmin, scales, minima, codes = _with_minima(blocks, 32, 15, 63)
    return _join(_half(d), _half(dmin), _packed_scales(scales, minima), _fields(codes, 4, 32))


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    d, dmin, scales, minima, codes = _with_minima(blocks, 32, 31, 63)
    packed = _packed_scales(scales, minima)
    low = _fields(codes & 15, 4, 32)
    return _join(_half(d), _half(dmin), packed, _fields(codes >> 4, 1, 32), low)


def _centred(
    blocks: np.ndarray, size: int, levels: int, scale_levels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """d, scales (f32) and codes where value = d * scale * (code - levels)."""
    parts = blocks.reshape(len(blocks), -1, size)
    d, scales = _signed_two_level(_largest(parts)[:, :, 0] / -levels, scale_levels)
    codes = _codes(parts, (_as_stored(d) * scales)[:, :, None], -levels, levels - 1)
    return d, scales, codes.reshape(blocks.shape)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    d, scales, codes = _centred(blocks, 16, 4, 32)
    stored = (scales + 32).astype(np.uint8)
    packed = _join(_fields(stored & 15, 4, 8), _fields(stored >> 4, 2, 4))
    return _join(_fields(codes >> 2, 1, 32), _fields(codes & 3, 2, 32), packed, _half(d))


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    d, scales, codes = _centred(blocks, 16, 32, 128)
    low, high = _fields(codes & 15, 4, 64), _fields(codes >> 4, 2, 32)
    return _join(low, high, scales.astype(np.int8).view(np.uint8), _half(d))


def _iq4_xs(blocks: np.ndarray) -> np.ndarray:
    parts = blocks.reshape(len(blocks), 8, 32)
    d, scales = _signed_two_level(_largest(parts)[:, :, 0] / -127, 32)
    inverse = _inverse(_as_stored(d) * scales)[:, :, None]
    codes = _nearest(parts * inverse, IQ4_VALUES).reshape(blocks.shape)
    stored = (scales + 32).astype(np.uint8)
    high, low = _fields(stored >> 4, 2, 1), _fields(stored & 15, 4, 1)
    return _join(_half(d), high, low, _fields(codes, 4, 16))


_ENCODERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "Q1_0": _q1_0,
    "Q2_0": _q2_0,
    "PQ2_0": _q2_0,
    "PTQ1_0": _ptq1_0,
}
