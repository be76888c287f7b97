"""How much of a prompt is fed: the vectors of the sliding ring, and a brute-force check."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.schedule.checkpoints import Checkpoints
from golem_core.schedule.prefix import RingOwners
from golem_core.schedule.slots import Slot
from golem_core.state.stored import common_prefix


def ids(*tokens):
    return np.array(tokens, np.int32)


class Held:
    """A slot, fed one conversation after the other."""

    def __init__(self, window, capacity, recurrent=False):
        owners = RingOwners([(window, capacity)] if window else [])
        self.slot = Slot(0, 1024, owners, Checkpoints(0) if recurrent else None)

    def prompt(self, *tokens):
        """Feeds a prompt; returns how many of its tokens were fed."""
        kept, _ = self.slot.rewind(ids(*tokens), cache_prompt=True)
        assert list(self.slot.held) == list(tokens[: kept.at])
        count = len(tokens) - kept.at
        self.slot.fed(ids(*tokens[kept.at :]), count)
        return count

    def draw(self, *tokens):
        for token in tokens:
            self.slot.fed(token)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix_is_the_length_of_the_longest_shared_beginning(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    assert common_prefix(ids(*a), ids(*b)) == n


def test_a_full_ring_feeds_what_is_new_and_always_the_last_token():
    held = Held(0, 0)
    assert held.prompt(1, 2, 3) == 3
    assert held.prompt(1, 2, 3) == 1
    assert held.prompt(1, 2, 3, 4, 5) == 2
    assert held.prompt(1, 2, 9, 9) == 2
    assert held.prompt(1) == 1


def test_rewinding_a_ring_that_kept_only_its_window_feeds_everything():
    held = Held(4, 4)
    assert held.prompt(*range(8)) == 8
    assert held.prompt(0, 1, 2, 3, 4, 99) == 6


def test_rewinding_a_ring_that_wrapped_feeds_everything():
    held = Held(4, 8)
    held.prompt(*range(14))
    assert held.prompt(*range(6), 99) == 7


def test_rewinding_a_ring_that_did_not_wrap_feeds_only_the_divergence():
    held = Held(4, 8)
    held.prompt(*range(7))
    assert held.prompt(0, 1, 2, 3, 4, 99) == 1
    assert held.prompt(0, 1, 2, 3, 4, 99, 100) == 1


def test_drawn_tokens_write_over_the_ring_as_prompts_do():
    held = Held(4, 8)
    held.prompt(*range(6))
    held.draw(*range(50, 58))
    assert held.prompt(*range(6), 99) == 7


def test_a_memory_that_cannot_be_rewound_is_continued_or_read_again():
    held = Held(0, 0, recurrent=True)
    assert held.prompt(1, 2, 3) == 3
    assert held.prompt(1, 2, 3, 4, 5) == 2
    assert held.prompt(1, 2, 3) == 3
    assert held.prompt(1, 2, 9, 9) == 4


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 24)).map(lambda wx: (wx[0], wx[0] + wx[1])),
        min_size=1,
        max_size=2,
    ),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=6),
)
def test_reading_resumes_at_the_last_place_whose_windows_are_whole(shapes, turns):
    """Against rings that really store the tokens, one place at a time."""
    owners = RingOwners(shapes)
    rings = [dict() for _ in shapes]  # place -> position
    held = 0

    def whole(at):
        return all(
            ring.get(p % capacity) == p
            for (window, capacity), ring in zip(shapes, rings, strict=True)
            for p in range(max(0, at - window + 1), at)
        )

    for back, count in turns:
        shared = min(back, held)
        start = owners.intact_from(shared)
        assert start == max(at for at in range(shared + 1) if whole(at))
        owners.write(start, count)
        held = start + count
        for ring, (_, capacity) in zip(rings, shapes, strict=True):
            for p in range(start, held):
                ring[p % capacity] = p


@pytest.mark.parametrize(("start", "count"), [(0, 3), (2, 8), (5, 20)])
def test_a_write_longer_than_the_ring_leaves_the_last_positions(start, count):
    owners = RingOwners([(4, 8)])
    owners.write(start, count)
    ends = start + count
    assert owners.intact_from(ends) == (ends if count >= min(3, ends) else 0)
