"""Group dot products: every type on every instruction set, against exact sums and each other."""

import numpy as np
import pytest

from tests.core.cpu.linear_cases import (
    CODE_TYPES,
    FLOAT_TYPES,
    ISAS,
    TYPES,
    need,
    pack,
    prepare,
    product,
    prompt_loss,
    random_rows,
    values,
)

pytestmark = pytest.mark.parametrize("isa", ISAS)
every_type = pytest.mark.parametrize("name", TYPES)


def widths(name: str) -> list[int]:
    """One block, an odd number of blocks, and a longer row."""
    block = TYPES[name][1]
    return (
        [block, block * 3, block * 2 * max(1, 256 // block) + block] if block > 1 else [1, 7, 130]
    )


@every_type
def test_product_is_the_exact_sum_to_f32_rounding(isa, name):
    need(isa)
    rng = np.random.default_rng(TYPES[name][0])
    for width in widths(name):
        rows = random_rows(name, 21, width, rng)
        weights = values(name, rows).astype(np.float64)
        x = rng.standard_normal((9, width)).astype(np.float32) * 3
        for how in ("one", "pairs", "prompt"):
            columns, exact = prepare(name, x, how, isa)
            got = product(isa, name, pack(name, rows, width), width, columns, 0, 9, how)
            bound = np.abs(exact) @ np.abs(weights).T * 1e-6
            if how == "prompt":
                bound += prompt_loss(isa, name, rows, exact)[0]
            assert np.max(np.abs(got[:, :21] - exact @ weights.T) / bound) < 1, how
            assert np.max(np.abs(got[:, 21:]), initial=0) < 1e-30  # rows that fill the last group


@every_type
@pytest.mark.parametrize("how", ["one", "prompt"])
def test_a_columns_bits_depend_on_no_neighbour(isa, name, how):
    need(isa)
    rng = np.random.default_rng(7)
    width = widths(name)[1]
    groups = pack(name, random_rows(name, 48, width, rng), width)  # three: a pair, and one alone
    x = rng.standard_normal((24, width)).astype(np.float32)
    columns, _ = prepare(name, x, how, isa)
    each = [prepare(name, x[c : c + 1], how, isa)[0] for c in range(24)]
    alone = np.concatenate([product(isa, name, groups, width, c, 0, 1, how) for c in each])
    for nc in range(1, 20):
        for c0 in {0, 3, 24 - nc}:
            got = product(isa, name, groups, width, columns, min(c0, 24 - nc), nc, how)
            at = min(c0, 24 - nc)
            assert got.tobytes() == alone[at : at + nc].tobytes(), (nc, at)


@every_type
def test_two_groups_at_once_give_the_bits_of_one(isa, name):
    need(isa)
    rng = np.random.default_rng(9)
    block = TYPES[name][1]
    for width in {block * 3, 256 * 2 + max(block, 32)}:  # a last superblock in part, or whole
        width -= width % block
        groups = pack(name, random_rows(name, 70, width, rng), width)  # five groups
        columns, _ = prepare(name, rng.standard_normal((21, width)).astype(np.float32))
        for c0, nc in [
            (0, 1),
            (5, 2),
            (2, 3),
            (1, 4),
            (0, 8),
            (1, 10),
            (3, 11),
            (0, 12),
            (2, 13),
            (0, 21),
        ]:
            one = product(isa, name, groups, width, columns, c0, nc)
            two = product(isa, name, groups, width, columns, c0, nc, "pairs")
            assert two.tobytes() == one.tobytes(), (width, c0, nc)


@pytest.mark.parametrize("name", CODE_TYPES)
def test_bits_are_those_of_the_portable_kernel(isa, name):
    need(isa)
    rng = np.random.default_rng(11)
    for width in widths(name):
        groups = pack(name, random_rows(name, 32, width, rng), width)
        x = rng.standard_normal((5, width)).astype(np.float32)
        columns, _ = prepare(name, x)
        got = product(isa, name, groups, width, columns, 0, 5)
        assert got.tobytes() == product("portable", name, groups, width, columns, 0, 5).tobytes()


@every_type
def test_a_row_is_the_same_in_every_lane_and_group(isa, name):
    need(isa)
    rng = np.random.default_rng(13)
    width = widths(name)[1]
    rows = random_rows(name, 16, width, rng)
    columns, _ = prepare(name, rng.standard_normal((3, width)).astype(np.float32))
    whole = product(isa, name, pack(name, rows, width), width, columns, 0, 3)
    for count in range(1, 17):
        turned = np.concatenate([rows[count:], rows[:count]])
        got = product(isa, name, pack(name, turned, width), width, columns, 0, 3)
        assert got.tobytes() == np.roll(whole, -count, axis=1).tobytes()
        few = product(isa, name, pack(name, rows[:count], width), width, columns, 0, 3)
        assert few[:, :count].tobytes() == whole[:, :count].tobytes()
        assert not few[:, count:].any()


@pytest.mark.parametrize("name", CODE_TYPES)
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x7F, 0x80])
def test_extreme_codes_do_not_overflow(isa, name, byte):
    """All codes (and integer scales) at an end of their range, all activations at +-127."""
    need(isa)
    width = 2 * max(TYPES[name][1], 256)
    rows = random_rows(name, 16, width, np.random.default_rng(17), scale=0.5)
    blocks = rows.reshape(-1, TYPES[name][2])
    halves = random_rows(name, 16, width, np.random.default_rng(17), scale=0.5)
    blocks[:] = byte
    if name == "MXFP4":
        blocks[:, 0] = 127
    else:
        from tests.core.cpu.linear_cases import HALVES

        for at in HALVES[name]:
            blocks[:, at : at + 2] = halves.reshape(blocks.shape)[:, at : at + 2]
    weights = values(name, rows).astype(np.float64)
    groups = pack(name, rows, width)
    for signs in (np.ones(width), -np.ones(width), np.where(np.arange(width) % 2, 1, -1)):
        for how in ("one", "prompt"):
            columns, exact = prepare(
                name, np.tile(signs * 127, (4, 1)).astype(np.float32), how, isa
            )
            got = product(isa, name, groups, width, columns, 0, 4, how)
            bound = np.abs(exact) @ np.abs(weights).T * 1e-6 + 1e-36
            if how == "prompt":
                bound += prompt_loss(isa, name, rows, exact)[0]
            assert np.max(np.abs(got - exact @ weights.T) / bound) < 1


@pytest.mark.parametrize("name", [name for name in CODE_TYPES if name != "MXFP4"])
@pytest.mark.parametrize("scale", [0.0, 6e-8, 6e-5, 65504.0])
def test_extreme_scales(isa, name, scale):
    """Zero, the smallest subnormal, a large subnormal and the largest f16."""
    need(isa)
    rng = np.random.default_rng(19)
    width = 2 * TYPES[name][1]
    rows = random_rows(name, 16, width, rng, scale=scale)
    weights = values(name, rows).astype(np.float64)
    columns, exact = prepare(name, rng.standard_normal((2, width)).astype(np.float32))
    got = product(isa, name, pack(name, rows, width), width, columns, 0, 2)
    bound = np.abs(exact) @ np.abs(weights).T + 1e-30
    assert np.max(np.abs(got - exact @ weights.T) / bound) < 1e-6


@pytest.mark.parametrize("name", [name for name in CODE_TYPES if name != "MXFP4"])
@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_a_damaged_scale_gives_no_finite_product(isa, name, scale):
    need(isa)
    rng = np.random.default_rng(23)
    width = TYPES[name][1]
    rows = random_rows(name, 16, width, rng, scale=scale)
    columns, _ = prepare(name, rng.standard_normal((1, width)).astype(np.float32))
    got = product(isa, name, pack(name, rows, width), width, columns, 0, 1)
    assert not np.isfinite(got).any()


@pytest.mark.parametrize("name", CODE_TYPES)
@pytest.mark.parametrize("at", [3, 20, 63])
def test_a_non_finite_activation_makes_its_columns_products_nan(isa, name, at):
    need(isa)
    width = max(64, TYPES[name][1])
    rows = random_rows(name, 16, width, np.random.default_rng(37))
    x = np.ones((5, width), np.float32)
    x[1, at] = np.inf
    for how in ("one", "prompt"):
        columns, _ = prepare(name, x, how, isa)
        got = product(isa, name, pack(name, rows, width), width, columns, 0, 5, how)
        assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2, 3, 4]]).all()


@pytest.mark.parametrize("exponent", [0, 1, 2, 127, 240])
def test_mxfp4_scales_of_every_kind(isa, exponent):
    """Subnormal powers of two included."""
    need(isa)
    rng = np.random.default_rng(29)
    rows = random_rows("MXFP4", 16, 96, rng)
    rows.reshape(16, 3, 17)[:, :, 0] = exponent
    weights = values("MXFP4", rows).astype(np.float64)
    x = rng.standard_normal((2, 96)) * (1e9 if exponent < 100 else 1)  # products are normal
    columns, exact = prepare("MXFP4", x.astype(np.float32))
    got = product(isa, "MXFP4", pack("MXFP4", rows, 96), 96, columns, 0, 2)
    bound = np.abs(exact) @ np.abs(weights).T
    assert np.max(np.abs(got - exact @ weights.T) / bound) < 1e-6


@pytest.mark.parametrize("name", FLOAT_TYPES)
def test_float_rows_keep_infinities_and_nan(isa, name):
    need(isa)
    rng = np.random.default_rng(31)
    rows = random_rows(name, 16, 10, rng)
    weights = values(name, rows).copy()
    column = np.ones((1, 10), np.float32)
    column[0, 9] = np.inf
    got = product(isa, name, pack(name, rows, 10), 10, column, 0, 1)
    assert np.array_equal(got[0], np.where(weights[:, 9] > 0, np.inf, -np.inf))
