"""Answers that end by their lines."""

import pytest

from golem_core.schedule.lines import Lines


def run(pieces, **rules):
    """The text that is kept of pieces drawn a second apart, and whether the answer ended."""
    lines, kept = Lines(**rules), ""
    for place, piece in enumerate(pieces):
        text, over = lines.push(piece, 1000.0 * place)
        kept += text
        if over:
            return kept, True
    return kept, False


@pytest.mark.parametrize("cut", [1, 2, 3, 100])
def test_a_line_with_too_little_indentation_is_not_part_of_the_answer(cut):
    text = "def f():\n    a = 1\n\tb\n  return"
    pieces = [text[i : i + cut] for i in range(0, len(text), cut)]
    assert run(pieces, indent=2) == ("def f():\n    a = 1\n\t", True)
    assert run(pieces, indent=1) == (text, False)


def test_an_empty_line_is_not_indented():
    assert run(["a\n b\n", "\n c"], indent=1) == ("a\n b\n", True)


def test_time_is_up_at_the_end_of_a_line_only():
    assert run(["a\n", "b", "c\n", "d\n"], limit_ms=1500) == ("a\nbc\n", True)
    assert run(["a\n", "b\n", "c\n"], limit_ms=1500) == ("a\nb\nc\n", True)
    assert run(["a", "b", "c"], limit_ms=500) == ("abc", False)


def test_without_rules_everything_is_kept_and_lines_are_noticed():
    lines = Lines()
    assert lines.push("a", 1e9) == ("a", False)
    assert not lines.seen
    assert lines.push("\nb", 1e9) == ("\nb", False)
    assert lines.seen
