"""GBNF as llama.cpp reads it: what is said in errors, and the corners of the notation."""

import pytest

from golem_core.sample.grammar import Grammar, GrammarError, GrammarLimit, Matcher, Vocabulary

BYTES = Vocabulary([bytes([i]) for i in range(1, 256)] + [b""], ends=[255])


def accepts(grammar, text):
    matcher = Matcher(Grammar.compile(grammar), BYTES)
    return matcher.feed(text.encode() if isinstance(text, str) else text) and matcher.may_end


@pytest.mark.parametrize(
    "text, says, where",
    [
        ("root = 1", "expecting ::= at '= 1'", (1, 6)),
        ('root ::= "a"\n_ ::= "b"', "expecting name at '_ ::= \"b\"'", (2, 1)),
        ('root ::= "a" }', "expecting newline or end at '}'", (1, 14)),
        ('root ::= ("a"', "expecting ')' at the end", (1, 14)),
        ("root ::= * ", "expecting preceding item to */+/?/{ at", (1, 10)),
        ('root ::= "a', "unexpected end of input", (1, 12)),
        ("root ::= [a", "unexpected end of input", (1, 12)),
        ("root ::= a", "Undefined rule identifier 'a'", (1, 10)),
        (r'root ::= "\q"', r"unknown escape at '\\q", (1, 11)),
        (r'root ::= "\x4"', "expecting 2 hex chars at", (1, 11)),
        ('root ::= "a"{,3}', "expecting an int at ',3}'", (1, 14)),
        ('root ::= "a"{3', "expecting ',' at the end", (1, 15)),
        ('root ::= "a"{3,2}', "at least 3 and at most 2", (1, 13)),
        ('root ::= "a"{2001}', "number of repetitions exceeds sane defaults", (1, 13)),
        ("root ::= []", "an empty class", (1, 10)),
        ("root ::= [z-a]", "runs backwards", (1, 10)),
        ("root ::= <a", "expecting a token", (1, 10)),
        ("root ::= <[a]>", "invalid token '<[a]>'", (1, 10)),
        (r'root ::= "\U00110000"', "no character", (1, 11)),
        ('root ::= ("a"{0,50}){50}', "multiplied by the new repetition", None),
    ],
)
def test_errors_say_what_and_where(text, says, where):
    with pytest.raises(GrammarError) as caught:
        Grammar.compile(text)
    assert says in str(caught.value)
    if where:
        assert (caught.value.line, caught.value.column) == where
        assert f"(line {where[0]}, column {where[1]})" in str(caught.value)


@pytest.mark.parametrize("text", ["", 'x ::= "a"', '# root ::= "a"'])
def test_a_grammar_starts_at_root(text):
    with pytest.raises(GrammarError, match="does not contain a 'root' symbol"):
        Grammar.compile(text)


@pytest.mark.parametrize(
    "text",
    [
        "root ::= root",
        'root ::= root "a" | "b"',
        'root ::= a "x"\na ::= "y"? root',
        'root ::= ("a"?)*',
        'root ::= ("a"*)+ "b"',
        'root ::= "x" | a\na ::= b\nb ::= c | "z"\nc ::= "" a',
    ],
)
def test_left_recursion_is_refused(text):
    with pytest.raises(GrammarError, match="left recursion detected for nonterminal at index"):
        Grammar.compile(text)


def test_a_name_defined_twice_is_the_last_one():
    assert accepts('root ::= a\na ::= "x" nowhere\na ::= "y"\n', "y")
    assert not accepts('root ::= a\na ::= "x"\na ::= "y"\n', "x")


@pytest.mark.parametrize(
    "grammar, fits, does_not",
    [
        (r'root ::= "\x41\u00e9\U0001F600\t\"\[\]\-\\"', 'Aé😀\t"[]-\\', "A"),
        (r"root ::= [\x41-\x43\]\-]+", "AC]-", "D"),
        ("root ::= [a-]+", "a-a", "b"),
        ("root ::= [^a-z\\n]+", "A😀é", "a"),
        ("root ::= .{2}", "\n😀", "a"),
        ('root ::= "ab"*', "abab", "abb"),
        ('root ::= "a" "b"{2} # twice', "abb", "abab"),
        ('root ::= "a"{ 1 , 2 }', "aa", "aaa"),
        ('root ::= "a"{0}"b"', "b", "ab"),
        ('root ::=\n\n "a" |\n "b"', "b", "ab"),
        ('root ::= (\n"a"\n|\n"b" # c\n)', "b", "ab"),
        ('root ::= | "a"\r\nb ::= "c"', "", "c"),
        ('root ::= "a"{3,9999}', "a" * 3000, "aa"),
        ('root ::= ab-1\nab-1 ::= "x"', "x", "y"),
    ],
)
def test_notation(grammar, fits, does_not):
    assert accepts(grammar, fits)
    assert not accepts(grammar, does_not)


@pytest.mark.parametrize(
    "text", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xff", b"\x80", b"\xf0\x9f\x98"]
)
def test_what_is_no_utf8_never_fits(text):
    assert not accepts("root ::= .*", text)
    assert not accepts("root ::= [^a]*", text)


def test_no_grammar_takes_all_memory():
    with pytest.raises(GrammarLimit, match="elements"):
        Grammar.compile("root ::= " + " ".join(['"a"{2000}'] * 400))
    with pytest.raises(GrammarError, match="parentheses within each other"):
        Grammar.compile("root ::= " + "(" * 5000 + '"a"' + ")" * 5000)
    chain = "\n".join(f"r{i} ::= r{i + 1}" for i in range(20_000))
    with pytest.raises(GrammarLimit, match="more than 10000 steps"):
        Grammar.compile(f'root ::= r0\n{chain}\nr20000 ::= "a"')
