"""The matcher against the naive one, over random grammars and random walks of tokens."""

import random
import threading
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from golem_core.sample.grammar import Grammar, GrammarError, GrammarLimit, Matcher, Vocabulary
from golem_core.sample.grammar.folding import classes_of
from golem_core.sample.grammar.grammar import CHAR
from tests.core.sample.grammar.naive import Naive, TooManyStacks

PIECES = [
    *(c.encode() for c in 'abcxyz012 \n"[]-é日😀'),
    *(b"ab", b"abc", b"aab", b"xy", b"xx", b"yy", b"z0", b"12", b"  ", b"ba"),
    *("éa".encode(), "é日".encode(), b"a\xc3", b"\xc3", b"\xa9", b"\xa9b", b"\xe6", b"\xe6\x97"),
    *(b"\xa5", b"\xa5a", b"\xf0\x9f", b"\x98\x80", b"\x80", b"\xff", b"", b"\0a", b"aa", b"aaaa"),
    b"",  # the end
    b"",  # a control token
]
END, CONTROL = len(PIECES) - 2, len(PIECES) - 1
VOCABULARY = Vocabulary(PIECES, ends=[END], steers=[CONTROL])


# A grammar is drawn as nested tuples, then written as GBNF and, apart from that, as naive rules.

POINTS = st.sampled_from('abcxyz012 \n"]-é日😀')
CLASS = st.tuples(
    st.just("class"),
    st.lists(st.tuples(POINTS, st.integers(0, 40)), min_size=1, max_size=3),
    st.booleans(),
)
LEAF = st.one_of(
    st.tuples(st.just("text"), st.text(POINTS, min_size=0, max_size=3)),
    CLASS,
    st.just(("any",)),
    st.tuples(st.just("rule"), st.sampled_from(["root", "r-1", "r-2"])),
)
NODE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.tuples(st.just("seq"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("alt"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(
            st.just("repeat"),
            inner,
            st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (0, 2), (2, None)]),
        ),
    ),
    max_leaves=6,
)
GRAMMAR = st.fixed_dictionaries({"root": NODE, "r-1": NODE, "r-2": NODE})
ESCAPES = {"\n": "\\n", '"': '\\"', "\\": "\\\\", "]": "\\]", "-": "\\-"}


def written(char, rng):
    if char in ESCAPES:
        return ESCAPES[char]
    point = ord(char)
    forms = [char]
    if rng.random() < 0.2:
        forms = (
            [f"\\U{point:08X}"]
            + [f"\\u{point:04x}"] * (point < 65536)
            + [f"\\x{point:02x}"] * (point < 256)
        )
    return rng.choice(forms)


def ranges_of(node):
    return [(ord(c), min(ord(c) + more, 0x10FFFF)) for c, more in node[1]]


def gbnf(node, rng):
    blank = rng.choice([" ", " ", "  ", "\t", " # no\n ", "\n"]) if rng.random() < 0.3 else " "
    match node:
        case ("text", value):
            return '"' + "".join(written(c, rng) for c in value) + '"'
        case ("class", _, negated):
            parts = [
                written(chr(a), rng) + (f"-{written(chr(b), rng)}" if b > a else "")
                for a, b in ranges_of(node)
            ]
            return "[" + "^" * negated + "".join(parts) + "]"
        case ("any",):
            return "."
        case ("rule", name):
            return name
        case ("seq", items):
            return "(" + blank.join(gbnf(i, rng) for i in items) + ")"
        case ("alt", items):
            return "(" + f"{blank}|{blank}".join(gbnf(i, rng) for i in items) + ")"
        case ("repeat", inner, (least, most)):
            short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            long = (
                f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            )
            return f"({gbnf(inner, rng)}){short if short and rng.random() < 0.7 else long}"


class Lowered:
    """The same as naive rules."""

    def __init__(self, grammar):
        self.rules = {}
        for name, node in grammar.items():
            self.rules[name] = [self.of(node)]

    def new(self, alternatives):
        name = f"#{len(self.rules)}"
        self.rules[name] = alternatives
        return name

    def of(self, node):
        match node:
            case ("text", value):
                return [("chars", ((ord(c), ord(c)),), False) for c in value]
            case ("class", _, negated):
                return [("chars", tuple(ranges_of(node)), negated)]
            case ("any",):
                return [("chars", ((0, 0x10FFFF),), False)]
            case ("rule", _):
                return [node]
            case ("seq", items):
                return [e for item in items for e in self.of(item)]
            case ("alt", items):
                return [("rule", self.new([self.of(item) for item in items]))]
            case ("repeat", inner, (least, most)):
                one = self.of(inner)
                if most is None:
                    rest = self.new([])
                    self.rules[rest] = [[*one, ("rule", rest)], []]
                    return one * least + [("rule", rest)]
                rest = []
                for _ in range(most - least):
                    rest = [("rule", self.new([[*one, *rest], []]))]
                return one * least + rest

    def empty(self):
        """Names of the rules that may be nothing."""
        found = set()
        while True:
            more = {
                name
                for name, alternatives in self.rules.items()
                if any(all(e[0] == "rule" and e[1] in found for e in a) for a in alternatives)
            }
            if more == found:
                return found
            found = more

    def left_recursive(self):
        empty = self.empty()
        first = {name: set() for name in self.rules}
        for name, alternatives in self.rules.items():
            for alternative in alternatives:
                for element in alternative:
                    if element[0] != "rule":
                        break
                    first[name].add(element[1])
                    if element[1] not in empty:
                        break
        while True:
            more = {n: s | {u for t in s for u in first[t]} for n, s in first.items()}
            if more == first:
                return any(name in reached for name, reached in first.items())
            first = more


def whole_text(grammar, rng):
    text = ""
    for name, node in grammar.items():
        sign = rng.choice([" ::= ", "::=", " ::=\n "])
        text += name + sign + gbnf(node, rng) + rng.choice(["\n", "\r\n", "\n\n# c\n"])
    return text


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(GRAMMAR, st.integers(0, 2**32))
def test_walks_agree_with_a_set_of_stacks(grammar, seed):
    rng = random.Random(seed)
    lowered = Lowered(grammar)
    text = whole_text(grammar, rng)
    if lowered.left_recursive():
        with pytest.raises(GrammarError, match="left recursion"):
            Grammar.compile(text)
        return
    try:
        walk_together(text, Naive(lowered.rules, PIECES, {END}, 500_000), rng)
    except TooManyStacks:
        assume(False)


def walk_together(text, naive, rng):
    """Asserts that a grammar's matcher and the naive one say the same on a random way."""
    matcher = Matcher(Grammar.compile(text), VOCABULARY)
    for _ in range(8):
        assume(len(naive.stacks) < 100)
        allowed = [i for i in range(len(PIECES)) if naive.allows(i)]
        assert matcher.allowed().tolist() == allowed, text
        assert matcher.may_end == naive.may_end, text
        assert all(matcher.allows(i) == (i in allowed) for i in range(len(PIECES)))
        allowed = [i for i in allowed if i != END]
        if not allowed:
            return
        token = rng.choice(allowed)
        naive.accept(token)
        matcher.accept(token)
        if rng.random() < 0.2:
            copy = matcher.copy()
            assert copy.allowed().tolist() == matcher.allowed().tolist()
            matcher = copy


FOLDED = {  # grammars by whether they take letters for one, and to what degree
    "all letters": 'root ::= [a-zA-Z]+ (" " [a-zA-Z]+)* [.!]?',
    "two classes": 'root ::= ([^aeiou]* [aeiou] [^aeiou]*){2,5} "."',
    "a pair": 'root ::= [^tT]* ("t" [^hH] [^tT]*)*',
    "one at times": 'root ::= ([a-z]+ " " | "the " | "0" [1-9] " " | "é" [a-m]+ | [ê-日]+)+',
    "no letter": "root ::= [^a-zA-Z]+ [0-4]",
    "half a class": "root ::= [a-z]* [b-nA-Z0-9] ([a-yé] [c-z日])* [^x]{3}",
    "too many classes": "root ::= ([a-m]+ [n-z]+ [b-q]+ [f-u]+ [h-zé]+ [c-p]+ [e-x]+)+",
    "no letters": 'root ::= ("ab" | "abc " | "the" [0-9])*',
}


@pytest.mark.parametrize("name", FOLDED)
def test_masks_of_texts_that_read_alike_are_those_of_each(name):
    """Bytes that most of a grammar does not tell apart are walked along once: every token's bit is
    what asking about that token alone says, also where letters that were folded are told apart."""
    rng = random.Random(name)
    parts = ["the", "aeio", "tth", "x", " ", "0", "7", "é", "日", "😀", ".", "\x01", "Ab"]
    texts = {bytes([b]) for b in range(1, 256)}
    while len(texts) < 1500:
        text = "".join(
            rng.choice(parts) if rng.random() < 0.3 else rng.choice("abcdehinorstuzTH ")
            for _ in range(rng.randint(1, 7))
        ).encode()
        texts.add(text[rng.random() < 0.05 :][: rng.randint(1, 12)])
    pieces = [*sorted(texts), b""]
    vocabulary = Vocabulary(pieces, ends=[len(pieces) - 1])
    grammar = Grammar.compile(FOLDED[name])
    for _ in range(4):
        matcher = Matcher(grammar, vocabulary)
        for _ in range(12):
            allowed = matcher.allowed().tolist()
            assert allowed == [i for i in range(len(pieces)) if matcher.allows(i)]
            allowed = [i for i in allowed if pieces[i]]
            if not allowed:
                break
            matcher.accept(rng.choice(allowed))


def test_a_fold_is_shared_by_the_grammars_that_treat_letters_alike():
    vocabulary = Vocabulary([b"ab", b"ba", b"a1", b"b2", b"a", b"b", b""], ends=[6])
    folds = [
        classes_of(kinds, values, steps, beyond, byte_class, CHAR)
        for text in ("[a-z]+", '[a-z]* "."', "[aeiou] [^aeiou]+", '"a"', "[^a-zA-Z]")
        for kinds, values, _, _, steps, beyond, byte_class in [
            Grammar.compile(f"root ::= {text}")._arrays
        ]
    ]
    assert folds[0] == folds[1] != folds[2] and folds[3] is None and folds[4] is not None
    assert vocabulary.folded(folds[0]) is vocabulary.folded(folds[1])
    assert vocabulary.nodes == 6 and vocabulary.folded(folds[0]).nodes == 3  # x xx x0
    assert vocabulary.folded(folds[2]).nodes == 6  # a b, ab ba, a0 b0


def test_tokens_by_name():
    """<[id]> is that token alone, !<[id]> any other that is not an end; text is read as bytes."""
    text = f'root ::= "a" <[{CONTROL}]> !<[3]> <x> "ab"'
    vocabulary = Vocabulary(
        PIECES, ends=[END], steers=[CONTROL], find=lambda t: 3 if t == "<x>" else None
    )
    matcher = Matcher(Grammar.compile(text), vocabulary)
    matcher.accept(0)
    assert matcher.allowed().tolist() == [CONTROL]
    matcher.accept(CONTROL)
    named = [i for i, piece in enumerate(PIECES) if piece and piece[0] and i != 3] + [CONTROL]
    assert matcher.allowed().tolist() == named
    matcher.accept(PIECES.index(b"\xff"))
    assert matcher.allowed().tolist() == [3]
    matcher.accept(3)
    assert matcher.allowed().tolist() == [PIECES.index(b"a"), PIECES.index(b"ab")]


@pytest.mark.parametrize(
    "text, says",
    [
        (f"root ::= <[{len(PIECES)}]>", "no such token"),
        ("root ::= <|nope|>", "invalid token '<|nope|>'"),
        (f"root ::= <[{END}]>", "ends a generation"),
    ],
)
def test_tokens_the_vocabulary_does_not_have(text, says):
    with pytest.raises(GrammarError, match=None) as caught:
        Matcher(Grammar.compile(text), VOCABULARY)
    assert says in str(caught.value)


def test_an_end_is_allowed_exactly_where_the_grammar_may_end():
    matcher = Matcher(Grammar.compile('root ::= "a" "b"?'), VOCABULARY)
    assert not matcher.allows(END) and not matcher.may_end
    with pytest.raises(GrammarError, match="may not follow"):
        matcher.accept(END)
    matcher.accept(0)
    assert matcher.allows(END) and matcher.may_end and matcher.may_go_on
    matcher.accept(1)
    assert matcher.allowed().tolist() == [END] and not matcher.may_go_on


def test_tokens_can_be_taken_back():
    matcher = Matcher(Grammar.compile('root ::= ("a" root "b" | "x" [yz]*)'), VOCABULARY)
    masks = [matcher.mask()]
    for piece in [b"a"] * 6 + [b"xy", b"z", b"yy", b"b", b"b", b"b"]:
        matcher.accept(PIECES.index(piece))
        masks.append(matcher.mask())
    for back in (1, 3, 7):
        matcher.rollback(back)
        del masks[-back:]
        assert np.array_equal(matcher.mask(), masks[-1])
    with pytest.raises(ValueError, match="cannot be taken back"):
        matcher.rollback(len(masks))
    matcher.reset()
    assert np.array_equal(matcher.mask(), masks[0])


def test_narrow_leaves_allowed_logits_alone():
    matcher = Matcher(Grammar.compile("root ::= [a-c]+"), VOCABULARY)
    row = np.arange(len(PIECES) + 5, dtype=np.float32)  # five rows of no token
    before = row.copy()
    left = matcher.narrow(row)
    allowed = matcher.allowed()
    assert left == len(allowed) and np.array_equal(row[allowed], before[allowed])
    others = np.setdiff1d(np.arange(len(row)), allowed)
    assert np.all(row[others] == -np.inf)


def test_readings_that_multiply_are_shared():
    """2^60 ways to read the text, in as many sets of stacks as characters."""
    grammar = Grammar.compile('root ::= "a" root "b" | "a" root "c" | "x"')
    matcher = Matcher(grammar, VOCABULARY)
    for _ in range(60):
        assert matcher.allows(0)
        matcher.accept(0)
    matcher.feed(b"x" + b"bc" * 30)
    assert matcher.may_end and not matcher.may_go_on
    assert grammar.bind(VOCABULARY).counts[0] < 2000


def test_deep_nesting_is_kept_until_it_is_too_much():
    """A stack as deep as what is kept ends in an error by name, never in the memory running out."""
    matcher = Matcher(Grammar.compile('root ::= "a" root "b" | "c"'), VOCABULARY)
    for _ in range(50):
        assert matcher.feed(b"a" * 1000)
    assert matcher.feed(b"c" + b"b" * 49_999)
    assert matcher.allowed().tolist() == [PIECES.index(b"b"), PIECES.index(b"ba")][:1]
    matcher.reset()
    with pytest.raises(GrammarLimit, match="more than 65536 rules that are open"):
        for _ in range(200):
            matcher.feed(b"a" * 1000)


def test_old_states_are_dropped_and_answers_stay_the_same():
    """A text remembered in the stack makes every state a new one."""
    letters = "abcdefghij"
    rules = " | ".join(f'"{c}" root "{c}"' for c in letters)
    grammar = Grammar.compile(f'root ::= "." | {rules}')
    vocabulary = Vocabulary([c.encode() for c in letters + "."] + [b""], ends=[11])
    matcher = Matcher(grammar, vocabulary)
    rng = random.Random(5)
    for _ in range(300):
        said = [rng.randrange(10) for _ in range(150)]
        matcher.reset()
        for token in said:
            matcher.accept(token)
        matcher.accept(10)
        for token in reversed(said):
            assert matcher.allowed().tolist() == [token]
            matcher.accept(token)
        assert matcher.may_end
    states, _, dropped = grammar.bind(vocabulary).counts
    assert dropped > 0 and states < 1 << 17


def test_threads_share_a_grammar():
    """Answers of several threads move on in one set of states, which is cleared under them."""
    letters = b"abcdefghij"
    rules = " | ".join(f'"{c:c}" root "{c:c}"' for c in letters)
    grammar = Grammar.compile(f'root ::= "." | {rules}')
    vocabulary = Vocabulary([bytes([c]) for c in letters + b"."] + [b""], ends=[11])
    finished = []

    def answer(seed):
        rng = random.Random(seed)
        for _ in range(25):
            matcher = Matcher(grammar, vocabulary)
            said = [rng.randrange(10) for _ in range(150)]
            for token in said:
                matcher.accept(token)
                matcher.mask()
            for token in [10, *reversed(said)]:
                assert matcher.copy().allowed().tolist() == [token] or token == 10
                matcher.accept(token)
            assert matcher.may_end
        finished.append(seed)

    threads = [threading.Thread(target=answer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(finished) == 4 and grammar.bind(vocabulary).counts[2] > 0


def test_a_grammar_that_is_kept_keeps_no_vocabulary():
    """A model that was dropped is gone with its tokenizer, whatever grammars are kept."""
    grammar = Grammar.compile('root ::= "ab" | "ac"')
    vocabulary = Vocabulary([b"a", b"b", b"c", b""], ends=[3])
    gone = weakref.ref(vocabulary)
    matcher = Matcher(grammar, vocabulary)
    bound = grammar.bind(vocabulary)
    assert grammar.bind(vocabulary) is bound
    del vocabulary
    other = matcher.copy()
    del matcher
    assert other.allows(0) and not other.allows(1)
    assert other.vocabulary is gone()
    del other, bound
    assert gone() is None
