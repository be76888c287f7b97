"""What Gemma 4's shared keys spare: unscored columns end where the last block that owns keys does.

On the cpu executor the scored ones keep their bits.
"""

from dataclasses import replace

import numpy as np
import pytest

from golem_core.cpu.weights import multiplied
from golem_core.graph.plan import make_plan
from golem_server.bench.invented import write_invented
from golem_server.bench.shapes import SHAPES
from tests.plugins import tiny

CONTEXT = 1408  # drawn columns of full blocks attend to several chunks of 512 keys


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny.decoder(tiny_model("gemma4-e2b", "Q8_0"))


def inputs(parts, outputs):
    """A pass of (slot, first index, count, role); a slot's tokens are the same in every pass."""
    runs, tokens = [], []
    for slot, index, count, role in parts:
        runs.append([slot, len(tokens), count, index, role])
        ids = np.random.default_rng(slot).integers(0, 576, CONTEXT)
        tokens += ids[index : index + count].tolist()
    arrays = {"runs": runs, "tokens": tokens, "outputs": outputs}
    return {name: np.array(a, np.int32) for name, a in arrays.items()}


def filled(kind, model, threads=2):
    """An executor with three conversations of 1200, 30 and 640 columns."""
    ex = tiny.executor(
        kind,
        model,
        slots=4,
        context=CONTEXT,
        pass_width=400,
        **({} if kind == "reference" else {"threads": threads}),
    )
    for slot, count in ((0, 1200), (1, 30), (2, 640)):
        for index in range(0, count, 400):
            part = (slot, index, min(400, count - index), 1)
            ex.run(inputs([part], []), ("logits",))
    return ex


PASS = [(0, 1200, 1, 0), (2, 640, 2, 0), (1, 30, 40, 1), (3, 0, 60, 1)]


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_scored_columns_have_the_bits_of_a_pass_that_scores_all(model, threads):
    """Draws at long and short contexts beside two prompts, one of them new."""
    whole, some = (filled("cpu", model, threads) for _ in range(2))
    wanted = whole.run(inputs(PASS, range(103)), ("logits",))["logits"]
    for picked in ([0, 2, 42, 102], [1, 50], [43], list(range(3))):
        found = some.run(inputs(PASS, picked), ("logits",))["logits"]
        np.testing.assert_array_equal(found, wanted[picked])
    whole.close()
    some.close()


def test_scored_columns_are_those_of_the_reference(model):
    ex, truth = filled("cpu", model), filled("reference", model)
    picked = [0, 2, 42, 102]
    found, wanted = (e.run(inputs(PASS, picked), ("logits",))["logits"] for e in (ex, truth))
    assert tiny.relative_rms(found, wanted) < 0.05
    ex.close()


def rows_of(plan, op):
    return {
        node.site.split("/")[0]: str(node.outputs[0].rows) for node in plan.nodes if node.op == op
    }


def test_blocks_that_share_keys_run_on_scored_columns_only(model):
    """The last owner stores the keys of all columns; only scored ones go on from there."""
    program = model.program(64, 64)
    plan = make_plan(program, ("logits",))
    assert rows_of(plan, "attend") == {f"blk.{i}": "n" if i < 5 else "m" for i in range(10)}
    products = [n for n in plan.nodes if n.op == "linear" and n.site.startswith("blk.")]
    late = [n for n in products if int(n.site.split("/")[0][4:]) >= 5]
    assert late
    assert all(str(n.outputs[0].rows) == "m" for n in late)
    unscored = make_plan(program, ())
    assert {n.site.split("/")[0] for n in unscored.nodes if n.site.startswith("blk.")} == {
        f"blk.{i}" for i in range(5)
    }
    assert not any(
        "per_layer_token_embd" in w.name and w.name.endswith("2560]")
        for n in unscored.nodes
        for w in n.weights
    )


def test_a_tap_of_a_late_block_is_of_all_columns(model):
    plan = make_plan(model.program(64, 64), ("blk.7", "logits"))
    assert rows_of(plan, "attend")["blk.7"] == "n"
    assert rows_of(plan, "attend")["blk.8"] == "m"


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """The 26B-A4B with its 128 experts of which 8 are used, all of them narrow, in two blocks."""
    shape = replace(
        SHAPES["gemma4-26b-a4b"].cut(2), width=256, heads=4, kv_heads=2, head_size=64,
        window_head=32, window_kv_heads=2, feed_forward=192, expert_width=64, vocabulary=576,
    )  # fmt: skip
    assert (shape.experts, shape.used) == (128, 8)
    path = write_invented(tmp_path_factory.mktemp("mixture") / "m.gguf", shape, "Q4_0")
    return tiny.decoder(path)


def test_a_drawn_token_reads_the_shared_weights_and_8_of_128_experts(mixture):
    """By the executor's own count of bytes. Two columns read the experts that either chose."""
    ex = tiny.executor("cpu", mixture, slots=2)
    stacked = {w.name: ex.weights[w].bytes for w in multiplied(ex.program) if len(w.shape) == 3}
    shared = {w.name: ex.weights[w].bytes for w in multiplied(ex.program) if len(w.shape) == 2}
    assert len(stacked) == 2 * 3
    least = sum(shared.values()) + sum(stacked.values()) * 8 // 128
    tiny.run(ex, (0, 0, [5, 6, 7], 1), (1, 0, [8], 1))
    tiny.run(ex, (0, 3, [9], 0))
    assert ex.stats.weight_bytes == least
    tiny.run(ex, (0, 4, [10], 0), (1, 1, [11], 0))
    both = ex.stats.weight_bytes
    assert least < both <= least + sum(stacked.values()) * 8 // 128
    ex.close()
