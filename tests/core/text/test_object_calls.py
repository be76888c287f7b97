"""Calls that are the whole answer, told from objects that the model says."""

import json

import pytest

from golem_core.text.calls import CallError
from golem_core.text.object_calls import ObjectCalls
from golem_core.text.sorter import Kind, Sorter

TOOLS = {"look": {"type": "object"}, "now": {}}
LOOK = '{"name": "look", "parameters": {"at": "a } \\" b", "n": [1.50, {"x": {}}]}}'
ARGUMENTS = '{"at":"a } \\" b","n":[1.50,{"x":{}}]}'


def sort(text, size, *, ended=True, **options):
    """Calls, and the text that is none."""
    one = Sorter(None, ObjectCalls(), TOOLS, **options)
    cuts = range(0, len(text), size) if size else [0]
    pieces = [p for at in cuts for p in one.push(text[at : at + size] if size else text)]
    pieces += one.finish(ended=ended)
    calls = [(p.name, p.text) for p in pieces if p.kind is Kind.CALL]
    return calls, "".join(p.text for p in pieces if p.kind is Kind.CONTENT)


CALLS = [
    (LOOK, ("look", ARGUMENTS)),
    (" \n" + LOOK + "\n", ("look", ARGUMENTS)),
    (LOOK[:-1], ("look", ARGUMENTS)),  # the model ended it before the last brace
    ('{"type": "function", "name": "now", "parameters": {}}', ("now", "{}")),
    ('{\n  "name": "now",\n  "parameters": {\n  }\n}', ("now", "{}")),
    ('{"name": "now", "arguments": {}}', ("now", "{}")),
    (LOOK + "; " + LOOK, ("look", ARGUMENTS)),  # its template knows one call an answer
    (LOOK + " and so on", ("look", ARGUMENTS)),
]
SAID = [
    "{",
    " {",
    "{}",
    '{"na',
    '{"name',
    "  {set} of things",
    '{"name": "Bob", "age": 3}',
    '{"name": "Bob"',
    '{"type": "circle", "name": "c"}',
    '{"answer": {"name": "look", "parameters": {}}}',
    "I look: " + LOOK,
    "[" + LOOK + "]",
    "",
    " ",
]


@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize(("text", "call"), CALLS)
def test_a_call_is_read_wherever_it_is_cut(text, call, size):
    assert sort(text, size) == ([call], "")
    assert json.loads(call[1]) == json.loads(json.dumps(json.loads(call[1])))


@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize("text", SAID)
def test_what_is_no_call_is_said_to_the_last_character(text, size):
    assert sort(text, size) == ([], text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "nope", "parameters": {}}', 'a call of "nope", which is none of the tools'),
        ('{"name": "", "parameters": {}}', "no function name"),
        ('{"name": "look", "parameters": 3}', "are not a JSON object"),
        ('{"name": "look", "parameters": {3}}', "not JSON"),
        (LOOK[:-3], "never closes"),
    ],
)
def test_a_call_that_cannot_be_read_is_an_error(text, message):
    for size in (0, 1):
        with pytest.raises(CallError, match=message):
            sort(text, size)


def test_a_call_that_is_cut_is_none_and_not_said():
    for end in range(12, len(LOOK) - 1):
        assert sort(LOOK[:end], 3, ended=False) == ([], "")


def test_prose_leaves_as_it_is_drawn():
    one = Sorter(None, ObjectCalls(), TOOLS)
    released = ["".join(p.text for p in one.push(letter)) for letter in ' {"no": 1} x']
    assert released == ["", "", "", "", ' {"no', *'": 1} x']
