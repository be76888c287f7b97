"""The CPU planner: the record list of known programs, barriers, memory."""

from itertools import pairwise

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor
from golem_core.cpu.arrange import Chain, arrange
from golem_core.cpu.records import Buffer, Operand, Record
from golem_core.graph.builder import Builder
from golem_core.graph.values import extent_at
from tests.core.cpu.decoders import Maker, decoder, one_pass


def chains(program, wanted=("logits",), **options) -> list[Chain]:
    """The chains of a plan."""
    with CpuExecutor(program, slots=1, context=64, threads=2, **options) as ex:
        return ex._plan(wanted).arrangement.chains


def shown(order: list[Chain]) -> list[str]:
    """``|`` before what waits, ``:`` before what waits above two rows."""
    marks = {(False, False): "", (True, False): "|", (True, True): ":"}
    return [marks[c.barrier, c.unless_replica] + " ".join(r.kind for r in c.records) for c in order]


BLOCK = [
    "|rms_norm quantise",
    ":linear",
    "|rope",
    "rope store store",
    "|attend",
    "|linear",
    "|rms_norm quantise",
    ":linear",
    "|linear",
]


def test_a_llama_block_is_six_stages_for_one_column():
    made = shown([c for c in chains(decoder(blocks=3)) if not c.prompts])
    assert any(made[i : i + len(BLOCK)] == BLOCK for i in range(len(made)))
    assert sum(mark.startswith("|") for mark in BLOCK) == 6


def test_head_norm_rope_and_store_are_one_chain():
    made = shown(chains(decoder(blocks=1, head_norms=True), ("logits",)))
    assert "|rms_norm rope" in made
    assert "rms_norm rope store store" in made


def test_norm_sum_norm_and_quantise_are_one_chain():
    """gemma3: the norm after a product, the residual sum, the next norm and its codes."""
    assert "|rms_norm add rms_norm quantise" in shown(chains(decoder(blocks=2, post_norms=True)))


def linears(order: list[Chain]) -> list[Record]:
    return [c.head for c in order if c.head.kind == "linear"]


def test_gate_and_attention_quantise_what_they_store_and_keep_no_f32():
    order = chains(decoder(blocks=2))
    gate = next(r for r in linears(order) if r.segments[0].pair is not None)
    assert gate.segments[0].quantised is not None and gate.segments[0].store is None
    assert gate.segments[0].chunk % 2 == 0
    attend = next(c.head for c in order if c.head.kind == "attend")
    assert attend.outs[1] is not None  # codes of drawn columns; those of prompts: the next test


@pytest.mark.parametrize("d, after", [(64, ["quantise"]), (128, [])])
def test_attention_quantises_prompts_where_a_key_heads_queries_make_whole_blocks(d, after):
    """Two query heads share a key head: 128 values, or a prompt's block of 256."""
    order = chains(decoder(blocks=2, d=d))
    made = [r.kind for c in order if c.prompts for r in c.records]
    attend = next(c.head for c in order if c.head.kind == "attend")
    assert made == after and (attend.outs[0] is None) == (not after)


def test_no_other_chain_counts_on_the_barrier_of_one_that_is_only_for_prompts():
    order = chains(decoder(blocks=3))
    for chain, after in pairwise(order):
        if chain.prompts:
            assert chain.barrier and not chain.replica
            assert after.barrier and not after.unless_replica


def test_f32_weights_quantise_nothing():
    kinds = {r.kind for c in chains(decoder("F32", blocks=2)) for r in c.records}
    assert "quantise" not in kinds


def test_codes_are_made_once_for_all_products_that_read_them():
    order = chains(decoder(blocks=2, experts=4, hidden=128, kind="Q8_0"))
    made = [r for c in order if not c.prompts for r in c.records if r.kind == "quantise"]
    # A block: query, key, value; the experts' gate and up. Attention's result and the experts'
    # activations are quantised in the stores, but for the picked rows of the last; the head.
    assert len(made) == 2 * 2 + 1 + 1


def test_a_plain_plan_has_one_record_a_chain_and_a_finish_nowhere(monkeypatch):
    monkeypatch.setenv("GOLEM_PLAN", "plain")
    order = chains(decoder(blocks=2))
    assert all(len(c.records) == 1 for c in order)
    assert all(len(r.segments) == 1 and not r.segments[0].finishes for r in linears(order))
    assert not any(c.replica for c in order)


def record(kind: str, read, written, *, spans=1, rows=4, whole=False, **more) -> Record:
    """A record whose operands are whole rows of 8 elements."""
    ins, outs = ([Operand(b, 0, 8, 8) for b in some] for some in (read, written))
    return Record(kind, kind, rows, spans, 8, ins, outs, whole=whole, **more)


def buffers(count: int) -> list[Buffer]:
    return [Buffer(f"b{i}", 4, 32) for i in range(count)]


def test_a_record_that_reads_other_rows_is_not_chained_to_their_maker():
    a, b, c = buffers(3)
    order = arrange([record("add", [a], [b]), record("pick", [b], [c], elsewhere=(0,))])
    assert shown(order.chains) == ["add", "|pick"]


def test_independent_records_need_no_barrier():
    a, b, c, d = buffers(4)
    made = arrange([record("rope", [a], [b], spans=2), record("rope", [c], [d], spans=4)])
    assert shown(made.chains) == ["rope", "rope"]


def test_a_ring_is_read_after_it_is_written():
    a, b, c = buffers(3)
    store = record("store", [a], [], ring="kv", writes_ring=True)
    attend = record("attend", [b], [c], ring="kv", reads_ring=True, whole=True)
    assert shown(arrange([store, attend]).chains) == ["store", "|attend"]
    assert shown(arrange([attend, store]).chains) == ["attend", "|store"]


@pytest.mark.parametrize("options", [{}, {"post_norms": True}, {"experts": 4, "hidden": 128}])
def test_live_buffers_never_overlap(options):
    with CpuExecutor(decoder(blocks=3, **options), slots=2, context=64, threads=3) as ex:
        plan = ex._plan(("logits",))
        uses: dict[int, list[int]] = {}
        known = {}
        for chain in plan.arrangement.chains:
            for r in chain.records:
                for b in (*r.read(), *r.written()):
                    uses.setdefault(id(b), []).append(chain.phase)
                    known[id(b)] = b
        for arena in plan._arenas:
            placed = [(k, arena.places[k]) for k in uses if k in arena.places]
            assert len(placed) > 20
            for i, (k, at) in enumerate(placed):
                size = known[k].row_bytes * extent_at(known[k].rows, arena.maxima)
                assert at % 64 == 0 and at + size <= arena.size
                for other, there in placed[i + 1 :]:
                    apart = max(uses[k]) < min(uses[other]) or max(uses[other]) < min(uses[k])
                    assert apart or at + size <= there or there < at


def test_memory_is_shared_between_blocks():
    def size(blocks: int) -> int:
        with CpuExecutor(decoder(blocks=blocks), slots=1, context=64, threads=2) as ex:
            return max(a.size for a in ex._plan(("logits",))._arenas)

    assert size(8) == size(4)


def test_outputs_survive_until_the_next_run():
    """A second output made early is not overwritten by what runs after it."""
    p, w = Builder("two"), Maker("F32")
    x = p.input("x", (p.axis("n", 32), 64))
    early = h = p.unary(x, "relu")
    for _ in range(6):
        h = p.linear(p.rms_norm(h, None, 1e-6), w.matrix(64, 64))
    p.output("early", early)
    p.output("late", h)
    given = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    with CpuExecutor(p.build(), threads=2) as ex:
        made = ex.run({"x": given}, ("early", "late"))
        np.testing.assert_array_equal(made["early"], np.maximum(given, 0))


def test_weight_bytes_count_each_weight_once_and_only_chosen_experts():
    with CpuExecutor(decoder(blocks=2), slots=8, context=64, threads=2) as ex:
        ex.run(one_pass((0, 1, 0, 0)))
        one = ex.stats.weight_bytes
        ex.run(one_pass(*((s, 1, 0, 0) for s in range(8))))
        assert ex.stats.weight_bytes == one == ex.weights.nbytes
    mixture = decoder(blocks=1, experts=16, hidden=128, kind="Q8_0")
    with CpuExecutor(mixture, slots=8, context=64, threads=2) as ex:
        ex.run(one_pass((0, 1, 0, 0)))
        experts = [w for w in mixture.weights.values() if len(w.shape) == 3]
        one_expert = sum(ex.weights[w].bytes // 16 for w in experts)
        rest = ex.weights.nbytes - 16 * one_expert
        assert ex.stats.weight_bytes == rest + 2 * one_expert
        same = one_pass(*((s, 1, 0, 0) for s in range(8)))
        same["tokens"][:] = same["tokens"][0]
        ex.run(same)  # eight columns choose the same two: each is read once
        assert ex.stats.weight_bytes == rest + 2 * one_expert
        ex.run(one_pass(*((s, 1, 1, 0) for s in range(8))))
        chosen, left = divmod(ex.stats.weight_bytes - rest, one_expert)
        assert left == 0 and 2 < chosen <= 16
