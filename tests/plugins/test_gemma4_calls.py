"""Gemma 4's answers are sorted as llama.cpp sorts them, whole and at every prefix.

The vectors hold what llama.cpp b11434 made of each output and what it had released at every
prefix. golem differs on purpose: a call leaves when it is whole and is never lost without an
error. ``EXPECTED`` lists the cases where that shows.
"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.sample.grammar import Grammar, Matcher, Vocabulary
from golem_core.sample.grammar.schema import expression_of
from golem_core.text.sorter import CallError, Kind, Sorter
from golem_plugins.gemma4.calls import Gemma4Calls
from golem_plugins.gemma4.model import Gemma4
from golem_plugins.gemma4.notation import QUOTE, GemmaNotation
from tests import paths

VECTORS = json.loads(gzip.decompress(paths.data("text/gemma4_parse.json.gz").read_bytes()))
TOOLS = {t["function"]["name"]: t["function"]["parameters"] for t in VECTORS["tools"]}
CASES = [(part, case) for part in ("with_tools", "without_tools") for case in VECTORS[part]]
# What golem makes of outputs where llama.cpp gives a partial call, a doubtful one, or nothing: the
# calls, or the error that says what cannot be read.
EXPECTED = {
    "bare_word_value": 'a value that is none: "hello"',
    "unknown_tool": 'a call of "nope", which is none of the tools',
    "unclosed_call": "never closes",
    "quoted_keys": [("f", '{"s":"x"}')],  # llama.cpp takes the quotes for letters of the key
}


def sorter(part):
    calls = (Gemma4.call, TOOLS) if part == "with_tools" else (None, None)
    return Sorter(Gemma4.reasoning, *calls, strays=Gemma4.strays)


def expected(part, case):
    return EXPECTED.get(case["name"]) if part == "with_tools" else None


def message(pieces):
    def text(kind):
        return "".join(p.text for p in pieces if p.kind is kind)

    calls = [(p.name, p.text) for p in pieces if p.kind is Kind.CALL]
    return text(Kind.CONTENT), text(Kind.REASONING), calls


def ids():
    return [f"{part}-{case['name']}" for part, case in CASES]


@pytest.mark.parametrize(("part", "case"), CASES, ids=ids())
def test_results(part, case):
    wanted, one = expected(part, case), sorter(part)
    if isinstance(wanted, str):
        with pytest.raises(CallError, match=wanted):
            one.push(case["output"])
            one.finish()
        return
    content, reasoning, calls = message(one.push(case["output"]) + one.finish())
    theirs = case["llamacpp"]
    assert content == theirs["content"]
    assert reasoning == theirs.get("reasoning_content", "")
    made = [
        (c["function"]["name"], c["function"]["arguments"]) for c in theirs.get("tool_calls", [])
    ]
    assert calls == (made if wanted is None else wanted)


def releases(case):
    """Content and reasoning that llama.cpp had released at every prefix, by its bytes."""
    size = len(case["output"].encode())
    content, reasoning = [""] * (size + 1), [""] * (size + 1)
    for entry in case["llamacpp_stream"]:
        for delta in entry.get("d", []):
            for at in range(entry["at"], size + 1):
                content[at] += delta.get("c", "")
                reasoning[at] += delta.get("r", "")
    return content, reasoning


@pytest.mark.parametrize(("part", "case"), CASES, ids=ids())
def test_every_prefix_has_released_the_same(part, case):
    """Line breaks at the end of a thought wait for more of it; calls leave whole."""
    content, reasoning = releases(case)
    one, ours, at = sorter(part), [], 0
    for letter in case["output"]:
        at += len(letter.encode())
        try:
            ours += one.push(letter)
        except CallError:
            assert isinstance(expected(part, case), str)
            return
        said, thought, _ = message(ours)
        assert thought == reasoning[at].strip("\n")
        assert said == content[at]


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        ("a<|channel>b", "ab"),
        ("a<channel|>b<|channel>", "ab"),
        ("<|channel>thought\nx<|channel>y<channel|>z", "z"),
        ("<|channel>\n<|channel>thought\nx<channel|>z", "\nz"),
    ],
)
def test_marks_without_their_meaning_never_leave(output, wanted):
    whole, letters = sorter("without_tools"), sorter("without_tools")
    at_once = message(whole.push(output) + whole.finish())
    pieces = [piece for letter in output for piece in letters.push(letter)]
    assert message(pieces + letters.finish()) == at_once
    assert at_once[0] == wanted


def test_marks_stay_where_the_thought_stays_in_the_content():
    output = "a<|channel>b<|channel>thought\nx<channel|>z<channel|>"
    one = Sorter(Gemma4.reasoning, inline=True, strays=Gemma4.strays)
    assert message(one.push(output) + one.finish())[0] == output


CALL = f"<|tool_call>call:f{{s:{QUOTE}x{QUOTE}}}<tool_call|>"


@pytest.mark.parametrize("rest", ["", "\n", "<|tool_response>", "<tool", "done", "<channel|>"])
def test_what_follows_the_last_call_is_left_out(rest):
    one = sorter("with_tools")
    assert message(one.push(CALL + rest) + one.finish()) == ("", "", [("f", '{"s":"x"}')])


def test_another_call_may_follow_a_stray_mark():
    one = sorter("with_tools")
    found = one.push(CALL + "<channel|>" + CALL) + one.finish()
    assert message(found)[2] == [("f", '{"s":"x"}')] * 2


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("call:f{}", "{}"),
        (" call:f{ }\n", "{}"),
        (f"call:f{{s:{QUOTE}{QUOTE}}}", '{"s":""}'),
        (f'call:f{{s:{QUOTE}a "b" \\ c\n{QUOTE}}}', '{"s":"a \\"b\\" \\\\ c\\n"}'),
        ("call:f{ b : [ 1 , -2.5e+3 ] , a : { c:null } }", '{"b":[1,-2.5e+3],"a":{"c":null}}'),
        ("call:f{n:123456789012345678901234567890}", '{"n":123456789012345678901234567890}'),
        ("call:f{b:True,z:None}", '{"b":true,"z":null}'),
        (f"call:f{{first name:{QUOTE}é{QUOTE}}}", '{"first name":"é"}'),
        (f"call:f{{{QUOTE}a:b}}{QUOTE}:1}}", '{"a:b}":1}'),
        ('call:f{s:"as\\njson"}', '{"s":"as\\njson"}'),
        (f"call:f{{s:{QUOTE}<tool_call|>{QUOTE}}}", '{"s":"<tool_call|>"}'),
        ("call:f{a:1,a:2}", '{"a":2}'),
    ],
)  # fmt: skip
def test_calls_are_read(body, arguments):
    call = Gemma4Calls().parse(body, {"f": {}})
    assert call == ("f", arguments)
    assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "does not begin with call:"),
        ("f{}", "does not begin with call:"),
        ("call:{}", "no function name"),
        ("call:f", "no arguments block"),
        ("call:g{}", 'a call of "g"'),
        ("call:f{", "no name"),
        ("call:f{a", "no value"),
        ("call:f{a}", "no value"),
        ("call:f{:1}", "no name"),
        ("call:f{a:}", "a value that is none"),
        ("call:f{a:1", "not closed by }"),
        ("call:f{a:[1}", "not closed by ]"),
        ("call:f{a:1,}", "nothing follows"),
        ("call:f{a:[1,]}", "nothing follows"),
        ("call:f{a:1}}", "goes on after"),
        ("call:f{a:01}", "a value that is none"),
        ("call:f{a:1x}", "a value that is none"),
        ("call:f{a:NaN}", "a value that is none"),
        ("call:f{a:" + "[" * 5000, "nest too deep"),
        ('call:f{a:"\\x"}', "a string that is none"),
    ],
)
def test_what_cannot_be_read_is_named(body, message):
    with pytest.raises(CallError, match=message):
        Gemma4Calls().parse(body, {"f": {}})


@pytest.mark.parametrize("body", [f"call:f{{s:{QUOTE}it ends", 'call:f{s:"it', f"call:f{{{QUOTE}k"])
def test_a_closing_mark_in_a_string_closes_nothing(body):
    assert Gemma4Calls().parse(body, {"f": {}}) is None


# ---- forced calls ----

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "kind": {"enum": ["a b", 3, None, {"x": [True]}]},
        "odd:key": {"type": "integer"},
        "code": {"type": "string", "pattern": '^[A-Z<>|"]{2,5}$'},
        "list": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
        "free": {},
        "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
BYTES = Vocabulary([bytes([i]) for i in range(256)])


def admits(body, schema):
    matcher = Matcher(
        Grammar(Gemma4Calls().body("f", expression_of(schema, GemmaNotation()))), BYTES
    )
    for byte in body.encode():
        if not matcher.allows(byte):
            return False
        matcher.accept(byte)
    return matcher.may_end


@pytest.mark.parametrize(
    ("arguments", "admitted"),
    [
        (f"{{city:{QUOTE}Lyon{QUOTE}}}", True),
        (f"{{city:{QUOTE}a<|b{QUOTE}}}", True),
        (f"{{city:{QUOTE}{QUOTE},kind:{QUOTE}a b{QUOTE}}}", True),
        (f"{{city:{QUOTE}{QUOTE},kind:{{x:[true]}}}}", True),
        (f"{{city:{QUOTE}{QUOTE},kind:null,{QUOTE}odd:key{QUOTE}:-3}}", True),
        (f"{{city:{QUOTE}{QUOTE},list:[1,2.5e3]}}", True),
        (f"{{city:{QUOTE}{QUOTE},free:[{{a:{QUOTE}x{QUOTE}}},null]}}", True),
        (f"{{city:{QUOTE}{QUOTE},map:{{a:true,b-2:false}}}}", True),
        (f"{{city:{QUOTE}{QUOTE},code:{QUOTE}AB{QUOTE}}}", True),
        ("{}", False),
        ('{city:"Lyon"}', False),
        (f"{{city: {QUOTE}Lyon{QUOTE}}}", False),
        (f"{{city:{QUOTE}{QUOTE},kind:4}}", False),
        (f"{{city:{QUOTE}{QUOTE},odd:key:3}}", False),
        (f"{{city:{QUOTE}{QUOTE},code:{QUOTE}A{QUOTE}}}", False),
        (f"{{city:{QUOTE}{QUOTE},code:{QUOTE}{QUOTE}{QUOTE}}}", False),
        (f"{{city:{QUOTE}{QUOTE},map:{{a:1}}}}", False),
    ],
)  # fmt: skip
def test_a_forced_call_is_of_the_schema_in_the_notation(arguments, admitted):
    assert admits(f"call:f{arguments}", SCHEMA) == admitted


TEXTS = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def sayable(value):
    """Whether no text of a value holds the quote, which the notation has no escape for."""
    return QUOTE not in json.dumps(value, ensure_ascii=False).replace('\\"', '"')


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(TEXTS, JSON_VALUES, max_size=4).filter(sayable))
def test_arguments_are_read_as_they_were_meant(arguments):
    """Written in the notation, admitted by the grammar of their own schema, and read again."""
    written = "call:f" + GemmaNotation().literal(arguments).data.decode()
    call = Gemma4Calls().parse(written, {"f": {}})
    assert call is not None
    assert json.loads(call.arguments) == arguments
    assert admits(written, {"const": arguments})
