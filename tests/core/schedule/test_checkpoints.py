"""Where a memory that cannot be rewound is taken up again, and what that saves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.model.memory import Estimate, checkpoint_memory
from golem_core.sample import SamplerParams
from golem_core.schedule import Engine, Request
from golem_core.schedule.checkpoints import EVERY, FLOOR, LONGEST, Checkpoints, granted
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.slots import Slot
from tests.core.schedule.fakes import WAIT, FakeModel

ROOM = 1 << 20


def recurrent(**fields):
    return FakeModel(recurrent=True, **{"context": 8192, "pass_width": 512, **fields})


def fed(engine, tokens, **fields):
    """How many tokens of a prompt are fed."""
    params = SamplerParams(temperature=0)
    request = Request(list(tokens), max_tokens=1, params=params, **fields)
    return engine.submit(request).wait(WAIT).fed_tokens


def text(seed, count):
    return np.random.default_rng(seed).integers(0, 256, count).tolist()


def test_a_sheet_with_changing_ends_is_read_twice_and_then_only_its_ends():
    sheet, other = text(0, 600), text(1, 300)
    with Engine(recurrent(), checkpoints=2) as engine:
        assert [fed(engine, sheet + [i] * 3) for i in range(4)] == [603, 603, 3, 3]
        assert engine.stats.restored == 2
        assert fed(engine, other) == 300
        assert engine.stats.restored == 2
        assert fed(engine, sheet + [9] * 3) == 603  # the copies were given up with the text


def test_without_copies_it_is_continued_or_read_again():
    with Engine(recurrent(), checkpoints=0) as engine:
        assert fed(engine, [1, 2, 3]) == 3
        assert fed(engine, [1, 2, 3, 4, 5]) == 2
        assert fed(engine, [1, 2, 3]) == 3
        assert fed(engine, [1, 2, 9, 9]) == 4


def test_the_same_prompt_again_costs_one_position():
    """Drawn anew at once, and after the conversation has gone on past another copy."""
    sheet = text(0, 700)
    with Engine(recurrent(), checkpoints=2) as engine:
        assert [fed(engine, sheet) for _ in range(3)] == [700, 1, 1]
        assert fed(engine, [*sheet, *text(1, 400)]) == 400
        assert fed(engine, sheet) == 1


def test_a_long_prompt_leaves_a_copy_every_1024_positions():
    sheet = text(0, 3800)
    model = recurrent()
    with Engine(model, checkpoints=3) as engine:
        assert fed(engine, [*sheet, 1, 2]) == 3802
        ends = {run[3] + run[2] for seen in model.executor.seen for run in seen.runs}
        assert {1024, 2048, 3072, 3520} <= ends  # the last: 256 before the end, where a block is
        assert fed(engine, [*sheet, 3, 4, 5]) == 3803 - 3520
        assert fed(engine, [*sheet, 6]) == 1
        assert fed(engine, [*sheet[:3100], 7]) == 3101 - 3072  # the copy at 3,520 made room
        assert fed(engine, [*sheet[:1000], 8]) == 1001  # the copy at 1,024 made room for later ones


@pytest.mark.parametrize("count", [1, 40, 300, 1000])
def test_the_copy_is_where_the_last_message_begins_when_that_is_told(count):
    """The second prompt feeds its ending alone; so do all after it, long endings too."""
    sheet, ends = text(0, 3801), [[i, *text(i, count - 1)] for i in range(4)]
    with Engine(recurrent(), checkpoints=3) as engine:
        told = [fed(engine, sheet + end, ending=count) for end in ends]
        assert told == [3801 + count, count, count, count]


def test_short_prompts_have_one_where_the_last_message_begins_too():
    with Engine(recurrent(), checkpoints=2) as engine:
        sheet = text(0, 300)
        assert [fed(engine, sheet + [i] * 20, ending=20) for i in range(3)] == [320, 20, 20]


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 5000), st.integers(-9, 6000))
def test_an_ending_that_is_told_moves_one_copy(start, shared, end, ending):
    kept, before = Checkpoints(3), Checkpoints(3).wanted(start, shared, end)
    wanted = kept.wanted(start, shared, end, ending)
    at = end - ending
    if ending < 1 or ending > LONGEST or at < FLOOR:
        assert wanted == before  # of no use
    elif at <= start:
        assert set(wanted) <= set(before)
    else:
        guess = (end - FLOOR) // 64 * 64
        assert at in wanted
        assert set(wanted) ^ set(before) <= {at, guess}


def test_where_the_next_prompt_does_part_the_copy_is_kept():
    kept = Checkpoints(3)
    for position in kept.wanted(0, 0, 1600, 400):
        kept.room(position, 8)
    assert kept.positions == [1024, 1200, 1599]
    kept.forget_after(1200)
    kept.touch(kept.latest(1200)[0])
    assert kept.wanted(1200, 1200, 2100, 900) == [2048, 2099]
    for position in (2048, 2099):
        kept.room(position, 8)
    assert kept.positions == [1200, 2048, 2099]


def test_the_one_unused_for_longest_makes_room():
    kept = Checkpoints(2)
    first, second = kept.room(300, 8), kept.room(400, 8)
    assert first is not None and second is not None
    kept.touch(kept.latest(300)[0])
    assert kept.room(500, 8) is second  # its memory too
    assert kept.positions == [300, 500]
    assert kept.room(500, 8) is None  # there is one; it counts as used
    kept.room(600, 8)
    assert kept.positions == [500, 600]
    kept.forget_after(500)
    assert kept.positions == [500]


def test_the_one_before_the_end_makes_room_for_the_one_where_prompts_parted():
    kept = Checkpoints(3)
    assert kept.wanted(0, 0, 2000) == [1024, 1728, 1999]
    for position in (1024, 1728, 1999):
        kept.room(position, 8)
    kept.forget_after(1900)
    kept.touch(kept.latest(1900)[0])
    assert kept.wanted(1728, 1900, 2400) == [1900, 2048, 2399]
    kept.room(1800, 8)
    kept.room(1900, 8)  # where the next prompt parted
    assert kept.positions == [1024, 1800, 1900]
    kept.room(2048, 8)
    assert kept.positions == [1800, 1900, 2048]


def test_early_ones_are_not_worth_it():
    kept = Checkpoints(2)
    assert kept.room(FLOOR - 1, 8) is None
    assert kept.room(FLOOR, 8) is not None
    assert kept.wanted(0, FLOOR - 1, FLOOR) == []
    assert kept.wanted(0, FLOOR - 1, 900) == [899]
    assert kept.wanted(0, FLOOR, 900) == [FLOOR, 899]
    assert kept.wanted(900 - FLOOR, FLOOR, 900) == []  # little was read


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 5000))
def test_where_copies_are_wanted(start, shared, end):
    places = {p for p in range(start + 1, end) if p % EVERY == 0}
    if start < shared < end and shared >= FLOOR:
        places.add(shared)
    before_end = (end - FLOOR) // 64 * 64
    if end > EVERY and all(not before_end - FLOOR < p <= before_end for p in {start, *places}):
        places |= {before_end} if before_end > start else set()
    if end - start > FLOOR:
        places.add(end - 1)
    assert Checkpoints(3).wanted(start, shared, end) == sorted(places)
    assert Checkpoints(0).wanted(start, shared, end) == []


def test_a_sliding_ring_that_was_written_over_makes_a_copy_useless():
    """A model with both: the window before the copy must still be there."""
    owners = RingOwners([(64, 128)])
    slot = Slot(0, 4096, owners, Checkpoints(3))
    ids = np.array(text(0, 2000), np.int32)
    slot.rewind(ids, cache_prompt=True)
    for at in (300, 1500):
        slot.fed(ids[slot.count : at], at - slot.count)
        slot.checkpoints.room(at, 8)
    other = np.concatenate([ids[:1500], [1, 2]]).astype(np.int32)
    slot.fed(ids[1500:1520], 20)
    assert slot.kept(other).at == 1500
    slot.fed(ids[1520:1900], 380)
    assert slot.kept(other).at == 0


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 1600), st.integers(1, 40)), max_size=7),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_whatever_was_read_before_an_answer_is_what_it_is_cold(turns, checkpoints, slots, told):
    """Prompts that share the beginnings of three sheets, in any order."""
    sheets = [text(i, 1700) for i in range(3)]
    params = SamplerParams(seed=3, temperature=1)
    asked = [
        Request(
            sheets[s][:count] + text(count + end, end),
            max_tokens=8,
            params=params,
            ending=end if told else None,
        )
        for s, count, end in turns
    ]
    with Engine(recurrent(slots=slots), checkpoints=checkpoints) as engine:
        warm = [engine.submit(request).wait(WAIT).tokens for request in asked]
    for request, tokens in zip(asked, warm, strict=True):
        with Engine(recurrent(), checkpoints=0) as engine:
            assert engine.submit(request).wait(WAIT).tokens == tokens


@pytest.mark.parametrize(
    ("asked", "slots", "size", "memory", "wanted"),
    [
        (3, 1, 100, 300, 3),
        (3, 1, 100, 299, 2),
        (3, 4, 100, 799, 1),
        (3, 4, 100, 399, 0),
        (0, 4, 100, 10_000, 0),
        (3, 4, 0, 0, 0),  # nothing recurrent, nothing to copy
    ],
)
def test_as_many_are_granted_as_the_memory_holds(asked, slots, size, memory, wanted):
    assert granted(asked, slots, size, memory) == wanted


def test_their_memory_is_a_quarter_of_the_machines_and_what_the_model_leaves_at_most():
    needs = Estimate(weights=500, rings=200, arena=100, per_position=1)
    assert checkpoint_memory(needs, limit=2000) == 500
    assert checkpoint_memory(needs, limit=1000) == 200
    assert checkpoint_memory(needs, asked=150, limit=1000) == 150
    assert checkpoint_memory(needs, asked=150, limit=700) == 0


def test_an_engine_grants_what_fits():
    model = recurrent(slots=2)
    size = model.executor.states.recurrent_bytes
    with Engine(model, checkpoints=5, checkpoint_memory=7 * size) as engine:
        assert (engine.checkpoints, engine.checkpoint_bytes) == (3, size)
    assert Engine(FakeModel()).checkpoints == 0
