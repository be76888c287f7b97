"""Passes run in pieces: the same bits as whole ones, and other passes in between."""

import re
import threading

import numpy as np
import pytest

from golem_core.cpu import CpuExecutor
from golem_core.formats.blocks import by_name, random_blocks
from golem_core.graph.builder import Builder
from golem_core.graph.values import ProgramError
from golem_core.graph.weights import Weight

WIDTH = 64


def tower(blocks=6):
    rng = np.random.default_rng(1)
    p = Builder("tower")
    x = p.input("x", (p.axis("k", 400), WIDTH))
    for i in range(blocks):
        type = by_name("F32")
        matrix = random_blocks((WIDTH, WIDTH), type, rng, 0.1)
        w = Weight(f"w{i}", (WIDTH, WIDTH), type, matrix)
        h = p.heads(p.linear(p.rms_norm(x, None, 1e-6), w), 4)
        x = p.add(x, p.flat(p.attend(h, h, h, scale=0.25, ahead=None)))
    p.output("rows", x)
    return p.build()


def columns(count):
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_pass_in_pieces_gives_the_bits_of_a_whole_one(threads):
    """The shortest time there is ends a piece at the first place where that is possible."""
    with CpuExecutor(tower(), threads=threads) as executor:
        whole = executor.run({"x": columns(300)}, ("rows",))["rows"].copy()
        with executor.begin({"x": columns(300)}, ("rows",)) as begun:
            pieces = 1
            while not begun.advance(1e-9):
                pieces += 1
            np.testing.assert_array_equal(begun.outputs["rows"], whole)
        assert pieces > 6
        with executor.begin({"x": columns(300)}, ("rows",)) as begun:
            assert begun.advance()
            np.testing.assert_array_equal(begun.outputs["rows"], whole)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_attention_is_left_between_its_tiles(threads):
    """More pieces than places where workers meet: a picture's attention alone may take seconds."""
    with CpuExecutor(tower(1), threads=threads) as executor:
        whole = executor.run({"x": columns(400)}, ("rows",))["rows"].copy()
        barriers = int(re.search(r"(\d+) barriers", executor.describe(("rows",)))[1])
        with executor.begin({"x": columns(400)}, ("rows",)) as begun:
            pieces = 1
            while not begun.advance(1e-9):
                pieces += 1
            np.testing.assert_array_equal(begun.outputs["rows"], whole)
        assert pieces > 2 * (barriers + 1)


def test_another_executor_runs_on_the_same_threads_between_pieces():
    with CpuExecutor(tower(), threads=2) as executor:
        other = CpuExecutor(tower(2), beside=executor)
        whole = executor.run({"x": columns(200)}, ("rows",))["rows"].copy()
        beside = other.run({"x": columns(9)}, ("rows",))["rows"].copy()
        with executor.begin({"x": columns(200)}, ("rows",)) as begun:
            while not begun.advance(1e-9):
                found = other.run({"x": columns(9)}, ("rows",))["rows"]
                np.testing.assert_array_equal(found, beside)
            np.testing.assert_array_equal(begun.outputs["rows"], whole)
        other.close()
        executor.run({"x": columns(1)}, ("rows",))  # its threads are still there


def test_no_other_pass_of_the_executor_begins_before_the_pieces_are_closed():
    with CpuExecutor(tower(1), threads=1) as executor:
        begun = executor.begin({"x": columns(5)}, ("rows",))
        begun.advance()
        made = []
        thread = threading.Thread(
            target=lambda: made.append(executor.run({"x": columns(7)}, ("rows",)))
        )
        thread.start()
        kept = begun.outputs["rows"].copy()
        assert not made
        np.testing.assert_array_equal(begun.outputs["rows"], kept)
        begun.close()
        begun.close()
        thread.join()
        assert made[0]["rows"].shape == (7, WIDTH)


def test_a_pass_left_half_way_does_no_harm():
    with CpuExecutor(tower(), threads=2) as executor:
        whole = executor.run({"x": columns(50)}, ("rows",))["rows"].copy()
        with executor.begin({"x": columns(300)}, ("rows",)) as begun:
            begun.advance(1e-9)
        np.testing.assert_array_equal(executor.run({"x": columns(50)}, ("rows",))["rows"], whole)
        with pytest.raises(ProgramError, match='reads input "x"'):
            executor.begin({}, ("rows",))
        np.testing.assert_array_equal(executor.run({"x": columns(50)}, ("rows",))["rows"], whole)


def decoder():
    """Three blocks that keep keys, over columns that are read or drawn."""
    rng = np.random.default_rng(2)
    p = Builder("decoder")
    x = p.input("x", (p.axis("n", 300), WIDTH))
    for i in range(3):
        matrix = random_blocks((WIDTH, WIDTH), by_name("Q8_0"), rng, 0.1)
        w = Weight(f"w{i}", (WIDTH, WIDTH), by_name("Q8_0"), matrix)
        h = p.heads(p.linear(p.rms_norm(x, None, 1e-6), w), 4)
        x = p.add(x, p.flat(p.attend(h, h, h, p.ring(f"kv{i}", 4, 16), scale=0.25)))
    p.output("y", x)
    return p.build()


def fed(slot, count, index, role):
    """A pass of one run; its columns are those that position had the last time."""
    rows = np.stack([columns(index + i + 1)[-1] for i in range(count)])
    return {"x": rows, "runs": np.array([[slot, 0, count, index, role]], np.int32)}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_prompt_read_in_pieces_between_drawn_passes_keeps_every_bit(threads):
    """Slot 0 is read in pieces, slot 1 is drawn between them by the twin; both in one memory."""
    options = {"threads": threads, "slots": 2, "context": 512}
    with CpuExecutor(decoder(), **options) as executor:
        executor.run(fed(1, 40, 0, 1), ("y",))
        prompt = executor.run(fed(0, 200, 0, 1), ("y",))["y"].copy()
        drawn = [executor.run(fed(1, 1, 40 + i, 0), ("y",))["y"].copy() for i in range(150)]
        then = executor.run(fed(0, 1, 200, 0), ("y",))["y"].copy()
    with CpuExecutor(decoder(), **options) as executor:
        twin = executor.twin(4, ("y",))
        assert executor.twin(4) is twin and twin.states is executor.states
        executor.run(fed(1, 40, 0, 1), ("y",))
        passes = 0
        with executor.begin(fed(0, 200, 0, 1), ("y",)) as begun:
            while not begun.advance(1e-9):
                found = twin.run(fed(1, 1, 40 + passes, 0), ("y",))["y"]
                np.testing.assert_array_equal(found, drawn[passes])
                passes += 1
            np.testing.assert_array_equal(begun.outputs["y"], prompt)
        assert passes > 3
        np.testing.assert_array_equal(executor.run(fed(0, 1, 200, 0), ("y",))["y"], then)
        with pytest.raises(ProgramError, match="made for 4"):
            twin.run(fed(1, 5, 0, 0), ("y",))
    with pytest.raises(RuntimeError, match="closed"):
        twin.run(fed(1, 1, 0, 0), ("y",))
