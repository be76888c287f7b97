"""Matrices, columns and their exact products, for the tests of the linear kernels."""

import numpy as np
import pytest

from golem_core.cpu import _linear as linear
from golem_core.formats.blocks import by_id, dequantise

ISAS = linear.ISAS
TILED = ("amx", "amx_emulated")  # sets with prompt columns as linear_tiles.h has them
TYPES = {name: (id, block, size, codes) for id, name, block, size, codes in linear.types()}
CODE_TYPES = [name for name, (*_, codes) in TYPES.items() if codes]
FLOAT_TYPES = [name for name, (*_, codes) in TYPES.items() if not codes]

# Bytes of a block that hold an f16.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "Q1_0": [0], "Q2_0": [0], "PQ2_0": [0],
    "PTQ1_0": [26],
}  # fmt: skip

# Other bytes of a block that hold scales.
SCALES = {
    "Q2_K": slice(0, 16), "Q3_K": slice(96, 108), "Q4_K": slice(4, 16), "Q5_K": slice(4, 16),
    "Q6_K": slice(192, 208), "IQ4_XS": slice(2, 8), "MXFP4": slice(0, 1),
}  # fmt: skip
LEVELS = {"Q4_1": 16, "Q5_1": 32, "Q2_K": 4, "Q4_K": 16, "Q5_K": 32}  # codes, where from a minimum
# What AVX-512's prompt kernels take for the largest weight, as a multiple of what a code can be.
ROOM = {"MXFP4": 16 / 12, "IQ4_NL": 128 / 127, "IQ4_XS": 128 / 127, "Q1_0": 2} | dict.fromkeys(
    ("Q2_0", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0"), 4
)


def need(isa: str) -> None:
    """Skips a test of an instruction set this processor lacks."""
    if not linear.runs(isa):
        pytest.skip(f"this processor has no {isa}")


def random_rows(name: str, rows: int, width: int, rng, scale: float | None = None) -> np.ndarray:
    """File rows u8 of random codes; scales about ``scale``, or all equal to it when it is given."""
    _, block, size, codes = TYPES[name]
    if not codes:
        x = rng.standard_normal((rows, width)).astype(np.float32)
        if name == "F16":
            return x.astype(np.float16).view(np.uint8)
        if name == "BF16":
            return np.ascontiguousarray((x.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)
        return x.view(np.uint8)
    data = rng.integers(0, 256, (rows, width // block, size), dtype=np.uint8)
    for at in HALVES[name]:
        values = (
            rng.uniform(-0.02, 0.02, data.shape[:2])
            if scale is None
            else np.full(data.shape[:2], scale)
        )
        data[:, :, at : at + 2] = values.astype("<f2")[..., None].view(np.uint8)
    if name == "MXFP4":
        data[:, :, 0] = rng.integers(118, 130, data.shape[:2])
    return data.reshape(rows, -1)


def values(name: str, rows: np.ndarray) -> np.ndarray:
    """Weights f32 of file rows, by the numpy dequantiser."""
    return dequantise(rows, by_id(TYPES[name][0]))


def aligned(size: int, dtype=np.uint8) -> np.ndarray:
    """A zeroed array of ``size`` bytes that starts at a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:size].view(dtype)


def pack(name: str, rows: np.ndarray, width: int) -> np.ndarray:
    """Groups of the repacked matrix."""
    id = TYPES[name][0]
    out = aligned(linear.group_bytes(id, width) * -(-len(rows) // 16))
    linear.repack(id, rows, width, out)
    return out


def records(x: np.ndarray, isa: str = "portable", how: str = "drawn") -> np.ndarray:
    """Columns f32 (n, in), quantised as ``linear.quantise`` has it: u8 (in / 32, records, bytes of
    a record)."""
    n, width = x.shape
    wide = {"prompt": linear.prompt_records(isa), "precise": 2}.get(how, 1)
    out = np.zeros((width // 32, n * wide, linear.Q8_BYTES), np.uint8)
    linear.quantise(isa, x, out.reshape(-1), how)
    return out


def parts(q: np.ndarray, isa: str = "portable", prompt: bool = False) -> dict[str, np.ndarray]:
    """Fields of records: d, minus (blocks, n, 2), s and what it is rounded to (blocks, n),
    q (blocks, n, 2, 16).

    AVX-512 and AVX2 have prompt columns in forms of their own, which linear_avx512_prompt.h and
    linear_avx2_prompt.h describe.
    """
    d, s = q[..., 0:8].copy().view("<f4"), q[..., 8:12].copy().view("<f4")[..., 0]
    minus = q[..., 16:24].copy().view("<i4")
    s_step = np.zeros_like(s)
    if prompt and isa == "avx512":
        base, e = q[..., 12:16].copy().view("<f4").astype(np.float64), d.view("<i4")
        start, sums = minus, q[..., 8:12].copy().view("<i2").astype(np.int64)
        minus = (start - np.where(e < 32, 2**14 >> np.minimum(e, 31), 0)) // 128
        np.testing.assert_array_equal(sums[1::2, :, 0], sums[: len(sums) // 2 * 2 : 2, :, 1])
        with np.errstate(invalid="ignore"):  # NaN times what a damaged block has for a shift
            d, s_step = base * 2.0**e, 512 * base[..., 0]
            s = sums[..., 1] * s_step
    if prompt and isa == "avx2":
        base, m = q[..., 12:16].copy().view("<f4").astype(np.float64), d.view("<i4")
        np.testing.assert_array_equal(m >> 16, m & 0xFFFF)
        with np.errstate(invalid="ignore"):
            halves = minus.view("<f4").astype(np.float64)
            np.testing.assert_array_equal(halves.sum(axis=-1), s)
            d, s = base * (m & 0xFFFF), s * base[..., 0]
        minus = -np.rint(halves / np.maximum(m & 0xFFFF, 1)).astype(np.int64)
    return {
        "d": d,
        "s": s,
        "s_step": s_step,
        "minus": minus,
        "q": q[..., 24:56].copy().view(np.int8).reshape(*q.shape[:2], 2, 16),
    }


def columns_of(q: np.ndarray, isa: str = "portable", prompt: bool = False) -> np.ndarray:
    """The columns records stand for, in f64: (n, in)."""
    if prompt and isa in TILED:
        return tile_columns_of(q)
    f = parts(q, isa, prompt)
    x = f["d"].astype(np.float64)[..., None] * f["q"]
    return x.transpose(1, 0, 2, 3).reshape(q.shape[1], -1)


def tile_columns_of(q: np.ndarray) -> np.ndarray:
    """The same of the prompt columns of linear_tiles.h: base · (4 · high + low)."""
    whole = q.reshape(len(q), -1, 2 * linear.Q8_BYTES)
    code = whole[..., :64].copy().view(np.int8).reshape(*whole.shape[:2], 2, 2, 16)
    base = whole[..., 64:68].copy().view("<f4").astype(np.float64)[..., None]
    v = 4 * code[..., 0, :].astype(np.int64) + code[..., 1, :]
    sums = whole[..., 68:80].copy().view("<f4")
    np.testing.assert_array_equal(sums[..., :2], v.sum(axis=-1))
    np.testing.assert_array_equal(sums[..., 2], v.sum(axis=(-2, -1)))
    return (base * v).transpose(1, 0, 2, 3).reshape(whole.shape[1], -1)


def precise_parts(q: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Fields of the first and of the second records of precise columns of AVX2. The second ones'
    steps and sums are 1/128 of the first ones' base."""
    first, second = np.split(q, 2, axis=1)
    fine = second.copy()
    base = first[..., 12:16].copy().view("<f4") / np.float32(128)
    fine[..., 12:16] = base.view(np.uint8)
    sums = [slice(8, 12), slice(16, 20), slice(20, 24)]
    for at in sums:
        fine[..., at] = (fine[..., at].copy().view("<f4") * np.float32(128)).view(np.uint8)
    return [parts(first, "avx2", prompt=True), parts(fine, "avx2", prompt=True)]


def prepare(
    name: str, x: np.ndarray, how: str = "one", isa: str = "portable"
) -> tuple[np.ndarray, np.ndarray]:
    """What a set's kernels of a type take for columns x, and the f64 values it stands for."""
    if TYPES[name][3] and how == "precise":
        q = records(x, isa, how)
        made = [f["d"][..., None] * f["q"] for f in precise_parts(q)]
        return q, sum(made).transpose(1, 0, 2, 3).reshape(x.shape)
    if TYPES[name][3]:
        prompt = how == "prompt"
        q = records(x, isa, "prompt" if prompt else "drawn")
        return q, columns_of(q, isa, prompt)
    return x, x.astype(np.float64)


def spans(name: str, rows: np.ndarray) -> np.ndarray:
    """For every weight, f64, the most a code of its scale can stand for, counted from the middle
    code where there is a minimum; or what the middle stands for, if that is more."""
    size, shape = TYPES[name][2], values(name, rows).shape
    scale = np.zeros(size, bool)
    scale[[at + i for at in HALVES[name] for i in (0, 1)]] = True
    scale[SCALES.get(name, slice(0))] = True

    def filled(byte: int) -> np.ndarray:
        blocks = np.where(scale, rows.reshape(-1, size), np.uint8(byte))
        return values(name, blocks.reshape(rows.shape)).astype(np.float64).reshape(shape)

    if name in LEVELS:
        low, high = filled(0x00), filled(0xFF)
        half = (high - low) / (LEVELS[name] - 1) * LEVELS[name] / 2
        return np.maximum(np.abs(half), np.abs(low + half))
    most = np.max([np.abs(filled(byte)) for byte in (0x00, 0xFF, 0x7F, 0x80, 0x77)], axis=0)
    return most * ROOM.get(name, 1)


def prompt_loss(isa: str, name: str, rows: np.ndarray, columns: np.ndarray):
    """What a set's prompt kernel may lose of products (columns, rows) by rounding of its own: at
    the most, and as a standard deviation where nothing is known of the roundings.

    AVX-512 has sums of 32 products in whole steps of 1/32768 of what they could be: 4 times (and
    1/256 more) the largest of the 256 values' sums of 16 magnitudes, times the weights' span. It
    has scales in whole steps of the largest. Halves have half the sums, and twice as many. A sum is
    off by half a step, or a whole one where nothing rounds it. Minima lose as much again.
    """
    worst, square = np.zeros((2, len(columns), len(rows)))
    if isa != "avx512" or not TYPES[name][3]:
        return worst, np.sqrt(square)
    span, minima = spans(name, rows), name in LEVELS
    most = 8160 >> (minima + (name in ("Q2_K", "Q3_K", "Q6_K")))
    for at in range(0, columns.shape[1], 256):
        part = np.abs(columns[:, at : at + 256])
        largest = part.reshape(len(part), -1, 16).sum(axis=2).max(axis=1)
        unit = np.outer(largest, span[:, at : at + 256].max(axis=1))
        count, step, scale = part.shape[1] / 32, 4.02 / 32768, 2 / most
        worst += unit * count * (step + scale / 2) * (1 + minima)
        square += unit**2 * count * (step**2 + scale**2) / 12 * (1 + minima)
    return worst, np.sqrt(square)


def product(
    isa: str, name: str, groups, width: int, columns, c0: int, nc: int, how: str = "one"
) -> np.ndarray:
    """Rows of all groups times nc columns, by ``linear.dot``: f32 (nc, 16 groups)."""
    id = TYPES[name][0]
    out = np.full((len(groups) // linear.group_bytes(id, width), nc, 16), np.nan, np.float32)
    linear.dot(isa, id, groups, width, columns, c0, nc, out, how)
    return out.transpose(1, 0, 2).reshape(nc, -1)
