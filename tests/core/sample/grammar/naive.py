"""A matcher that is slow and obvious: a set of stacks, moved on character by character.

A stack is a tuple of what is still to be read, the next element first. Elements are
("chars", set of code points as (low, high) pairs, negated), ("rule", name), ("token", id) and
("other", id). Half a character is kept as bytes, and tried with every character it could be.
"""

import functools


class TooManyStacks(Exception):
    """The grammar can be read in more ways than this matcher has patience for."""


class Naive:
    """A grammar {name: [[element, …], …]} at some place in a text.

    patience: rules that are entered before it gives up with TooManyStacks."""

    def __init__(self, rules, pieces, ends, patience=10**9):
        self.patience = patience
        self.rules = rules
        self.pieces = pieces
        self.ends = ends
        self.stacks = set()
        self.half = b""
        for alternative in rules["root"]:
            self.stacks |= self.open(tuple(alternative))

    def open(self, stack):
        """The stacks that start with something to read, or are empty."""
        if not stack or stack[0][0] != "rule":
            return {stack}
        self.patience -= 1
        if self.patience < 0:
            raise TooManyStacks
        found = set()
        for alternative in self.rules[stack[0][1]]:
            found |= self.open((*alternative, *stack[1:]))
        return found

    def after_char(self, stacks, char):
        return {
            opened
            for stack in stacks
            if stack and stack[0][0] == "chars" and holds(stack[0], ord(char))
            for opened in self.open(stack[1:])
        }

    def after(self, token):
        """(stacks, half a character) after a token; no stacks when it may not follow."""
        piece = self.pieces[token]
        if token in self.ends:
            return (self.stacks if self.may_end else set()), b""
        named = set()
        if not self.half and piece:
            for stack in self.stacks:
                kind, value = stack[0][:2] if stack else ("", None)
                if (kind == "token" and value == token) or (kind == "other" and value != token):
                    named |= self.open(stack[1:])
        stacks, half = self.stacks, self.half + piece
        if not piece or piece[0] == 0:
            return named, b""
        while half and stacks:
            size = length(half[0])
            if size is None:
                return named, b""
            if len(half) < size:
                could = characters(half)
                stacks = {s for s in stacks if any(self.after_char({s}, c) for c in could)}
                # A grammar that mixes both readings here is not generated.
                return (stacks | named, half) if stacks else (named, b"")
            try:
                char = half[:size].decode()
            except UnicodeDecodeError:
                return named, b""
            stacks, half = self.after_char(stacks, char), half[size:]
        return stacks | named, b""

    def allows(self, token):
        return bool(self.after(token)[0])

    def accept(self, token):
        self.stacks, self.half = self.after(token)

    @property
    def may_end(self):
        return () in self.stacks and not self.half


def holds(element, point):
    _, ranges, negated = element
    return any(low <= point <= high for low, high in ranges) != negated


def length(lead):
    if lead < 0x80:
        return 1
    return (
        2
        if 0xC2 <= lead < 0xE0
        else 3
        if 0xE0 <= lead < 0xF0
        else 4
        if 0xF0 <= lead < 0xF5
        else None
    )


@functools.cache
def characters(half):
    """Every character whose UTF-8 begins so."""
    size = length(half[0])
    if size == 2:
        points = range(0x80, 0x800)
    elif size == 3:
        start = max(0x800, (half[0] & 15) << 12)
        points = range(start, ((half[0] & 15) << 12) + 0x1000)
    else:
        start = max(0x10000, (half[0] & 7) << 18)
        points = range(start, min(0x110000, ((half[0] & 7) << 18) + 0x40000))
    return [
        chr(point)
        for point in points
        if not 0xD800 <= point <= 0xDFFF and chr(point).encode().startswith(half)
    ]
