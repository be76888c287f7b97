"""Random texts of a grammar, and whether a grammar admits a text; byte by byte."""

import functools

from golem_core.sample.grammar import Grammar, Matcher, Vocabulary

END = 255
BYTES = Vocabulary([bytes([i]) for i in range(1, 256)] + [b""], ends=[END])
CLOSING = [c - 1 for c in b'"]}']
COMMON = [c - 1 for c in b'"\\ ,:0123456789.eabcdrtu-\n']


@functools.cache
def compiled(text):
    return Grammar.compile(text)


def admits(grammar, text):
    """Whether a text is one of the grammar's."""
    matcher = Matcher(grammar, BYTES)
    return matcher.feed(text.encode()) and matcher.may_end


def walk(grammar, rng, longest=400):
    """A random text of the grammar, or None when it has become too long.

    Brackets and strings are closed more often than chance would, or few texts would end.
    """
    matcher = Matcher(grammar, BYTES)
    said = bytearray()
    eager = rng.random()
    while len(said) < longest:
        allowed = matcher.allowed().tolist()
        assert allowed, f"a dead end after {bytes(said)!r}"
        if END in allowed and (len(allowed) == 1 or rng.random() < 0.4):
            return said.decode()
        allowed = [i for i in allowed if i != END]
        closing = [i for i in CLOSING if i in allowed]
        usual = [i for i in COMMON if i in allowed]
        hurry = eager * 0.6 + len(said) / longest
        if closing and rng.random() < hurry:
            allowed = closing
        elif usual and rng.random() < 0.7:
            allowed = usual
        token = rng.choice(allowed)
        matcher.accept(token)
        said.append(token + 1)
    return None


def walks(grammar, rng, count, longest=400):
    """About so many different texts, fewer when the grammar has fewer."""
    texts = (walk(grammar, rng, longest) for _ in range(count))
    return {text for text in texts if text is not None}
