"""Random weights of any block type, for tests of kernels and for models of a real shape.

Codes are random bytes, so nothing is quantised and every code a type allows occurs; only the
scales are chosen, so that the values have the spread that is asked for.
"""

import functools
import math

import numpy as np

from golem_core.formats.blocks.decode import dequantise
from golem_core.formats.blocks.encode import quantise
from golem_core.formats.blocks.types import BlockType, resolve

# Where a block's f16 scale lies, and the f16 offset with the multiple of the scale that centres
# the values on zero.
_SCALE = {
    "Q4_0": 0,
    "Q4_1": 0,
    "Q5_0": 0,
    "Q5_1": 0,
    "Q8_0": 0,
    "Q2_K": 80,
    "Q3_K": 108,
    "Q4_K": 0,
    "Q5_K": 0,
    "Q6_K": 208,
    "IQ4_NL": 0,
    "IQ4_XS": 0,
    "TQ1_0": 52,
    "TQ2_0": 64,
    "Q1_0": 0,
    "Q2_0": 0,
    "PQ2_0": 0,
    "PTQ1_0": 26,
}
_OFFSET = {
    "Q4_1": (2, -7.5),
    "Q5_1": (2, -15.5),
    "Q2_K": (82, 1.5),
    "Q4_K": (2, 7.5),
    "Q5_K": (2, 15.5),
}
_PLAIN = ("F32", "F16", "BF16")


def random_blocks(
    shape: tuple[int, ...], type: BlockType | str, rng: np.random.Generator, std: float = 0.02
) -> np.ndarray:
    """Blocks of ``type`` for weights of ``shape`` (out, in): u8 ``(out, row bytes)``.

    The values have mean 0 and standard deviation ``std`` but for the resolution of an f16 scale;
    F32, F16 and BF16 are normal, the others roughly so.
    """
    kind = resolve(type)
    if kind.name in _PLAIN:
        values = rng.standard_normal(shape, np.float32)
        values *= np.float32(std)
        return quantise(values, kind)
    rows = (*shape[:-1], kind.row_bytes(shape[-1]))
    blocks = _random_bytes(math.prod(rows), rng).reshape(-1, kind.bytes)
    if kind.name == "MXFP4":
        _set_exponents(blocks, std, rng)
    else:
        # Scales of 0.5 to 1.5 times their middle, of either sign: mean square 13 / 12.
        spread = rng.random((len(blocks), 1), np.float32) + np.float32(0.5)
        spread *= rng.integers(0, 2, spread.shape, np.int8) * np.int8(2) - np.int8(1)
        spread *= np.float32(std / (math.sqrt(13 / 12) * _unit_spread(kind)))
        _set_scales(blocks, kind, spread)
    return blocks.reshape(rows)


def _random_bytes(count: int, rng: np.random.Generator) -> np.ndarray:
    words = rng.integers(0, 1 << 64, -(-count // 8), np.uint64)
    return words.view(np.uint8)[:count]


def _set_scales(blocks: np.ndarray, kind: BlockType, scales: np.ndarray) -> None:
    """Write f32 scales ``(n, 1)`` and the offsets that follow from them into the blocks."""
    at = _SCALE[kind.name]
    stored = scales.astype("<f2")
    blocks[:, at : at + 2] = stored.view(np.uint8)
    if kind.name in _OFFSET:
        at, multiple = _OFFSET[kind.name]
        offsets = (stored.astype(np.float32) * np.float32(multiple)).astype("<f2")
        blocks[:, at : at + 2] = offsets.view(np.uint8)


@functools.cache
def _unit_spread(kind: BlockType) -> float:
    """The root mean square of values whose codes are random and whose scale is 1."""
    sample = _random_bytes(4096 * kind.bytes, np.random.default_rng(0)).reshape(-1, kind.bytes)
    _set_scales(sample, kind, np.ones((len(sample), 1), np.float32))
    return float(np.sqrt(np.mean(np.square(dequantise(sample, kind), dtype=np.float64))))


def _set_exponents(blocks: np.ndarray, std: float, rng: np.random.Generator) -> None:
    """Give MXFP4 blocks the two powers of two beside the wanted scale, in the right proportion."""
    unit = math.sqrt(34.25)  # of its sixteen values at scale 1
    power = math.floor(math.log2(std / unit))
    share = ((std / unit / 2.0**power) ** 2 - 1) / 3
    blocks[:, 0] = 128 + power + (rng.random(len(blocks), np.float32) < share)
