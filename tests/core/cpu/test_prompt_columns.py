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
    random_rows,
    values,
)

every_code_type = pytest.mark.parametrize("name", CODE_TYPES)


@every_code_type
@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa not in TILED])
def test_products_are_those_of_the_portable_kernel_but_for_the_order_of_scales(isa, name):
    need(isa)
    rng = np.random.default_rng(11)
    block = TYPES[name][1]
    for width in (block, block * 3, block * 2 * max(1, 256 // block) + block):
        groups = pack(name, random_rows(name, 48, width, rng), width)
        x = rng.standard_normal((7, width)).astype(np.float32)
        mine, theirs = (
            product(i, name, groups, width, prepare(name, x, "prompt", i)[0], 0, 7, "prompt")
            for i in (isa, "portable")
        )
        assert np.max(np.abs(mine - theirs)) < 1e-6 * np.abs(theirs).max() * width**0.5


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
    columns, _ = prepare(name, rng.standard_normal((60, width)).astype(np.float32), "prompt", isa)
    alone = np.concatenate(
        [product(isa, name, groups, width, columns, c, 1, "prompt") for c in range(60)]
    )
    for c0, nc in [(0, 60), (0, 16), (1, 15), (3, 17), (20, 32), (11, 47), (58, 2)]:
        got = product(isa, name, groups, width, columns, c0, nc, "prompt")
        assert got.tobytes() == alone[c0 : c0 + nc].tobytes(), (c0, nc)


def test_trying_amx_where_there_is_none_is_a_no_and_no_crash():
    """The instructions fault on such a processor, and before the kernel gave leave to use them."""
    assert linear.amx_computes() == ("amx" in linear.isas())
