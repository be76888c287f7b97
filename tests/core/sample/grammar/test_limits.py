"""Grammars that turn out to ask too much while an answer is drawn."""

import pytest

from golem_core.sample.grammar import Grammar, GrammarLimit, Matcher, Vocabulary

BYTES = Vocabulary([bytes([i]) for i in range(256)] + [b""], ends=[256])
LONG = Vocabulary([b"a", *(b"b" * n for n in range(1, 1000)), b""], ends=[1000])
MAYBE = "root ::= 'a' " + "x " * 2000 + "\n"
READINGS = " | ".join(f'"b" "{chr(100 + i)}"' for i in range(20))


def compiled(text: str) -> Grammar:
    return Grammar.compile(text.replace("'", '"'))


@pytest.mark.parametrize(
    ("text", "vocabulary", "says"),
    [
        (MAYBE + "x ::= 'b'? 'c'? 'd'?", BYTES, "more than 10000 steps .*fewer parts in a row"),
        (MAYBE + f"x ::= ('b' | {READINGS})?", LONG, "one token takes more than .*begin diff"),
        (MAYBE + f"x ::= ({READINGS} | {READINGS.replace('b', 'c')} | 'b')?", BYTES, "remember"),
    ],
    ids=["deep", "long", "much"],
)
def test_each_limit_names_itself_and_what_helps(text, vocabulary, says):
    """The grammar itself is sound: nothing is wrong before its first byte."""
    matcher = Matcher(compiled(text), vocabulary)
    with pytest.raises(GrammarLimit, match=says):
        matcher.feed(b"a")
        matcher.allowed()


def test_one_answer_past_the_limit_stops_no_other_of_its_grammar():
    """What is kept is shared; only who needs more than its share is refused."""
    grammar = Grammar.compile('root ::= "a" root "b" | "c"')
    modest, greedy = Matcher(grammar, BYTES), Matcher(grammar, BYTES)
    modest.feed(b"aaa")
    for _ in range(1000):
        try:
            greedy.feed(b"a" * 1000)
        except GrammarLimit:
            break
        assert modest.allowed().tolist() == [97, 99]
    else:
        pytest.fail("the limit was never reached")
    assert modest.feed(b"cbbb") and modest.may_end
    assert Matcher(grammar, BYTES).feed(b"c")
