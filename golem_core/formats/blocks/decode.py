"""Block types to f32, by their definition: what every kernel is measured against.

Each decoder maps blocks u8 ``(n, bytes)`` to f32 ``(n, weights)``; the order of the roundings is
that of the ``gguf`` package, so the results are equal bit for bit.
"""

from collections.abc import Callable

import numpy as np

from golem_core.formats.blocks.types import BlockType, resolve
from golem_core.formats.blocks.unpack import (
    FP4_VALUES,
    IQ4_VALUES,
    bits,
    fields,
    half,
    scales_and_mins,
    trits,
)

_CHUNK = 1 << 18  # weights decoded at a time: temporaries stay in the cache


def dequantise(data: np.ndarray, type: BlockType | str) -> np.ndarray:
    """u8 ``(..., row bytes)`` of ``type`` -> f32 ``(..., row weights)``.

    F32 data comes back as a view where its layout allows; everything else is a new array.
    ``ValueError`` when the rows are no whole number of blocks.
    """
    kind = resolve(type)
    raw = np.asarray(data)
    if raw.dtype != np.uint8 or raw.ndim == 0:
        raise ValueError(f"dequantise takes u8 rows, not {raw.dtype} of shape {raw.shape}")
    shape = (*raw.shape[:-1], kind.row_weights(raw.shape[-1]))
    if kind.name == "F32":
        return np.ascontiguousarray(raw).view("<f4").reshape(shape)
    blocks = raw.reshape(-1, kind.bytes)
    out = np.empty((len(blocks), kind.weights), np.float32)
    decode = _DECODERS[kind.name]
    step = _CHUNK // kind.weights
    with np.errstate(all="ignore"):  # a damaged file may hold infinite scales
        for at in range(0, len(blocks), step):
            out[at : at + step] = decode(blocks[at : at + step])
    return out.reshape(shape)


def _f16(blocks: np.ndarray) -> np.ndarray:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: np.ndarray) -> np.ndarray:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * (fields(blocks[:, 2:], 4, 16).astype(np.float32) - 8)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * fields(blocks[:, 4:], 4, 16).astype(np.float32) + half(blocks, 2)


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    codes = fields(blocks[:, 6:], 4, 16) | (bits(blocks[:, 2:6]) << 4)
    return half(blocks, 0) * (codes.astype(np.float32) - 16)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    codes = fields(blocks[:, 8:], 4, 16) | (bits(blocks[:, 4:8]) << 4)
    return half(blocks, 0) * codes.astype(np.float32) + half(blocks, 2)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _iq4_nl(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * IQ4_VALUES[fields(blocks[:, 2:], 4, 16)]


def _mxfp4(blocks: np.ndarray) -> np.ndarray:
    return power_of_two(blocks[:, :1]) * FP4_VALUES[fields(blocks[:, 1:], 4, 16)]


def power_of_two(exponent: np.ndarray) -> np.ndarray:
    """MXFP4's scale ``2 ** (e - 128)`` as f32; e 0 and 1 are subnormal."""
    e = exponent.astype(np.uint32)
    return np.where(e < 2, np.uint32(0x00200000) << e, (e - 1) << 23).view(np.float32)


def _q1_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * (bits(blocks[:, 2:]).astype(np.float32) * 2 - 1)


def _q2_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * (fields(blocks[:, 2:], 2, 1).astype(np.float32) - 1)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    scales = half(blocks, 80) * (blocks[:, :16] & 15).astype(np.float32)
    minima = half(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    codes = fields(blocks[:, 16:80], 2, 32).reshape(-1, 16, 16).astype(np.float32)
    return (scales[:, :, None] * codes - minima[:, :, None]).reshape(-1, 256)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    codes = fields(blocks[:, 32:96], 2, 32) | (fields(blocks[:, :32], 1, 32) << 2)
    packed = blocks[:, 96:108]
    scales = fields(packed[:, :8], 4, 8) | (fields(packed[:, 8:], 2, 4) << 4)
    scaled = half(blocks, 108) * (scales.astype(np.float32) - 32)
    centred = codes.astype(np.float32).reshape(-1, 16, 16) - 4
    return (scaled[:, :, None] * centred).reshape(-1, 256)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    return _with_minima(blocks, fields(blocks[:, 16:], 4, 32))


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    return _with_minima(
        blocks, fields(blocks[:, 48:], 4, 32) | (fields(blocks[:, 16:48], 1, 32) << 4)
    )


def _with_minima(blocks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Q4_K and Q5_K once their codes are one byte each: d * scale * code - dmin * minimum."""
    scales, minima = scales_and_mins(blocks[:, 4:16])
    scaled = (half(blocks, 0) * scales)[:, :, None]
    offset = (half(blocks, 2) * minima)[:, :, None]
    return (scaled * codes.reshape(-1, 8, 32).astype(np.float32) - offset).reshape(-1, 256)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    codes = fields(blocks[:, :128], 4, 64) | (fields(blocks[:, 128:192], 2, 32) << 4)
    scaled = half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    centred = codes.astype(np.float32).reshape(-1, 16, 16) - 32
    return (scaled[:, :, None] * centred).reshape(-1, 256)


def _iq4_xs(blocks: np.ndarray) -> np.ndarray:
    low = fields(blocks[:, 4:8], 4, 1)
    high = fields(blocks[:, 2:4], 2, 1)
    scaled = half(blocks, 0) * ((low | (high << 4)).astype(np.float32) - 32)
    codes = IQ4_VALUES[fields(blocks[:, 8:], 4, 16)].reshape(-1, 8, 32)
    return (scaled[:, :, None] * codes).reshape(-1, 256)


def _tq1_0(blocks: np.ndarray) -> np.ndarray:
    digits = (trits(blocks[:, :32], 5), trits(blocks[:, 32:48], 5), trits(blocks[:, 48:52], 4))
    return half(blocks, 52) * (np.concatenate(digits, axis=1).astype(np.float32) - 1)


def _tq2_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 64) * (fields(blocks[:, :64], 2, 32).astype(np.float32) - 1)


def _ptq1_0(blocks: np.ndarray) -> np.ndarray:
    digits = (trits(blocks[:, :16], 5), trits(blocks[:, 16:24], 5), trits(blocks[:, 24:26], 4))
    return half(blocks, 26) * (np.concatenate(digits, axis=1).astype(np.float32) - 1)


_DECODERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
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
