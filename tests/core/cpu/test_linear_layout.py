"""Repacking, dequantising and the quantiser of columns."""

import numpy as np
import pytest

from golem_core.cpu import _linear as linear
from golem_core.formats.blocks import TYPES as FILE_TYPES
from tests.core.cpu.linear_cases import (
    ISAS,
    TILED,
    TYPES,
    columns_of,
    need,
    pack,
    parts,
    random_rows,
    records,
    values,
)

every_type = pytest.mark.parametrize("name", TYPES)


def test_every_type_of_the_formats_has_a_kernel():
    file_types = {(t.id, t.name, t.weights, t.bytes) for t in FILE_TYPES.values()}
    assert file_types == {(id, name, n, size) for id, name, n, size, _ in linear.types()}


@every_type
def test_dequantised_rows_equal_numpys(name):
    id, block, _, _ = TYPES[name]
    rng = np.random.default_rng(id)
    width = block * 5
    rows = random_rows(name, 9, width, rng)
    out = np.empty((9, width), np.float32)
    linear.dequantise(id, rows, out)
    assert out.tobytes() == values(name, rows).tobytes()


@every_type
def test_dequantised_random_bytes_equal_numpys(name):
    """Any bytes at all: infinite, subnormal and NaN scales among them."""
    id, block, size, _ = TYPES[name]
    rows = np.random.default_rng(id).integers(0, 256, (64, 4 * size), dtype=np.uint8)
    out = np.empty((64, 4 * block), np.float32)
    linear.dequantise(id, rows, out)
    expected = values(name, rows)
    assert np.array_equal(out, expected, equal_nan=True)


@every_type
def test_groups_take_about_what_the_file_takes(name):
    id, block, size, _ = TYPES[name]
    width = 2304 // block * block
    ratio = linear.group_bytes(id, width) / (16 * width // block * size)
    assert linear.group_bytes(id, width) % 64 == 0
    # Base-3 packed types become 2-bit codes, which a kernel can read at memory speed.
    limit = {"TQ1_0": 1.26, "PTQ1_0": 1.22, "TQ2_0": 1.031, "IQ4_XS": 1.03, "Q3_K": 1.019}
    assert 1 <= ratio <= limit.get(name, 1.01)


@every_type
def test_repacking_writes_the_whole_group(name):
    """A group's bytes are a function of its rows, whatever lay in memory before."""
    id, block, _, _ = TYPES[name]
    width = 3 * block
    rows = random_rows(name, 5, width, np.random.default_rng(3))
    out = np.full(linear.group_bytes(id, width), 0xAA, np.uint8)
    linear.repack(id, rows, width, out)
    assert out.tobytes() == pack(name, rows, width).tobytes()


def test_calls_that_would_leave_their_arrays_are_refused():
    rows = random_rows("Q4_0", 16, 64, np.random.default_rng(0))
    groups, columns = pack("Q4_0", rows, 64), records(np.ones((2, 64), np.float32))
    out = np.zeros((1, 2, 16), np.float32)
    with pytest.raises(ValueError, match="rows hold a multiple of 32, not 65"):
        linear.group_bytes(2, 65)
    with pytest.raises(ValueError, match="no kernel for block type 4"):
        linear.group_bytes(4, 64)
    with pytest.raises(ValueError, match="take 72 bytes, not 36"):
        linear.repack(2, rows, 128, groups)
    with pytest.raises(ValueError, match="cannot run 'mmx'; it has portable"):
        linear.dot("mmx", 2, groups, 64, columns, 0, 2, out)
    with pytest.raises(ValueError, match=r"columns 1 \.\. 2 of 2"):
        linear.dot("portable", 2, groups, 64, columns, 1, 2, out)
    with pytest.raises(ValueError, match="do not fill out"):
        linear.dot("portable", 2, groups, 64, columns, 0, 1, out)


@pytest.mark.parametrize("isa", ISAS)
class TestQuantise:
    def test_codes_are_the_nearest_of_255_levels(self, isa):
        need(isa)
        rng = np.random.default_rng(5)
        x = (rng.standard_normal((7, 160)) * 10.0 ** rng.integers(-6, 6, (7, 1))).astype(np.float32)
        f = parts(records(x, isa))
        blocks = x.reshape(7, 5, 2, 16).transpose(1, 0, 2, 3)
        amax = np.abs(blocks).max(-1)
        assert np.array_equal(f["d"], amax / np.float32(127))
        inverse = np.float32(127) / amax
        assert np.array_equal(f["q"], np.rint(blocks * inverse[..., None]))
        assert np.array_equal(f["minus"], -f["q"].sum(-1, dtype=np.int32))
        sums = f["d"] * f["q"].sum(-1, dtype=np.int32).astype(np.float32)
        assert np.array_equal(f["s"], sums[..., 0] + sums[..., 1])

    def test_a_large_value_takes_no_precision_from_the_sixteen_beside_it(self, isa):
        need(isa)
        x = np.random.default_rng(8).standard_normal((1, 64)).astype(np.float32)
        x[:, 16:32] *= 1e-6
        error = np.abs(columns_of(records(x, isa)) - x).reshape(4, 16).max(-1)
        assert np.all(error <= np.abs(x).reshape(4, 16).max(-1) / 254 * 1.0001)

    def test_ties_go_to_even(self, isa):
        need(isa)
        x = np.zeros((1, 32), np.float32)
        x[0, :7] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]
        assert list(parts(records(x, isa))["q"][0, 0, 0, :7]) == [127, 0, 2, 2, 0, -2, -2]

    def test_bits_are_those_of_the_portable_quantiser(self, isa):
        need(isa)
        bits = np.random.default_rng(6).integers(0, 1 << 32, (50, 256), dtype=np.uint32)
        x = bits.view(np.float32)  # every exponent, infinities and NaN now and then
        assert records(x, isa).tobytes() == records(x).tobytes()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_non_finite_value_poisons_its_sixteen_only(self, isa, bad):
        need(isa)
        x = np.ones((1, 96), np.float32)
        x[0, 40] = bad
        f = parts(records(x, isa))
        assert np.array_equal(
            np.isnan(f["d"][:, 0]), [[False, False], [True, False], [False, False]]
        )
        assert np.array_equal(np.isnan(f["s"][:, 0]), [False, True, False])
        assert not f["q"][1, 0, 0].any() and (f["q"][1, 0, 1] == 127).all()

    @pytest.mark.parametrize("tiny", [0.0, 1e-45, 1e-38, 9e-31])
    def test_what_is_almost_zero_is_zero(self, isa, tiny):
        need(isa)
        f = parts(records(np.full((1, 32), tiny, np.float32), isa))
        assert not f["d"].any() and f["s"][0, 0] == 0 and not f["q"].any()


def prompt_fields(isa, x):
    need(isa)
    return parts(records(np.asarray(x, np.float32), isa, "prompt"), isa, prompt=True)


def of_all_sizes(seed):
    x = np.random.default_rng(seed).standard_normal((7, 576))
    rng = np.random.default_rng(seed + 1)
    x *= 10.0 ** rng.uniform(-2, 2, (7, 576))
    return (x * 10.0 ** rng.integers(-20, 20, (7, 1))).astype(np.float32)


def check_sums(f):
    assert np.array_equal(f["minus"], -f["q"].astype(int).sum(-1))
    halves = f["q"].astype(int).sum(-1) * f["d"]
    error = np.abs(f["s"] - halves.sum(-1)) - f["s_step"] / 2
    assert (error <= 1e-6 * np.abs(halves).sum(-1)).all()


def blocks_of(f, x):
    """Of each 256 values: scales and values over those of a code of the largest, codes."""
    for block in (slice(0, 8), slice(8, 16), slice(16, 18)):
        columns = slice(32 * block.start, 32 * block.stop)
        base = np.abs(x[:, columns]).max(-1).astype(np.float64) / 127
        sixteens = x[:, columns].astype(np.float64).reshape(7, -1, 2, 16).transpose(1, 0, 2, 3)
        yield (
            f["d"][block] / base[None, :, None],
            sixteens / base[None, :, None, None],
            f["q"][block],
        )


# Sets with tiles round in a way of their own: test_prompt_columns.py.
@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa not in (*TILED, "avx2")])
class TestPromptPowers:
    """Scales are base * 2^k, the base that of the largest of 256 values, k as low as may be."""

    def test_scales_are_the_least_powers_of_two_and_codes_the_nearest(self, isa):
        x = of_all_sizes(0)
        f = prompt_fields(isa, x)
        for scale, sixteens, codes in blocks_of(f, x):
            power = np.rint(np.log2(scale))
            np.testing.assert_allclose(scale, 2.0**power, rtol=1e-6)
            amax = np.abs(sixteens).max(-1)
            assert (power <= 0).all() and (power >= -10).all()
            assert (amax < 127.5001 * 2.0**power).all()
            assert ((amax > 127.4999 * 2.0**power / 2) | (power == -10)).all()
            assert np.abs(codes - sixteens / 2.0 ** power[..., None]).max() < 0.5001
        check_sums(f)

    def test_codes_are_those_of_the_portable_quantiser(self, isa):
        rng = np.random.default_rng(5)
        x = rng.integers(0, 2**32, (40, 320), dtype=np.uint32).view(np.float32)
        x[:20] = rng.standard_normal((20, 320)) * 10.0 ** rng.uniform(-4, 4, (20, 320))
        mine, theirs = prompt_fields(isa, x), prompt_fields("portable", x)
        for name in ("q", "minus"):
            assert np.array_equal(mine[name], theirs[name])
        np.testing.assert_allclose(mine["d"], theirs["d"], rtol=1e-6)


def test_avx2_has_prompt_scales_in_the_least_whole_steps_and_codes_the_nearest():
    x = of_all_sizes(0)
    f = prompt_fields("avx2", x)
    for scale, sixteens, codes in blocks_of(f, x):
        steps = np.rint(4096 * scale)
        np.testing.assert_allclose(4096 * scale, steps, rtol=1e-6)
        amax = np.abs(sixteens).max(-1)
        assert (steps >= 1).all() and (steps <= 4096).all()
        assert (amax < 127.0001 * steps / 4096).all()
        assert ((amax > 126.9999 * (steps - 1) / 4096) | (steps == 1)).all()
        assert np.abs(codes - sixteens / (steps / 4096)[..., None]).max() < 0.5001
    check_sums(f)


@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa not in TILED])
class TestPromptQuantiser:
    """What all sets without tiles have in common."""

    def test_a_large_value_takes_half_a_bit_from_the_sixteen_beside_it(self, isa):
        x = np.random.default_rng(8).standard_normal((1, 256)).astype(np.float32)
        x[:, 16:32] *= 1e-2
        f = prompt_fields(isa, x)
        made = (f["d"][..., None] * f["q"]).transpose(1, 0, 2, 3).reshape(16, 16)
        error = np.abs(made - x.reshape(16, 16)).max(-1)
        assert np.all(error <= np.abs(x).reshape(16, 16).max(-1) / 127 * 1.0001)

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    def test_a_non_finite_value_poisons_its_block_only(self, isa, bad):
        x = np.ones((1, 512))
        x[0, 20] = bad
        f = prompt_fields(isa, x)
        assert np.isnan(f["d"][:8]).all() and not f["q"][:8].any() and np.isnan(f["s"][:8]).all()
        assert (f["q"][8:] == 127).all() and np.isfinite(f["s"][8:]).all()

    @pytest.mark.parametrize("tiny", [0.0, 1e-45, 1e-38, 9e-31])
    def test_what_is_almost_zero_is_zero(self, isa, tiny):
        f = prompt_fields(isa, np.full((1, 32), tiny))
        assert not f["q"].any() and not f["d"].any()
