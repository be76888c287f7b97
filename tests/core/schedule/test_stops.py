"""Stop texts against a plain search of the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from golem_core.schedule.stops import StopFilter

letters = st.text("ab", min_size=1, max_size=5)


@given(st.lists(letters, max_size=4), st.lists(st.text("abc", max_size=4), max_size=12))
def test_what_is_shown_never_holds_any_part_of_a_stop_text(stops, pieces):
    filter = StopFilter(stops)
    shown, found = "", ""
    seen = ""
    for piece in pieces:
        seen += piece
        text, found = filter.push(piece)
        shown += text
        if found:
            break
        held = seen[len(shown) :]
        longest = max(
            (n for stop in stops for n in range(len(stop)) if n and seen.endswith(stop[:n])),
            default=0,
        )
        assert len(held) == longest  # not a character more than must be held is
    if found:
        assert seen[len(shown) :].startswith(found)
        assert len(shown) == min(seen.find(stop) for stop in stops if stop in seen)
    else:
        assert not any(stop in seen for stop in stops)
        assert shown + filter.flush() == seen


def test_the_longer_of_two_stop_texts_that_begin_together_wins():
    assert StopFilter(["ab", "abc"]).push("xxabcd") == ("xx", "abc")


def test_empty_stop_texts_are_ignored():
    assert StopFilter(["", ""]).push("text") == ("text", "")


def test_a_long_stop_text_costs_no_more_than_the_text_it_is_compared_with():
    stop = "a" * 20000 + "b"
    filter = StopFilter([stop])
    for _ in range(2000):
        assert filter.push("a" * 5) == ("", "")
    shown, found = filter.push("c" + stop)
    assert (shown, found) == ("a" * 10000 + "c", stop)
