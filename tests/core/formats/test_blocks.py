"""Block types: decoders against the gguf package and the formulas, encoders, invented blocks."""

import gguf
import numpy as np
import pytest

from golem_core.formats.blocks import (
    TYPES,
    BlockType,
    by_id,
    by_name,
    dequantise,
    quantise,
    random_blocks,
)
from golem_core.formats.errors import FormatError

OURS_ALONE = {"Q1_0", "Q2_0", "PQ2_0", "PTQ1_0"}  # the gguf package cannot decode these
NAMES = [type.name for type in TYPES.values()]
SHARED = [name for name in NAMES if name not in OURS_ALONE]
ENCODED_THERE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
ENCODED_THERE += ["TQ1_0", "TQ2_0", "MXFP4"]

# Relative rms error of normal weights, a little above what the coding of each type costs.
ERRORS = {"F32": 0, "F16": 3e-4, "BF16": 2e-3, "Q8_0": 6e-3, "Q6_K": 0.02, "Q5_K": 0.04}
ERRORS |= {"Q5_0": 0.045, "Q5_1": 0.04, "Q4_0": 0.09, "Q4_1": 0.08, "Q4_K": 0.08, "Q3_K": 0.16}
ERRORS |= {"IQ4_NL": 0.082, "IQ4_XS": 0.082, "MXFP4": 0.12, "Q2_K": 0.34, "Q1_0": 0.61}
ERRORS |= {"Q2_0": 0.74, "PQ2_0": 0.78, "PTQ1_0": 0.78, "TQ1_0": 0.82, "TQ2_0": 0.82}


def any_bytes(type: BlockType, rows: int = 40, blocks: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, blocks * type.bytes), np.uint8)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, any NaN being like any other."""
    equal = a.view(np.uint32) == b.view(np.uint32)
    return a.shape == b.shape and bool(np.all(equal | (np.isnan(a) & np.isnan(b))))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SHARED)
def test_decoder_equals_the_gguf_package_on_any_bytes(name):
    data = any_bytes(by_name(name))
    theirs = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name])
    assert same_bits(dequantise(data, name), theirs)


@pytest.mark.parametrize("name", SHARED)
def test_table_has_the_gguf_packages_numbers_and_sizes(name):
    theirs = gguf.GGMLQuantizationType[name]
    type = by_name(name)
    assert (type.id, (type.weights, type.bytes)) == (theirs.value, gguf.GGML_QUANT_SIZES[theirs])


def decode_by_formula(block: bytes, name: str) -> list[float]:
    """One block of a type the gguf package lacks, weight by weight as its definition says."""
    at = 26 if name == "PTQ1_0" else 0
    d = np.frombuffer(block[at : at + 2], "<f2")[0].astype(np.float32)
    codes = block[:26] if name == "PTQ1_0" else block[2:]
    return [float(d * np.float32(code_by_formula(codes, name, i))) for i in range(weights(name))]


def code_by_formula(codes: bytes, name: str, i: int) -> int:
    if name == "Q1_0":
        return 1 if codes[i // 8] >> (i % 8) & 1 else -1
    if name in ("Q2_0", "PQ2_0"):
        return (codes[i // 4] >> 2 * (i % 4) & 3) - 1
    if i < 80:
        byte, digit = codes[i & 15], i >> 4
    elif i < 120:
        byte, digit = codes[16 + (i - 80 & 7)], i - 80 >> 3
    else:
        byte, digit = codes[24 + (i - 120 & 1)], i - 120 >> 1
    return ((byte * 3**digit & 255) * 3 >> 8) - 1


def weights(name: str) -> int:
    return by_name(name).weights


@pytest.mark.parametrize("name", sorted(OURS_ALONE))
def test_decoder_follows_the_formula_of_the_types_gguf_lacks(name):
    data = random_blocks((6, 2 * weights(name)), name, np.random.default_rng(3), 1.0)
    blocks = data.reshape(-1, by_name(name).bytes)
    expected = [decode_by_formula(block.tobytes(), name) for block in blocks]
    assert np.array_equal(dequantise(blocks, name), np.array(expected, np.float32))


def test_ternary_digits_in_a_byte_are_the_most_significant_first():
    """81 a + 27 b + 9 c + 3 d + e, scaled to 256ths and rounded up, in the first byte."""
    block = bytearray(28)
    block[26:28] = np.float16(1).tobytes()
    digits = (2, 0, 1, 1, 2)
    value = sum(digit * 3 ** (4 - k) for k, digit in enumerate(digits))
    block[0] = -(-value * 256 // 243)
    decoded = dequantise(np.frombuffer(bytes(block), np.uint8), "PTQ1_0")
    assert [decoded[16 * k] + 1 for k in range(5)] == list(digits)


@pytest.mark.parametrize("name", ENCODED_THERE)
def test_encoder_equals_the_gguf_package(name):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((30, 768)).astype(np.float32) * 0.05
    x[2] = 0
    x[3, :256] = 0
    x[4] = np.round(x[4] * 64) / 16  # ties
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
    assert np.array_equal(quantise(x, name), theirs.view(np.uint8))


@pytest.mark.parametrize("name", NAMES)
def test_decoding_what_was_encoded_costs_no_more_than_the_type_must(name):
    x = np.random.default_rng(6).standard_normal((64, 1024)).astype(np.float32) * 0.02
    back = dequantise(quantise(x, name), name)
    assert np.sqrt(np.mean((x - back) ** 2) / np.mean(x**2)) <= ERRORS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_zeros_stays_zero(name):
    x = np.zeros((2, 256), np.float32)
    assert not dequantise(quantise(x, name), name).any()


@pytest.mark.parametrize("name", ["Q2_0", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0"])
def test_ternary_weights_survive_unchanged(name):
    x = np.random.default_rng(7).integers(-1, 2, (8, 512)).astype(np.float32) * 0.25
    assert np.array_equal(dequantise(quantise(x, name), name), x)


def test_bf16_keeps_nan_and_rounds_halves_to_even():
    bits = np.array([0x3F808000, 0x3F818000, 0x7FFFFFFF, 0x7F800000], np.uint32)
    coded = quantise(bits.view(np.float32), "BF16").view("<u2")
    assert [hex(code) for code in coded] == ["0x3f80", "0x3f82", "0x7fff", "0x7f80"]


@pytest.mark.parametrize("name", NAMES)
def test_invented_blocks_have_the_spread_asked_for(name):
    data = random_blocks((128, 4096), name, np.random.default_rng(8), 0.02)
    assert data.shape == (128, by_name(name).row_bytes(4096))
    assert data.dtype == np.uint8
    values = dequantise(data, name)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 3e-4
    assert 0.0195 < values.std() < 0.0205


def test_invented_blocks_follow_the_generator():
    first, again, other = (
        random_blocks((4, 512), "Q4_K", np.random.default_rng(seed), 1.0) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_rows_may_have_any_number_of_axes_and_strides():
    data = random_blocks((12, 512), "Q6_K", np.random.default_rng(9), 1.0)
    flat = dequantise(data, "Q6_K")
    assert np.array_equal(dequantise(data.reshape(3, 4, -1), "Q6_K"), flat.reshape(3, 4, 512))
    assert np.array_equal(dequantise(data[::2], "Q6_K"), flat[::2])
    assert np.array_equal(dequantise(data[0], "Q6_K"), flat[0])
    assert dequantise(data[:0], "Q6_K").shape == (0, 512)


def test_f32_is_a_view():
    data = np.arange(4, dtype=np.float32).view(np.uint8)
    assert np.shares_memory(dequantise(data, "F32"), data)


def test_decoding_in_pieces_leaves_no_seam():
    """More weights than are decoded at a time."""
    data = random_blocks((70, 4096), "Q4_0", np.random.default_rng(10), 1.0)
    whole = dequantise(data, "Q4_0")
    assert np.array_equal(whole, np.stack([dequantise(row, "Q4_0") for row in data]))


@pytest.mark.parametrize("call", [dequantise, quantise])
def test_a_row_that_is_no_whole_number_of_blocks_is_refused(call):
    kind = np.uint8 if call is dequantise else np.float32
    with pytest.raises(ValueError, match="cannot be Q4_0: its blocks"):
        call(np.zeros((2, 33), kind), "Q4_0")


def test_data_that_is_not_bytes_is_refused():
    with pytest.raises(ValueError, match="takes u8 rows, not float32"):
        dequantise(np.zeros((2, 18), np.float32), "Q4_0")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: by_id(16), r"block type IQ2_XXS \(16\) is not supported; known are F32 F16 Q4_0"),
        (lambda: by_id(999), "block type number 999 is not supported; known are F32"),
        (lambda: by_name("Q9_Z"), "block type 'Q9_Z' is not supported; known are F32"),
        (lambda: dequantise(np.zeros(2, np.uint8), "Q9_Z"), "'Q9_Z' is not supported"),
    ],
)
def test_an_unknown_type_is_refused_by_name_with_the_known_ones(call, text):
    with pytest.raises(FormatError, match=text):
        call()


def test_names_are_found_in_any_case():
    assert by_name("q4_k") is by_id(12)
