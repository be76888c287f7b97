"""Parts of weights are the parts of what they mean, and are multiplied as such."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor, weights
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.weights import Weight, WeightError
from golem_core.reference import ReferenceExecutor

KINDS = ("F32", "BF16", "Q8_0", "Q6_K", "Q4_0")


def weight(kind, *shape):
    kind, rng = by_name(kind), np.random.default_rng(0)
    rows = int(np.prod(shape[:-1]))
    blocks = random_blocks((rows, shape[-1]), kind, rng, shape[-1] ** -0.5)
    return Weight("w", shape, kind, blocks.reshape(*shape[:-1], -1))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_a_table_are_those_of_its_rows(kind):
    table = weight(kind, 40, 1024)
    part = table.columns(256, 768)
    np.testing.assert_array_equal(part.numpy(), table.numpy()[:, 256:768])
    p = Builder("rows")
    p.output("y", p.rows(part, p.input("ids", (p.axis("n", 8),), "i32"), scale=2.0))
    with CpuExecutor(p.build(), threads=1) as ex:
        found = ex.run({"ids": np.array([39, 0, 7], np.int32)}, ("y",))["y"]
    np.testing.assert_array_equal(found, 2 * table.numpy()[[39, 0, 7], 256:768])


@pytest.mark.parametrize("span", [(0, 16), (16, 48), (32, 32), (-32, 32), (0, 1056)])
def test_columns_are_cut_between_blocks(span):
    with pytest.raises(WeightError, match="blocks of 32"):
        weight("Q8_0", 4, 1024).columns(*span)


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_rows_of_every_expert(kind):
    """Their matrices do not lie evenly: the other half of each stands between."""
    both = weight(kind, 4, 48, 256)
    p = Builder("halves")
    n = p.axis("n", 8)
    x, experts = p.input("x", (n, 256)), p.input("experts", (n, 2), "i32")
    for name, part in (("gate", both.rows(0, 20)), ("up", both.rows(20, 48))):
        p.output(name, p.linear_by_expert(x, part, experts))
    program, rng = p.build(), np.random.default_rng(1)
    inputs = {
        "x": rng.standard_normal((6, 256)).astype(np.float32),
        "experts": rng.integers(0, 4, (6, 2)).astype(np.int32),
    }
    truth = ReferenceExecutor(program).run(inputs, ("gate", "up"))
    with CpuExecutor(program, threads=2) as ex:
        found = ex.run(inputs, ("gate", "up"))
        for name, wanted in truth.items():
            error = np.sqrt(((found[name] - wanted) ** 2).mean() / (wanted**2).mean())
            assert error < 0.02, name


@pytest.mark.parametrize("shape", [(1000, 128), (9, 40, 128)])
def test_a_matrix_repacked_in_pieces_is_the_same(shape, monkeypatch):
    """Batches of 8 KiB: some 56 rows, or two experts, of which the last are fewer."""
    w = weight("Q8_0", *shape)
    p = Builder("pieces")
    x = p.input("x", (p.axis("n", 4), 128))
    if len(shape) == 2:
        p.output("y", p.linear(x, w))
    else:
        p.output("y", p.linear_by_expert(x, w, p.input("ids", (p.columns, 2), "i32")))
    rng = np.random.default_rng(2)
    inputs = {"x": rng.standard_normal((4, 128)).astype(np.float32)}
    if len(shape) == 3:
        inputs["ids"] = rng.integers(0, 9, (4, 2)).astype(np.int32)
    program = p.build()
    with CpuExecutor(program, threads=2) as ex:
        whole = ex.run(inputs, ("y",))["y"].copy()
    monkeypatch.setattr(weights, "BATCH", 8 << 10)
    told = []
    with CpuExecutor(program, threads=2, progress=told.append) as ex:
        np.testing.assert_array_equal(ex.run(inputs, ("y",))["y"], whole)
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == 1
