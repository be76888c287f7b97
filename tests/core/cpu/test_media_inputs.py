"""Passes that carry rows of pictures, and the short way of those that carry none."""

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import Weight
from golem_core.reference import ReferenceExecutor

WIDTH, VOCABULARY = 32, 40


def program():
    """A decoder of one sliding block whose columns may be rows that see to their span's end."""
    rng = np.random.default_rng(7)
    table = Weight(
        "table",
        (VOCABULARY, WIDTH),
        by_name("F32"),
        random_blocks((VOCABULARY, WIDTH), by_name("F32"), rng, 1.0),
    )
    p = Builder("decoder")
    p.axis("n", 24)
    p.axis("m", 24)
    x = p.overlay(p.rows(table, p.tokens), p.embeddings(WIDTH), p.place)
    q = p.heads(x, 2)
    o = p.attend(q, q, q, p.ring("kv", 2, 16, window=8), scale=0.25, back=7, until=p.until)
    p.output("logits", p.linear(p.pick(p.add(x, p.flat(o)), p.outputs), table))
    return p.build()


def executors():
    made = program()
    options = {"slots": 2, "context": 64}
    return CpuExecutor(made, threads=2, **options), ReferenceExecutor(made, **options)


def text(rng, count, start, slot=0, role=1):
    return {
        "runs": np.array([[slot, 0, count, start, role]], np.int32),
        "tokens": rng.integers(0, VOCABULARY, count).astype(np.int32),
        "outputs": np.arange(count, dtype=np.int32),
    }


def media(rng, count, start, span):
    """A prompt whose columns span[0] .. span[1] - 1 are rows of one picture."""
    first, last = span
    inputs = text(rng, count, start)
    place = np.full(count, -1, np.int32)
    place[first:last] = np.arange(last - first)
    until = start + np.arange(count, dtype=np.int32)
    until[first:last] = start + last - 1
    rows = rng.standard_normal((last - first, WIDTH)).astype(np.float32)
    return inputs | {"place": place, "until": until, "embeddings": rows}


def test_passes_with_and_without_rows_equal_the_reference_in_any_order():
    rng = np.random.default_rng(1)
    mine, truth = executors()
    passes = [
        text(rng, 5, 0),
        media(rng, 20, 5, (3, 17)),
        text(rng, 1, 25, role=0),
        text(rng, 3, 0, slot=1),
        media(rng, 6, 26, (0, 6)),
        text(rng, 1, 32, role=0),
    ]
    for inputs in passes:
        found, wanted = (e.run(inputs)["logits"] for e in (mine, truth))
        assert np.abs(found - wanted).max() <= 5e-3 * np.abs(wanted).max()
    mine.close()


def test_the_short_way_of_text_gives_the_bits_of_inputs_spelled_out():
    rng = np.random.default_rng(2)
    short, long = executors()[0], executors()[0]
    for inputs in (media(rng, 9, 0, (2, 7)), text(rng, 4, 9), text(rng, 1, 13, role=0)):
        count = len(inputs["tokens"])
        spelled = {
            "place": np.full(count, -1, np.int32),
            "until": inputs["runs"][0, 3] + np.arange(count, dtype=np.int32),
            "embeddings": np.zeros((0, WIDTH), np.float32),
        } | inputs
        np.testing.assert_array_equal(short.run(inputs)["logits"], long.run(spelled)["logits"])
    short.close()
    long.close()


def test_a_row_that_a_column_sees_ahead_of_it_changes_what_it_gives():
    """Inside its picture a column sees the rows after it, and text before it does not."""
    rng = np.random.default_rng(3)
    mine, _ = executors()
    inputs = media(rng, 12, 0, (4, 9))
    before = mine.run(inputs)["logits"].copy()
    inputs["embeddings"][4] += 1
    after = mine.run(inputs)["logits"]
    changed = np.abs(after - before).max(1) > 0
    assert changed.tolist() == [False] * 4 + [True] * 8
    mine.close()


def test_a_place_outside_of_the_rows_is_refused():
    rng = np.random.default_rng(4)
    mine, truth = executors()
    inputs = media(rng, 12, 0, (4, 9))
    inputs["place"][5] = 5
    for executor in (mine, truth):
        with pytest.raises(ProgramError, match='input "place" holds -1 to 5, allowed are -1 to 4'):
            executor.run(inputs)
    mine.close()


def test_inputs_of_rows_that_only_scored_columns_need_are_bound_whole():
    """Where all that follows is picked, so are place and tokens: they still come a column each."""
    rng = np.random.default_rng(5)
    table = Weight(
        "table",
        (VOCABULARY, WIDTH),
        by_name("F32"),
        random_blocks((VOCABULARY, WIDTH), by_name("F32"), rng, 1.0),
    )
    p = Builder("shallow")
    p.axis("n", 24)
    p.axis("m", 3)
    x = p.overlay(p.rows(table, p.tokens), p.embeddings(WIDTH), p.place)
    p.output("logits", p.linear(p.pick(x, p.outputs), table))
    made = p.build()
    mine, truth = CpuExecutor(made, threads=1), ReferenceExecutor(made)
    inputs = media(rng, 20, 0, (3, 17))
    inputs.pop("runs")
    inputs["outputs"] = np.array([1, 9, 19], np.int32)
    found, wanted = (e.run(inputs)["logits"] for e in (mine, truth))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    mine.close()
