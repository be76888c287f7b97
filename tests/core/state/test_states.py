"""States: the shapes declarations ask for, and one slot's bytes in and out."""

import os
from itertools import pairwise

import numpy as np
import pytest

from golem_core.state import Matrix, Ring, StateError, States, Window

DECLARED = [
    Ring("full", heads=2, k=4, v=3),
    Ring("slide", heads=1, k=4, v=4, window=40),
    Ring("frames", heads=1, k=2, v=2, rate=2),
    Matrix("delta", heads=2, v=3, k=5),
    Window("conv", rows=3, channels=7),
]


def filled(states: States) -> States:
    rng = np.random.default_rng(1)
    for ring in states.rings.values():
        ring.k[...] = rng.standard_normal(ring.k.shape)
        ring.v[...] = rng.standard_normal(ring.v.shape)
    for array in (states.matrices | states.windows).values():
        array[...] = rng.standard_normal(array.shape)
    return states


def test_a_full_ring_keeps_the_context_and_a_sliding_one_window_and_pass_rounded_up_to_64():
    states = States(DECLARED, slots=3, context=300, pass_width=32)
    assert states.rings["full"].k.shape == (3, 5, 2, 64, 4)
    assert states.rings["full"].v.shape == (3, 5, 2, 64, 3)
    assert states.rings["slide"].k.shape == (3, 2, 1, 64, 4)
    assert states.rings["frames"].capacity == 640
    assert states.matrices["delta"].shape == (3, 2, 3, 5)
    assert states.windows["conv"].shape == (3, 3, 7)


def test_a_sliding_ring_is_never_larger_than_the_context_needs():
    assert Ring("r", 1, 4, 4, window=4096).capacity(context=100, pass_width=512) == 128


def test_arrays_are_zero_aligned_and_of_the_cache_type_and_lines_of_a_block_contiguous():
    states = States({d.name: d for d in DECLARED}, 2, 100, 16, type_k="f16", type_v="f16")
    arrays = [a for r in states.rings.values() for a in (r.k, r.v)]
    assert all(a.dtype == np.float16 for a in arrays)
    arrays += [*states.matrices.values(), *states.windows.values()]
    for array in arrays:
        assert not array.any()
        assert array[0, 0].flags.c_contiguous and array.flags.writeable
        assert array.ctypes.data % 64 == 0
    assert states.nbytes == sum(a.nbytes for a in arrays) == sum(a.nbytes for a in states.memory)
    for ring in states.rings.values():
        assert ring.k.strides[:2] == ring.v.strides[:2]
    assert (
        States(DECLARED, 2, 100, 16, type_k="f32", type_v="f32").rings["full"].k.dtype == np.float32
    )


def test_memory_that_nobody_touched_costs_nothing():
    def resident() -> int:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    states = States([Ring("big", 8, 128, 128)], slots=4, context=131072, pass_width=512)
    assert states.nbytes == 2 * 4 * 8 * 128 * 131072 * 2  # 2 GiB
    assert resident() - before < 64 << 20


def test_what_64_positions_keep_lies_together_whatever_the_ring():
    """So that a slot of few positions takes few pages, huge ones too."""
    heads = [Ring(f"r{i}", 3, 64, 64) for i in range(30)]
    states = States(heads, slots=2, context=8192, pass_width=16)
    block = 30 * 2 * 3 * 64 * 64 * 2  # bytes
    spans = []
    for ring in states.rings.values():
        ring.put(1, np.arange(64, 100), *(np.ones((36, 3, 64)) for _ in "kv"))
        spans += [(a[1, 1].ctypes.data, a[1, 1].nbytes) for a in (ring.k, ring.v)]
    spans.sort()
    assert all(a + size == b for (a, size), (b, _) in pairwise(spans))
    (memory,) = states.memory
    first = spans[0][0] - memory.ctypes.data
    assert first == (128 + 1) * block
    assert memory[first : first + block].any()
    assert not memory[:first].any() and not memory[first + block :].any()


def as_bytes(saved):
    return {name: array.tobytes() for name, array in saved.items()}


@pytest.mark.parametrize("positions", [0, 5, 130, 300])
def test_a_saved_slot_restores_into_another_one_bit_for_bit(positions):
    states = filled(States(DECLARED, 2, 300, 32))
    saved = states.save(0, positions)
    other = filled(States(DECLARED, 2, 300, 32))
    for ring in other.rings.values():
        ring.k[...] = 7
    untouched = other.save(0, 300)
    other.restore(1, positions, saved)
    assert as_bytes(other.save(1, positions)) == as_bytes(saved)
    assert as_bytes(other.save(0, 300)) == as_bytes(untouched)
    used = min(positions, 128)
    assert len(saved["slide"]) == used * 8 * 2
    assert len(saved["delta"]) == 30 * 4
    assert states.saved_bytes(positions) == sum(map(len, saved.values()))


def test_what_is_saved_is_one_piece_of_memory():
    """Hundreds of small ones that come and go leave holes, and the process grows."""
    saved = States(DECLARED, 2, 300, 32).room(130)
    spans = sorted((array.ctypes.data, array.nbytes) for array in saved.values())
    for (start, size), (following, _) in pairwise(spans):
        assert 0 <= following - (start + size) < 64
    assert len({id(array.base) for array in saved.values()}) == 1


def test_a_copied_slot_equals_its_source_and_keeps_what_lies_beyond():
    states = filled(States(DECLARED, 2, 300, 32))
    beyond = states.rings["full"].lines(1, np.arange(50, 320))
    states.copy(0, 1, 50)
    assert as_bytes(states.save(1, 50)) == as_bytes(states.save(0, 50))
    for now, then in zip(states.rings["full"].lines(1, np.arange(50, 320)), beyond, strict=True):
        assert np.array_equal(now, then)


def test_bytes_of_another_shape_are_refused_before_anything_is_written():
    states = filled(States(DECLARED, 2, 300, 32))
    before = states.save(1, 300)
    saved = states.save(0, 9)
    with pytest.raises(StateError, match="state full: 252 bytes saved, 280 wanted"):
        states.restore(1, 10, saved | {"slide": states.save(0, 10)["slide"]})
    with pytest.raises(StateError, match=r"saved states have nothing besides and lack .*slide"):
        states.restore(1, 9, {"full": np.empty(0, np.uint8)})
    with pytest.raises(StateError, match=r"have nextn\.hidden besides .* -draft mtp and auto"):
        states.restore(1, 9, states.save(0, 9) | {"nextn.hidden": np.empty(0, np.uint8)})
    assert as_bytes(states.save(1, 300)) == as_bytes(before)


def test_only_recurrent_states_cannot_be_rewound():
    assert States(DECLARED, 1, 64, 8).recurrent
    assert not States(DECLARED[:3], 1, 64, 8).recurrent


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type_k": "q9"}, "a cache of 'q9'"),
        ({"type_v": "q8_0"}, "a q8_0 cache needs a head size that is a multiple of 32"),
        ({"slots": 0}, "0 slots"),
        ({"declarations": ["ring"]}, "neither a Ring"),
        ({"context": 1 << 60}, "lower -context"),
    ],
)
def test_what_cannot_be_allocated_is_refused_by_name(change, text):
    with pytest.raises(StateError, match=text):
        States(**{"declarations": DECLARED, "slots": 1, "context": 64, "pass_width": 8, **change})


def test_slots_and_positions_outside_are_refused():
    states = States(DECLARED, 2, 64, 8)
    with pytest.raises(StateError, match="slot 2: there are 2"):
        states.save(2, 1)
    with pytest.raises(StateError, match="65 positions"):
        states.copy(0, 1, 65)


def test_what_a_slot_cannot_rewind_is_copied_out_and_into_another_slot():
    states = filled(States(DECLARED, slots=3, context=100, pass_width=16))
    before = states.take_recurrent(2)
    assert before.nbytes == states.recurrent_bytes == (2 * 3 * 5 + 3 * 7) * 4
    ring = states.rings["full"].k.copy()
    mine = {name: a[1].copy() for name, a in states.recurrent_arrays.items()}
    states.put_recurrent(2, states.take_recurrent(1))
    for name, array in states.recurrent_arrays.items():
        np.testing.assert_array_equal(array[2], mine[name])
        np.testing.assert_array_equal(array[1], mine[name])
    np.testing.assert_array_equal(states.rings["full"].k, ring)
    states.put_recurrent(0, before)
    np.testing.assert_array_equal(states.take_recurrent(0), before)


def test_a_copy_of_another_size_or_slot_is_refused():
    states = States(DECLARED, slots=1, context=100, pass_width=16)
    with pytest.raises(StateError, match="slot 1: there are 1"):
        states.take_recurrent(1)
    with pytest.raises(StateError, match=r"\(7,\); a slot has 204 bytes"):
        states.put_recurrent(0, np.zeros(7, np.uint8))
