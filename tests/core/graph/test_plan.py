"""The planner's neutral passes: what is dropped, what moves, what is joined."""

import numpy as np
import pytest

from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.plan import make_plan
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import Weight
from tests.core.cpu.decoders import decoder

RNG = np.random.default_rng(0)


def weight(out: int, width: int, name: str = "w") -> Weight:
    blocks = random_blocks((out, width), by_name("F32"), RNG, 1.0)
    return Weight(name, (out, width), by_name("F32"), blocks)


def start() -> tuple[Builder, object]:
    p = Builder("test")
    return p, p.input("x", (p.axis("n", 8), 32))


def ops(p: Builder, wanted=("y",), **options) -> list[str]:
    return [node.op for node in make_plan(p.build(), wanted, **options).nodes]


def segments(p: Builder):
    return [
        s
        for node in make_plan(p.build(), ("y",)).nodes
        if node.op == "linear"
        for s in node.attrs["segments"]
    ]


def test_ops_that_no_wanted_output_needs_are_dropped():
    p, x = start()
    p.output("y", p.unary(x, "relu"))
    p.output("z", p.softmax(p.unary(x, "relu")))
    assert ops(p) == ["unary"]
    assert ops(p, ("y", "z")) == ["unary", "softmax"]


def test_an_unknown_output_is_refused_with_the_list():
    p, x = start()
    p.output("y", p.unary(x, "relu"))
    with pytest.raises(ProgramError, match="'logits' is not among the program's: y"):
        make_plan(p.build(), ("logits",))


def test_a_pass_that_scores_nothing_keeps_what_later_passes_read():
    """The last block's queries, attention and FFN go; its keys and values are stored."""
    nodes = make_plan(decoder(blocks=2), ()).nodes
    last = [node.op for node in nodes if node.site.startswith("blk.1/")]
    assert sorted(last) == ["linear", "rms_norm", "rope", "store"]
    (linear,) = (n for n in nodes if n.op == "linear" and n.site.startswith("blk.1/"))
    assert len(linear.attrs["segments"]) == 2
    assert {w for node in nodes for w in node.writes} == {"kv.0", "kv.1"}


def test_picked_rows_move_up_to_the_last_attend():
    nodes = make_plan(decoder(blocks=2), ("logits",)).nodes
    at = max(i for i, node in enumerate(nodes) if node.op == "attend")
    assert str(nodes[at].outputs[0].rows) == "n"
    late = nodes[at + 1 :]
    assert all(str(n.outputs[0].rows) == "m" for n in late)
    assert [n.op for n in late].count("pick") == 2  # attention's result and the residual


def test_a_value_read_whole_elsewhere_is_not_picked_early():
    p, x = start()
    h = p.unary(x, "relu")
    p.output("y", p.pick(h, p.outputs))
    p.output("z", h)
    nodes = make_plan(p.build(), ("y", "z")).nodes
    assert [n.op for n in nodes] == ["unary", "pick"]
    assert str(nodes[0].outputs[0].rows) == "n"


def test_picks_pass_through_views():
    p, x = start()
    a, b = p.split(p.unary(x, "relu"), (16, 16))
    p.output("y", p.pick(p.add(a, b), p.outputs))
    plan = make_plan(p.build(), ("y",))
    assert [n.op for n in plan.nodes] == ["pick", "unary", "add"]
    assert all(str(n.outputs[0].rows) == "m" for n in plan.nodes)
    assert str(plan.outputs["y"].rows) == "m"


def test_linears_of_one_value_become_one_op():
    p, x = start()
    a, b, c = (p.linear(x, weight(16, 32, name)) for name in "abc")
    p.output("y", p.concat([p.unary(a, "relu"), p.unary(b, "exp"), p.unary(c, "tanh")]))
    assert ops(p) == ["linear", "concat"]
    assert ops(p, fuse=False).count("linear") == 3


def test_a_linear_that_needs_a_later_value_is_not_grouped_before_it():
    p, x = start()
    a = p.linear(x, weight(32, 32, "a"))
    h = p.softmax(a)
    p.output("y", p.add(h, p.linear(x, weight(32, 32, "b"))))
    plan = make_plan(p.build(), ("y",))
    assert [n.op for n in plan.nodes] == ["linear", "softmax", "linear"]


def test_gate_of_two_linears_becomes_a_pair():
    p, x = start()
    a, b = (p.linear(x, weight(16, 32, name)) for name in "ab")
    p.output("y", p.gate(a, b, "silu"))
    (segment,) = segments(p)
    assert (segment.weight.name, segment.pair.name, segment.gate) == ("a", "b", "silu")


def test_gate_of_two_products_by_expert_becomes_a_pair():
    nodes = make_plan(decoder(blocks=1, experts=4, hidden=64), ("logits",)).nodes
    by_expert = [n.attrs["segments"] for n in nodes if n.op == "linear_by_expert"]
    assert [(len(s), s[0].gate) for s in by_expert] == [(1, "silu"), (1, None)]
    assert "gate" not in [n.op for n in nodes]


def test_products_that_a_softmax_is_taken_of_are_marked_precise():
    nodes = make_plan(decoder(blocks=1), ("logits",)).nodes
    marked = [(n.attrs["precise"], len(n.attrs["segments"])) for n in nodes if n.op == "linear"]
    # query, key and value; attention's output; gate and up; down; the head
    assert marked == [(True, 3), (False, 1), (False, 1), (False, 1), (True, 1)]


def test_a_linear_with_two_readers_is_no_pair():
    p, x = start()
    a, b = (p.linear(x, weight(16, 32, name)) for name in "ab")
    p.output("y", p.add(p.gate(a, b, "silu"), a))
    assert all(s.pair is None for s in segments(p))


def test_residual_scale_and_activation_move_into_the_store():
    p, x = start()
    y = p.linear(x, weight(32, 32))
    p.output("y", p.add(x, p.mul(p.unary(y, "relu"), 0.5)))
    (segment,) = segments(p)
    assert [f.op for f in segment.finishes] == ["unary", "mul", "add"]
    assert segment.finishes[2].operand is x


def test_a_store_takes_on_four_ops_at_most():
    p, x = start()
    y = p.linear(x, weight(32, 32))
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        y = p.mul(y, value)
    p.output("y", y)
    assert ops(p) == ["linear", "mul"]


def test_fma_becomes_a_product_and_a_sum():
    p, x = start()
    vector = np.arange(32, dtype=np.float32)
    p.output("y", p.fma(p.linear(x, weight(32, 32)), vector, x))
    (segment,) = segments(p)
    assert [f.op for f in segment.finishes] == ["mul", "add"]


def test_a_wanted_product_keeps_its_own_store():
    p, x = start()
    y = p.linear(x, weight(32, 32))
    p.output("y", y)
    p.output("z", p.unary(y, "relu"))
    assert ops(p, ("y", "z")) == ["linear", "unary"]


def test_a_unary_after_a_convolution_moves_into_its_store():
    p, x = start()
    conv = p.conv1d(x, np.ones((32, 1, 4), np.float32), groups=32)
    p.output("y", p.unary(conv, "silu"))
    (node,) = make_plan(p.build(), ("y",)).nodes
    assert (node.op, node.attrs["unary"]) == ("conv1d", "silu")
    p.output("z", conv)
    assert ops(p, ("y", "z")) == ["conv1d", "unary"]
