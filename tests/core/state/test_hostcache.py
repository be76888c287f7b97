"""The host's cache of conversations: what is put away, what comes back, what has to go."""

import numpy as np
import pytest

from golem_core.state.hostcache import HostCache
from golem_core.state.stored import Stored
from tests.core.schedule.fakes import FakeClock

SIZE = 100  # bytes of a test's entry, whatever its text


def ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def entry(text, size=SIZE, **fields):
    tokens = ids(text)
    return Stored(tokens, {"ring": np.zeros(size - tokens.nbytes, np.uint8)}, **fields)


def cache(limit=10 * SIZE, positions=1000, clock=None):
    return HostCache(limit, positions, clock or FakeClock())


def put(host, text, size=SIZE, **fields):
    host.put(ids(text), size, lambda: entry(text, size, **fields))


def texts(host):
    return ["".join(map(chr, stored.tokens)) for _, stored in host._entries]


@pytest.mark.parametrize(
    ("held", "prompt", "similar", "wanted"),
    [
        ("aaaaaaaa", "aaaabbbb", True, False),  # half of it stays: not below half
        ("aaaaaaaa", "aaabbbbb", True, True),
        ("aaaaaaaa", "aaaaaaaa", False, True),  # taken because it was unused the longest
        ("", "aaaa", False, True),
    ],
)
def test_when_a_slot_is_looked_at(held, prompt, similar, wanted):
    assert cache().wants(ids(held), ids(prompt), similar) == wanted
    assert not cache(limit=0).wants(ids(held), ids(prompt), similar)


def test_what_an_entry_holds_already_is_not_put_away_again():
    host = cache()
    put(host, "abcdef")
    put(host, "abcd")
    assert texts(host) == ["abcdef"]
    put(host, "abcdefgh")  # and it takes the place of what it contains
    assert texts(host) == ["abcdefgh"]
    put(host, "abx")
    assert texts(host) == ["abcdefgh", "abx"]
    put(host, "")
    assert len(host) == 2


def test_the_oldest_make_room_and_what_is_too_large_stays_out():
    host = cache(limit=3 * SIZE)
    for text in ("a1", "b2", "c3", "d4"):
        put(host, text)
    assert texts(host) == ["b2", "c3", "d4"]
    put(host, "large", 3 * SIZE + 1)
    assert texts(host) == ["b2", "c3", "d4"]
    put(host, "two", 2 * SIZE)
    assert (texts(host), host.nbytes) == (["d4", "two"], 3 * SIZE)


def test_more_tokens_than_a_slot_has_are_kept_while_their_bytes_fit():
    """100 bytes for 10 tokens: a limit of 300 bytes is worth 30 tokens."""
    for positions, left in ((30, 3), (5, 3)):
        host = cache(limit=3 * SIZE, positions=positions)
        for letter in "abc":
            put(host, letter * 10)
        assert len(host) == left
    host = cache(limit=10 * SIZE, positions=5)
    put(host, "a" * 10, 10 * SIZE)
    assert len(host) == 1


@pytest.mark.parametrize(
    ("held", "prompt", "elsewhere", "found"),
    [
        ("", "aaaaxxxx", 0, "aaaabbbb"),
        ("", "aaaabbbbyy", 0, "aaaabbbb"),
        ("", "axxxxxxx", 0, None),  # less than a quarter of the entry
        ("", "aaxxxxxx", 0, "aaaabbbb"),  # a quarter
        ("aaaa", "aaaaxxxx", 0, None),  # the slot serves it as well
        ("aaaazzzz", "aaaabbxx", 0, "aaaabbbb"),  # more of both
        ("aaaab", "aaaabbxx", 0, None),  # more of the prompt, less of the entry than of the slot
        ("", "aaaaxxxx", 4, None),  # another slot has as much
        ("", "aaaaxxxx", 3, "aaaabbbb"),
    ],
)
def test_what_comes_back(held, prompt, elsewhere, found):
    host = cache()
    put(host, "aaaabbbb")
    stored = host.get(ids(held), ids(prompt), elsewhere)
    assert (stored and "".join(map(chr, stored.tokens))) == found
    assert len(host) == (found is None)


def test_the_best_of_several_comes_back():
    host = cache()
    for text in ("abcdefgh", "abcdxxxxxxxxxxxx", "abzz"):
        put(host, text)
    assert "".join(map(chr, host.get(ids(""), ids("abcdefzz")).tokens)) == "abcdefgh"
    assert texts(host) == ["abcdxxxxxxxxxxxx", "abzz"]


def test_what_cannot_be_rewound_comes_back_to_its_end_or_to_a_checkpoint():
    state = np.zeros(1, np.uint8)
    for checkpoints, prompt, found in [
        ((), "abcdefghij", True),
        ((), "abcdefgx", False),
        (((4, state),), "abcdefgx", True),
        (((4, state),), "abcx", False),
    ]:
        host = cache()
        put(host, "abcdefgh", recurrent=True, checkpoints=checkpoints)
        assert (host.get(ids(""), ids(prompt)) is not None) == found


def test_entries_are_forgotten_by_age():
    clock = FakeClock()
    host = cache(clock=clock)
    put(host, "old")
    clock.now += 10
    put(host, "new")
    host.forget(clock.now - 10)
    assert texts(host) == ["new"]
    host.clear()
    assert (len(host), host.nbytes) == (0, 0)
