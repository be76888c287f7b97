"""Prompt columns: how each instruction set rounds them, and what their products lose by it."""

import numpy as np
import pytest

from golem_core.cpu import _linear as linear
from tests.core.cpu.linear_cases import (
    CODE_TYPES,
    ISAS,
    TILED,
    TYPES,
    need,
    pack,
    prepare,
    product,
    prompt_loss,
    random_rows,
    values,
)

every_code_type = pytest.mark.parametrize("name", CODE_TYPES)


@every_code_type
@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa not in TILED])
def test_products_are_exact_but_for_the_rounding_of_sums(isa, name):
    need(isa)
    rng = np.random.default_rng(11)
    block = TYPES[name][1]
    for width in (block, block * 3, block * 2 * max(1, 256 // block) + block):
        rows = random_rows(name, 48, width, rng)
        groups = pack(name, rows, width)
        x = rng.standard_normal((7, width)).astype(np.float32)
        columns, rounded = prepare(name, x, "prompt", isa)
        found = product(isa, name, groups, width, columns, 0, 7, "prompt")
        exact = rounded @ values(name, rows).T.astype(np.float64)
        bound = prompt_loss(isa, name, rows, rounded)[0] + 1e-6 * np.abs(exact).max() * width**0.5
        assert (np.abs(found - exact) < bound).all()


@every_code_type
def test_roundings_of_the_kernel_are_no_more_than_expected_and_few_beside_those_of_columns(name):
    """Columns in which one value of 100 is 10 times the others' size, or 100 times, included."""
    isa = "avx512"
    need(isa)
    rng = np.random.default_rng(53)
    width = 4 * max(256, TYPES[name][1])
    rows = random_rows(name, 64, width, rng)
    groups, weights = pack(name, rows, width), values(name, rows).astype(np.float64)
    for loud in (1, 10, 100):
        x = rng.standard_normal((30, width)).astype(np.float32)
        x[:, ::100] *= loud
        columns, rounded = prepare(name, x, "prompt", isa)
        got = product(isa, name, groups, width, columns, 0, 30, "prompt")
        lost, exact = got - rounded @ weights.T, rounded @ weights.T
        f32 = 1e-7 * np.abs(rounded) @ np.abs(weights).T
        expected = prompt_loss(isa, name, rows, rounded)[1] + f32
        assert np.mean((lost / expected) ** 2) < 1, loud
        if name != "MXFP4":  # whose random scales are a thousandfold
            assert np.mean(lost**2) < 0.005 * np.mean((exact - x @ weights.T) ** 2), loud


@every_code_type
@pytest.mark.parametrize("isa", TILED)
def test_tiles_lose_less_than_codes_of_8_bits(isa, name):
    """Columns with a few values of 10 times the others' size, as models have them, included."""
    need(isa)
    rng = np.random.default_rng(41)
    width = 2 * max(256, TYPES[name][1])
    rows = random_rows(name, 48, width, rng)
    groups, weights = pack(name, rows, width), values(name, rows).astype(np.float64)
    for loud in (1, 10):
        x = rng.standard_normal((60, width)).astype(np.float32)
        x[:, ::100] *= loud
        truth, lost = x @ weights.T, {}
        for set in (isa, "portable"):
            columns, _ = prepare(name, x, "prompt", set)
            got = product(set, name, groups, width, columns, 0, 60, "prompt")
            lost[set] = np.sqrt(np.mean((got - truth) ** 2))
        assert lost[isa] < 0.7 * lost["portable"], loud


@pytest.mark.parametrize("isa", TILED)
def test_a_value_is_off_by_half_a_step_of_its_256_at_most(isa):
    need(isa)
    rng = np.random.default_rng(43)
    x = (rng.standard_normal((9, 416)) * 10.0 ** rng.integers(-6, 6, (9, 1))).astype(np.float32)
    x[3, :256] = 0
    _, rounded = prepare("Q4_0", x, "prompt", isa)
    for block in (slice(0, 256), slice(256, 416)):
        step = np.abs(x[:, block]).max(axis=1, keepdims=True).astype(np.float64) / 635
        assert (np.abs(rounded[:, block] - x[:, block]) <= step * 0.50001).all()


@every_code_type
def test_tiles_of_any_number_of_columns_have_the_bits_of_one(name):
    """Whole tiles, the last 16 again where some are left over, and fewer than a tile."""
    isa = "amx_emulated"
    need(isa)
    rng = np.random.default_rng(47)
    width = max(256, TYPES[name][1]) + TYPES[name][1]
    groups = pack(name, random_rows(name, 48, width, rng), width)
    most = linear.PROMPT_COLUMNS
    columns, _ = prepare(name, rng.standard_normal((most, width)).astype(np.float32), "prompt", isa)
    alone = np.concatenate(
        [product(isa, name, groups, width, columns, c, 1, "prompt") for c in range(most)]
    )
    for c0, nc in [(0, most), (0, 16), (1, 15), (3, 17), (20, 32), (11, 47), (most - 2, 2)]:
        got = product(isa, name, groups, width, columns, c0, nc, "prompt")
        assert got.tobytes() == alone[c0 : c0 + nc].tobytes(), (c0, nc)


def test_trying_amx_where_there_is_none_is_a_no_and_no_crash():
    """The instructions fault on such a processor, and before the kernel gave leave to use them."""
    assert linear.amx_computes() == ("amx" in linear.isas())
