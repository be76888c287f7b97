"""What grammars cost: a drawn token's check, and the mask of a whole vocabulary.

    python -m benchmarks.grammar VOCABULARY.gguf [--seconds 2]

For each grammar, random answers over the file's vocabulary, in one run:

* bind: what the vocabulary is asked for first, kept for grammars that treat letters alike;
* check: asking about one token and taking it, as for every drawn token the model got right;
* mask: finding out about all tokens, as for a token it got wrong; mean, and the worst one seen,
  with no state of the grammar known beforehand;
* token: both, which is the mean cost of a token if each that was drawn had been refused once;
* sweep: the same by asking about each token in turn, and how many masks that would pay for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import numpy as np

from golem_core.formats.gguf import GGUF
from golem_core.sample.grammar import Grammar, Matcher, Vocabulary
from golem_core.text import load_tokenizer
from golem_server.bench import arguments as kinds
from golem_server.commands import Flags

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 80},
        "born": {"type": "string", "format": "date"},
        "height": {"type": "number", "exclusiveMinimum": 0, "maximum": 2.8},
        "mail": {"type": "string", "pattern": r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$"},
        "role": {"enum": ["reader", "writer", "owner"]},
        "friends": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
    },
    "required": ["name", "born", "role"],
    "additionalProperties": {"type": "integer"},
}
GRAMMARS: dict[str, Callable[[], Grammar]] = {
    "json (GBNF)": lambda: Grammar.compile(JSON),
    "any object": lambda: Grammar.of_schema({"type": "object"}),
    "a schema": lambda: Grammar.of_schema(PERSON),
    "any text": lambda: Grammar.compile("root ::= .*"),
    "300 characters": lambda: Grammar.compile("root ::= [^\\n]{1,300}"),
    "words": lambda: Grammar.compile('root ::= [a-zA-Z]+ (" " [a-zA-Z]+)*'),
    "no letters": lambda: Grammar.compile("root ::= [^a-zA-Z]+"),
    "a word inside": lambda: Grammar.of_schema({"type": "string", "pattern": "needle"}),
    "counted vowels": lambda: Grammar.of_schema(
        {"type": "string", "pattern": "^([^aeiou]*[aeiou][^aeiou]*){5,9}$"}
    ),
    "no 'th'": lambda: Grammar.compile('root ::= [^tT]* ("t" [^hH] [^tT]*)*'),
    "counted words": lambda: Grammar.of_schema(
        {"type": "string", "pattern": "^([a-z]{2,8} ){3,40}[A-Z]{1,5}$"}
    ),
    "1000 of 1000": lambda: Grammar.of_schema(
        {"type": "string", "minLength": 1000, "maxLength": 1000}
    ),
    "2000 constants": lambda: Grammar.of_schema({"enum": [f"{i:x}-{i * i}" for i in range(2000)]}),
    "60 members": lambda: Grammar.of_schema(
        {"type": "object", "properties": {f"{i:x}-{i * i}": PERSON for i in range(60)}}
    ),
    "ambiguous": lambda: Grammar.compile('root ::= (a | b)*\na ::= [a-z ]{1,9} "."?\nb ::= a a'),
}


def timed(work: Callable[[], object]) -> float:
    """Seconds of this thread, so that others on the machine do not count."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def measure(
    make: Callable[[], Grammar], vocabulary: Vocabulary, ends: Collection[int], seconds: float
) -> dict[str, float]:
    """Microseconds of each kind."""
    rng = np.random.default_rng(0)
    make()  # imports what it needs
    compiling = timed(make)
    grammar = make()
    binding = timed(lambda: Matcher(grammar, vocabulary))
    checks: list[float] = []
    masks: list[float] = []
    words = np.empty((len(vocabulary) + 31) // 32, np.uint32)
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        matcher = Matcher(make(), vocabulary)
        for _ in range(40):
            masks.append(timed(lambda m=matcher: m.mask(words)))
            allowed = np.setdiff1d(matcher.allowed(), ends)
            if not len(allowed):
                break
            token = int(rng.choice(allowed))

            def check(m: Matcher = matcher, token: int = token) -> None:
                m.allows(token)
                m.accept(token)

            checks.append(timed(check))
    matcher = Matcher(make(), vocabulary)
    sweep = timed(lambda: [matcher.allows(i) for i in range(len(vocabulary))])
    return {
        "compile": compiling * 1e6,
        "bind": binding * 1e6,
        "check": float(np.mean(checks)) * 1e6,
        "mask": float(np.mean(masks)) * 1e6,
        "token": float(np.mean(checks) + np.mean(masks)) * 1e6,
        "worst": max(masks) * 1e6,
        "sweep": sweep * 1e6,
    }


def main() -> None:
    parser = Flags(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", type=kinds.file, help="a GGUF file with a tokenizer")
    parser.add_argument("--seconds", type=kinds.seconds, default=2.0, help="for each grammar (2)")
    options = parser.parse_args()
    with GGUF.open(options.vocabulary) as file:
        tokenizer = load_tokenizer(file.metadata)
    read = timed(lambda: tokenizer.pieces)
    start = time.thread_time()
    vocabulary = Vocabulary.of(tokenizer)
    built = time.thread_time() - start
    print(
        f"{len(vocabulary)} tokens, {vocabulary.nodes} nodes; decoded in {read * 1e3:.0f} ms, "
        f"built in {built * 1e3:.0f} ms, once a model"
    )
    print(
        f"{'us':16} {'compile':>9} {'bind':>6} {'check':>6} {'mask':>6} {'token':>6} "
        f"{'worst':>6} {'sweep':>7} {'ratio':>6}"
    )
    for name, make in GRAMMARS.items():
        found = measure(make, vocabulary, sorted(tokenizer.eog), options.seconds)
        ratio = found["sweep"] / found["mask"]
        print(
            f"{name:16} {found['compile']:9.0f} {found['bind']:6.0f} {found['check']:6.1f} "
            f"{found['mask']:6.0f} {found['token']:6.0f} {found['worst']:6.0f} "
            f"{found['sweep']:7.0f} {ratio:6.0f}"
        )


if __name__ == "__main__":
    main()
