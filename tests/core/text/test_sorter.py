"""The sorter's promises: marks never leave, nothing is lost, and streaming changes nothing."""

import json

import pytest

from golem_core.text.calls import Call, CallError, CallFormat, compact, known, members
from golem_core.text.sorter import Kind, Piece, Sorter, shown_tokens
from tests.fuzz.sorter import parts

MARKS = ("<t>", "</t>")


class Notation(CallFormat):
    """``[[{"name": …, "arguments": …}]]``."""

    open = "[["
    close = "]]"

    def parse(self, body, tools):
        found = json.loads(body)
        return Call(known(found["name"], tools), compact(json.dumps(found["arguments"])))

    def body(self, name, arguments):
        raise NotImplementedError


class Loose(CallFormat):
    """A name between brackets; it ends a thought, and what follows is left out."""

    open = "[["
    close = "]]"
    ends_thought = True
    drops_rest = True
    quotes = ("|",)

    def parse(self, body, tools):
        return None if body.count("|") % 2 else Call(known(body.strip("|"), tools), "{}")

    def body(self, name, arguments):
        raise NotImplementedError


def sort(text, *, size=0, ended=True, calls=None, tools=None, **options):
    """What a sorter makes of a text in pieces of ``size`` characters; 0 = whole."""
    one = Sorter(MARKS, calls, tools, **options)
    cuts = range(0, len(text), size) if size else [0]
    pieces = [p for at in cuts for p in one.push(text[at : at + size] if size else text)]
    return parts(pieces + one.finish(ended=ended))


def said(content="", reasoning="", *calls):
    return content, reasoning, list(calls)


CASES = [
    ("", {}, said()),
    ("plain", {}, said("plain")),
    ("<t>a</t>b", {}, said("b", "a")),
    ("<t>\n\na\n\nb\n\n</t>\n\nc\n\nd\n", {}, said("c\n\nd\n", "a\n\nb")),
    ("<t>\n\n</t>\n\nb", {}, said("b")),
    ("<t>open to the end\n", {}, said("", "open to the end")),
    ("a<t>b</t>c<t>d</t>e", {}, said("ace", "bd")),
    ("<t>a<t>b</t>c", {}, said("c", "ab")),
    ("<t>a\n<t>\nb</t>c", {}, said("c", "a\n\nb")),
    ("x</t>y", {}, said("x</t>y")),
    ("a\n</t>\nb", {"inside": True}, said("b", "a")),
    ("a", {"inside": True}, said("", "a")),
    ("a <", {}, said("a <")),
    ("<t>a</t", {}, said("", "a</t")),
    ("<t>\na\n</t>\n\nb", {"inline": True}, said("<t>\na\n</t>\n\nb")),
    ("a\n</t>\n\nb<t>c", {"inline": True, "inside": True}, said("a\n</t>\n\nb<t>c")),
    ("[[f]] is prose", {}, said("[[f]] is prose")),
    ("a [[f]]", {"calls": Loose(), "tools": {"f": {}}}, said("a ", "", ("f", "{}"))),
    (
        "<t>a\n[[f]]\n[[f]] rest [[f]]",
        {"calls": Loose(), "tools": {"f": {}}},
        said("", "a", ("f", "{}"), ("f", "{}")),
    ),
    ("[[|]]|]]", {"calls": Loose(), "tools": {"]]": {}}}, said("", "", ("]]", "{}"))),
    (
        "[[f]][[f]]",
        {"calls": Loose(), "tools": {"f": {}}, "single": True},
        said("", "", ("f", "{}")),
    ),
    ("[[f]]<t>a</t>", {"calls": Loose(), "tools": {"f": {}}}, said("", "a", ("f", "{}"))),
    ("[[f", {"calls": Loose(), "tools": {"f": {}}}, said("", "", ("f", "{}"))),
    ("a[[f", {"calls": Loose(), "tools": {"f": {}}, "ended": False}, said("a")),
    ("a[", {"calls": Loose(), "tools": {"f": {}}, "ended": False}, said("a[")),
]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5])
@pytest.mark.parametrize(("text", "options", "expected"), CASES, ids=[c[0] or "-" for c in CASES])
def test_an_answer_is_sorted_the_same_wherever_it_is_cut(text, options, expected, size):
    assert sort(text, size=size, **options) == expected


def test_a_thought_and_prose_leave_as_they_are_drawn():
    one = Sorter(MARKS)
    released = [(p.kind, p.text) for letter in "<t>ab</t>c<d" for p in one.push(letter)]
    assert released == [
        (Kind.REASONING, "a"),
        (Kind.REASONING, "b"),
        (Kind.CONTENT, "c"),
        (Kind.CONTENT, "<d"),
    ]


def test_a_call_leaves_whole_in_the_step_that_closes_it():
    one = Sorter(MARKS, Notation(), {"f": {}})
    text = 'say[[{"name": "f", "arguments": {"a": 1}}]]'
    steps = [one.push(letter) for letter in text]
    assert [step for step in steps[3:-1] if step] == []
    assert steps[-1] == [Piece(Kind.CALL, '{"a":1}', "f")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[{"name": "g", "arguments": {}}]]', 'a call of "g", which is none of the tools'),
        ('[[{"name": "f", "arguments": {}}]] and so', "something follows a call"),
        ('[[{"name": "f", "arguments": {}}]]<', "something follows a call"),
    ],
)
def test_a_finished_call_that_cannot_be_read_is_an_error(text, message):
    with pytest.raises(CallError, match=message):
        sort(text, calls=Notation(), tools={"f": {}})


@pytest.mark.parametrize("text", ["[[|f", "[[g"])
def test_a_call_that_the_model_left_open_is_an_error(text):
    with pytest.raises(CallError, match="a call that never closes"):
        sort(text, calls=Loose(), tools={"f": {}})
    assert sort(text, calls=Loose(), tools={"f": {}}, ended=False) == said()


def test_without_marks_everything_is_prose_at_once():
    one = Sorter()
    assert one.push("<think>a</think>") == [Piece(Kind.CONTENT, "<think>a</think>")]
    assert one.push("") == one.finish() == []


def test_members_keep_the_texts_of_their_values():
    found = members(' { "a" : [1, 2.50] , "b\\n" : "x" } ')
    assert found == {"a": ([0, 0.0], "[1, 2.50]"), "b\n": ("x", '"x"')}
    assert members("{}") == {}
    for wrong in ("", "{", "{}x", "[]", '{"a":1,}', "{1:2}", '{"a" 1}'):
        with pytest.raises(ValueError):
            members(wrong)


def test_control_tokens_of_marks_are_shown_and_no_others():
    vocabulary = {"<t>": 1, "</t>": 2, "<e>": 3, "word": 4}

    class Tokenizer:
        def encode(self, text, *, parse_special):
            assert parse_special
            return [vocabulary[text]] if text in vocabulary else [1, 4]

        def is_control(self, token):
            return token < 4

    assert shown_tokens(Tokenizer(), ["<t>", "</t>", "<t>word"], ()) == {1, 2}
    assert shown_tokens(Tokenizer(), ["<t>", "<e>"], frozenset({3})) == {1}
