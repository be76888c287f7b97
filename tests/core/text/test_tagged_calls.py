"""Qwen's answers are sorted as llama.cpp sorts them, whole and at every prefix.

The vectors hold what llama.cpp b11434 made of each output and what it had released at every
prefix. golem differs on purpose: line breaks around a thought are the template's, arguments are
compact JSON, a call leaves when it is whole and is never lost without an error. ``EXPECTED`` lists
the cases where that shows.
"""

import gzip
import json

import pytest

from golem_core.sample.grammar import Grammar, Matcher, Vocabulary
from golem_core.sample.grammar.schema import expression_of
from golem_core.text.sorter import CallError, Kind, Sorter
from golem_core.text.tagged_calls import QwenCalls, TaggedCalls
from tests import paths

VECTORS = json.loads(gzip.decompress(paths.data("text/qwen_parse.json.gz").read_bytes()))
TOOLS = {t["function"]["name"]: t["function"]["parameters"] for t in VECTORS["tools"]}
MARKS = ("<think>", "</think>")


KINDS = {
    "qwen3": (QwenCalls(), False),
    "qwen38_thinking": (TaggedCalls(), True),
    "qwen38_nothink": (TaggedCalls(), False),
}
CASES = [(kind, case) for kind in KINDS for case in VECTORS[kind]["cases"]]
BOTH = ("qwen38_thinking", "qwen38_nothink")
LYON = ("get_weather", '{"city":"Lyon"}')
# What golem makes of outputs where llama.cpp gives partial calls, prose, or nothing at all: the
# calls, or the error that says what cannot be read.
EXPECTED = {
    # read, since nothing about it is unclear
    ("qwen3", "compact_json"): [LYON],
    ("qwen3", "args_before_name"): [LYON],
    **{
        (kind, "params_out_of_order"): [("get_weather", '{"days":3,"city":"Lyon"}')]
        for kind in BOTH
    },
    **{(kind, "unknown_param"): [("get_weather", '{"city":"Lyon","zip":1}')] for kind in BOTH},
    **{(kind, "no_newlines"): [LYON] for kind in BOTH},
    # never half-read
    ("qwen3", "unclosed"): "never closes",
    **{(kind, "unclosed_call"): "never closes" for kind in BOTH},
    # never lost without a word
    **{(kind, "unknown_tool"): 'a call of "nope", which is none of the tools' for kind in KINDS},
    **{(kind, "bad_integer"): "is not of the type that the tool asks for" for kind in BOTH},
    ("qwen3", "text_after"): "something follows a call",
}


def ids(cases):
    return [f"{kind}-{case['name']}" for kind, case in cases]


def sorter(kind):
    notation, inside = KINDS[kind]
    return Sorter(MARKS, notation, TOOLS, inside=inside)


def message(pieces):
    def text(kind):
        return "".join(p.text for p in pieces if p.kind is kind)

    calls = [(p.name, p.text) for p in pieces if p.kind is Kind.CALL]
    return text(Kind.CONTENT), text(Kind.REASONING), calls


@pytest.mark.parametrize(("kind", "case"), CASES, ids=ids(CASES))
def test_results(kind, case):
    expected = EXPECTED.get((kind, case["name"]))
    one = sorter(kind)
    if isinstance(expected, str):
        with pytest.raises(CallError, match=expected):
            one.push(case["output"])
            one.finish()
        return
    content, reasoning, calls = message(one.push(case["output"]) + one.finish())
    theirs = case["llamacpp"]
    if expected is not None:
        assert calls == expected
        assert not content
        return
    assert content == theirs["content"]
    assert reasoning == theirs.get("reasoning_content", "").strip("\n")
    written = [
        (c["function"]["name"], c["function"]["arguments"]) for c in theirs.get("tool_calls", [])
    ]
    assert [name for name, _ in calls] == [name for name, _ in written]
    for (_, ours), (_, other) in zip(calls, written, strict=True):
        assert json.loads(ours) == json.loads(other)
        assert list(json.loads(ours)) == list(json.loads(other))


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


@pytest.mark.parametrize(("kind", "case"), CASES, ids=ids(CASES))
def test_every_prefix_has_released_the_same(kind, case):
    """Line breaks at the end of a thought wait for more of it; calls leave whole."""
    content, reasoning = releases(case)
    one = sorter(kind)
    ours = []
    at = 0
    fails = isinstance(EXPECTED.get((kind, case["name"])), str)
    for letter in case["output"]:
        at += len(letter.encode())
        try:
            ours += one.push(letter)
        except CallError:
            assert fails
            return
        said, thought, _ = message(ours)
        assert thought == reasoning[at].strip("\n")
        if (kind, case["name"]) == ("qwen3", "compact_json"):
            assert not said  # llama.cpp takes it for prose
        else:
            assert said == content[at]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name":"f","arguments":{}}', "{}"),
        (' {\n "name" : "f" ,\t"arguments" : { "b" : [ 1 , 2.50 ] , "a" : null } } ',
         '{"b":[1,2.50],"a":null}'),
        ('{"name":"f","arguments":{"n":1e400,"m":123456789012345678901234567890}}',
         '{"n":1e400,"m":123456789012345678901234567890}'),
        ('{"name":"f","arguments":{"s":"a  \\" \\\\ b","t":"\\u00e9é"}}',
         '{"s":"a  \\" \\\\ b","t":"\\u00e9é"}'),
        ('{"name":"f","arguments":{"s":"two\nlines\t"}}', '{"s":"two\\nlines\\t"}'),
        ('{"id":7,"arguments":{"x":{"y":[]}},"name":"f","more":[{}]}', '{"x":{"y":[]}}'),
        ("<function=f>\n</function>", "{}"),
        ("<function=f><parameter=s></parameter></function>", '{"s":""}'),
        ("<function=f>\n<parameter=s>\n</parameter>\n</function>", '{"s":""}'),
        ("<function=f>\n<parameter=free>\n[1, 2]\n</parameter>\n</function>", '{"free":[1,2]}'),
        ("<function=f>\n<parameter=free>\nplain words\n</parameter>\n</function>",
         '{"free":"plain words"}'),
        ('<function=f>\n<parameter=free>\n"quoted"\n</parameter>\n</function>',
         '{"free":"\\"quoted\\""}'),
        ("<function=f>\n<parameter=b>\nTrue\n</parameter>\n<parameter=z>\nNone\n</parameter>"
         "\n</function>", '{"b":true,"z":null}'),
        ("<function=f>\n<parameter=either>\n12\n</parameter>\n</function>", '{"either":12}'),
        ("<function=f>\n<parameter=either>\ntwelve\n</parameter>\n</function>",
         '{"either":"twelve"}'),
        ("<function=f>\n<parameter=colour>\n12\n</parameter>\n</function>", '{"colour":"12"}'),
        ("<function=f>\n<parameter=s>\na</parameter>\n</function>", '{"s":"a"}'),
    ],
)  # fmt: skip
def test_calls_are_read_in_either_spelling(body, arguments):
    schema = {
        "properties": {
            "s": {"type": "string"},
            "b": {"type": "boolean"},
            "z": {"type": "null"},
            "either": {"type": ["string", "integer"]},
            "colour": {"enum": ["red", "12"]},
        }
    }
    call = QwenCalls().parse(body, {"f": schema})
    assert call == ("f", arguments)
    assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "not JSON"),
        ("[]", "not JSON"),
        ('{"name":"f","arguments":{}', "not JSON"),
        ('{"name":"f","arguments":{}} x', "not JSON"),
        ('{"name":"f","arguments":{"x":NaN}}', "not JSON"),
        ('{"name":"f",}', "not JSON"),
        ('{"name":"f" "arguments":{}}', "not JSON"),
        ('{name:"f"}', "not JSON"),
        ('{"name":"f","arguments":' + '{"x":' * 9000, "not JSON"),
        ('{"arguments":{}}', "no function name"),
        ('{"name":5,"arguments":{}}', "no function name"),
        ('{"name":"f"}', "no arguments block"),
        ('{"name":"f","arguments":"{}"}', "not a JSON object"),
        ('{"name":"f","arguments":null}', "not a JSON object"),
        ('{"name":"g\\ud800","arguments":{}}', r'a call of "g\\ud800", which is none'),
        ("<function=f", "a function tag that never closes"),
        ("<function=>\n</function>", "no function name"),
        ("<function=f>\nwords\n</function>", "besides parameters"),
        ("<function=f>\n", "besides parameters"),
        ("<function=f>\n</function>\nwords", "besides parameters"),
        ("<function=f>\n<parameter=>\n1\n</parameter>\n</function>", "no name"),
    ],
)
def test_what_cannot_be_read_is_named(body, message):
    with pytest.raises(CallError, match=message):
        QwenCalls().parse(body, {"f": {}})


@pytest.mark.parametrize(
    "body",
    [
        '{"name":"f","arguments":{"s":"it ends',
        '{"name":"f","argu',
        "<function=f>\n<parameter=s>\nit",
    ],
)
def test_a_closing_tag_in_a_string_closes_nothing(body):
    assert QwenCalls().parse(body, {"f": {}}) is None


def test_the_grammar_of_a_call_is_read_as_that_call():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    body = QwenCalls().body('we"ather', expression_of(schema))
    vocabulary = Vocabulary([bytes([i]) for i in range(256)])
    written = '\n{"name": "we\\"ather", "arguments": {"city": "Lyon"}}\n'
    matcher = Matcher(Grammar(body), vocabulary)
    for byte in written.encode():
        assert not matcher.may_end
        matcher.accept(byte)
    assert matcher.may_end
    assert QwenCalls().parse(written, {'we"ather': schema}) == ('we"ather', '{"city":"Lyon"}')
