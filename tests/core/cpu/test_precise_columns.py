"""Prompt columns of products that a softmax follows: AVX2 keeps more of their large values."""

import numpy as np
import pytest

from golem_core.cpu import _linear as linear
from tests.core.cpu.linear_cases import (
    CODE_TYPES,
    TYPES,
    need,
    pack,
    precise_parts,
    prepare,
    product,
    random_rows,
    records,
    values,
)

every_code_type = pytest.mark.parametrize("name", CODE_TYPES)


def loud_columns(n, width, rng):
    """One value of 100 is up to 100 times as large as the others, as trained models have them."""
    x = rng.standard_normal((n, width)).astype(np.float32)
    x[:, ::100] *= rng.uniform(1, 100, (n, 1)).astype(np.float32)
    return x


def thirty_twos(f):
    """Scales and codes of records, (columns, blocks of 32, 2) and (columns, blocks, 2, 16)."""
    return f["d"].transpose(1, 0, 2), f["q"].transpose(1, 0, 2, 3)


class TestColumns:
    def test_the_loudest_of_256_have_a_second_record_and_the_others_none(self):
        need("avx2")
        x = loud_columns(40, 608, np.random.default_rng(0))
        first, second = precise_parts(records(x, "avx2", "precise"))
        squares = (thirty_twos(first)[0] ** 2).sum(-1)
        steps, codes = thirty_twos(second)
        kept = (steps > 0).any(-1)
        for block in (slice(0, 8), slice(8, 16), slice(16, 19)):
            mean = squares[:, block].mean(-1, keepdims=True)
            np.testing.assert_array_equal(kept[:, block], squares[:, block] >= 2 * mean)
        assert not codes[~kept].any()
        assert 0.05 < kept.mean() < 0.3

    def test_first_records_are_those_of_other_prompts(self):
        need("avx2")
        x = loud_columns(9, 608, np.random.default_rng(1))
        first = np.split(records(x, "avx2", "precise"), 2, axis=1)[0]
        assert first.tobytes() == records(x, "avx2", "prompt").tobytes()

    def test_two_records_are_off_by_half_a_step_of_the_second_at_most(self):
        need("avx2")
        rng = np.random.default_rng(2)
        x = loud_columns(40, 608, rng) * (10.0 ** rng.integers(-20, 20, (40, 1)))
        x = x.astype(np.float32)
        made = [thirty_twos(f) for f in precise_parts(records(x, "avx2", "precise"))]
        sixteens = x.astype(np.float64).reshape(40, -1, 2, 16)
        off = np.abs(sum(d[..., None] * q for d, q in made) - sixteens).max(-1)
        (coarse, _), (fine, _) = made
        kept = (fine > 0).any(-1)
        # f32 rounds the value that is taken off
        assert (off[kept] <= (fine / 2 + 1e-7 * 127 * coarse)[kept]).all()
        for block in (slice(0, 8), slice(8, 16), slice(16, 19)):
            # half a step in 127 steps, and what rounds that up
            most = (
                coarse[:, block] / 2 / 127
                + coarse[:, block].max((1, 2))[:, None, None] / 4096 / 128
            )
            assert (fine[:, block] <= 1.001 * most).all()
        assert (off[~kept] <= 0.5001 * coarse[~kept]).all()

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    @every_code_type
    def test_a_non_finite_value_reaches_every_product(self, name, bad):
        need("avx2")
        width = 2 * max(256, TYPES[name][1])
        groups = pack(name, random_rows(name, 32, width, np.random.default_rng(3)), width)
        x = np.ones((3, width), np.float32)
        x[1, 300] = bad
        columns, _ = prepare(name, x, "precise", "avx2")
        found = product("avx2", name, groups, width, columns, 0, 3, "precise")
        assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()

    @pytest.mark.parametrize("tiny", [0.0, 1e-45, 1e-38, 9e-31])
    def test_what_is_almost_zero_is_zero(self, tiny):
        need("avx2")
        x = np.full((2, 64), tiny, np.float32)
        assert not any(f["q"].any() for f in precise_parts(records(x, "avx2", "precise")))

    def test_other_sets_say_that_they_have_none(self):
        assert not linear.has_precise_prompts("portable")
        with pytest.raises(ValueError, match="portable has no precise prompt columns"):
            records(np.zeros((1, 32), np.float32), "portable", "precise")


@every_code_type
class TestProducts:
    def test_they_are_those_of_both_records_but_for_the_rounding_of_sums(self, name):
        need("avx2")
        rng = np.random.default_rng(4)
        block = TYPES[name][1]
        for width in (block, block * 3, block * 2 * max(1, 256 // block) + block):
            rows = random_rows(name, 48, width, rng)
            x = loud_columns(9, width, rng)
            columns, rounded = prepare(name, x, "precise", "avx2")
            found = product("avx2", name, pack(name, rows, width), width, columns, 0, 9, "precise")
            weights = values(name, rows).astype(np.float64)
            sums = np.abs(rounded) @ np.abs(weights).T
            assert (np.abs(found - rounded @ weights.T) <= 1e-6 * sums).all()

    def test_any_number_of_columns_has_the_bits_of_one(self, name):
        need("avx2")
        rng = np.random.default_rng(5)
        width, most = 2 * max(256, TYPES[name][1]), linear.PROMPT_COLUMNS
        groups = pack(name, random_rows(name, 48, width, rng), width)
        columns, _ = prepare(name, loud_columns(most, width, rng), "precise", "avx2")
        alone = np.concatenate(
            [product("avx2", name, groups, width, columns, c, 1, "precise") for c in range(most)]
        )
        for c0, nc in [(0, most), (0, 4), (1, 5), (3, 40), (most - 2, 2)]:
            got = product("avx2", name, groups, width, columns, c0, nc, "precise")
            assert got.tobytes() == alone[c0 : c0 + nc].tobytes(), (c0, nc)
