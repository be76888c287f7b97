# distutils: sources = golem_core/sample/grammar/stacks.c golem_core/sample/grammar/trie.c golem_core/sample/grammar/matcher.c
# distutils: include_dirs = golem_core/sample golem_core/sample/grammar
# distutils: libraries = m
"""Vocabularies as tries, grammars bound to them, and matchers: the C of this package for Python."""

from collections import OrderedDict
from threading import Lock

import numpy as np

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from golem_core.sample.grammar.errors import GrammarError, GrammarLimit

FOLDS = 4  # kept of a vocabulary; one of 262,144 tokens takes 5 MB


cdef extern from "constraint.h":
    const char *CONSTRAINT_CAPSULE
    ctypedef struct Constraint:
        void *self
        int (*allows)(void *, int32_t) noexcept nogil
        int (*narrow)(void *, float *, int) noexcept nogil
        int (*accept)(void *, int32_t) noexcept nogil


cdef extern from "stacks.h":
    int STACKS_NO_MEMORY
    int STACKS_TOO_DEEP
    int STACKS_TOO_LONG
    int DEEPEST
    int WORK
    int MOST_OPEN
    int MOST_READINGS
    ctypedef struct Tables:
        const uint8_t *kinds
        const int32_t *values
        const int32_t *rules
        const int32_t *alternatives
        const uint16_t *steps
        const uint8_t *beyond
        const uint8_t *byte_class
        int byte_classes
        int root

    ctypedef struct Stacks:
        int node_count, row_count, collections


cdef extern from "trie.h":
    ctypedef struct Trie:
        int vocab
        uint8_t *ends
        uint8_t *steers
        int count

    bint trie_build(Trie *t, int vocab, uint8_t *text, uint32_t *start) nogil
    bint trie_fold(Trie *folded, const Trie *t, const uint8_t *classes) nogil
    void trie_free(Trie *t)


cdef extern from "matcher.h":
    ctypedef struct CBound "Bound":
        Stacks stacks
        int words

    ctypedef struct CMatcher "Matcher":
        pass

    bint bound_init(
        CBound *b, const Tables *tables, const Trie *trie, const Trie *fold, const uint8_t *classes
    )
    void bound_free(CBound *b)
    int matcher_init(CMatcher *m, CBound *bound) nogil
    void matcher_free(CMatcher *m) nogil
    int matcher_reset(CMatcher *m) nogil
    void matcher_copy(CMatcher *to, const CMatcher *source) nogil
    int matcher_allows(CMatcher *m, int32_t token) nogil
    int matcher_accept(CMatcher *m, int32_t token) nogil
    int matcher_feed(CMatcher *m, const uint8_t *bytes, int count) nogil
    int matcher_mask(CMatcher *m, uint32_t *bits) nogil
    int matcher_narrow(CMatcher *m, float *row, int vocab) nogil
    bint matcher_may_end(const CMatcher *m) nogil
    bint matcher_may_go_on(const CMatcher *m) nogil
    bint matcher_rollback(CMatcher *m, int tokens)


cdef class Vocabulary:
    """The texts of V tokens, as a trie of their bytes.

    pieces: V bytes objects, b"" for tokens that match no text. ends: tokens that end a generation;
    they may follow exactly where the grammar may end. steers: tokens without a text that token
    elements of a grammar may name. find: text -> the one token it stands for, or None; for token
    elements that are written as text.
    """

    cdef Trie trie
    cdef readonly object find
    cdef object _folds  # the latest, by their classes
    cdef object _folding
    cdef object __weakref__  # grammars keep what they share over a vocabulary as long as it lives

    def __init__(self, pieces, *, ends=(), steers=(), find=None):
        cdef int vocab = len(pieces)
        if self.trie.vocab:
            raise RuntimeError("a vocabulary is built once")
        lengths = np.fromiter(map(len, pieces), np.uint32, vocab)
        starts = np.zeros(vocab + 1, np.uint32)
        np.cumsum(lengths, out=starts[1:])
        text = b"".join(pieces)
        cdef const uint32_t[::1] offsets = starts
        cdef uint8_t *own_text = <uint8_t *>malloc(len(text) + 1)
        cdef uint32_t *own_start = <uint32_t *>malloc((vocab + 1) * sizeof(uint32_t))
        if own_text != NULL and own_start != NULL:
            memcpy(own_text, <const char *>text, len(text))
            memcpy(own_start, &offsets[0], (vocab + 1) * sizeof(uint32_t))
        if own_text == NULL or own_start == NULL or not vocab:
            self.trie.vocab = 0
            raise ValueError("a vocabulary without tokens") if not vocab else MemoryError
        cdef bint fine
        with nogil:  # a tenth of a second, while others draw
            fine = trie_build(&self.trie, vocab, own_text, own_start)
        if not fine:
            raise MemoryError
        for token in ends:
            if 0 <= token < vocab:
                self.trie.ends[token] = 1
        for token in steers:
            if 0 <= token < vocab:
                self.trie.steers[token] = 1
        self.find = find
        self._folds = OrderedDict()
        self._folding = Lock()

    def folded(self, bytes classes):
        """The texts with bytes of one class taken for one (Folded), which is kept for the next."""
        with self._folding:
            found = self._folds.pop(classes, None) or Folded(self, classes)
            self._folds[classes] = found
            if len(self._folds) > FOLDS:
                self._folds.popitem(last=False)
        return found

    @classmethod
    def of(cls, tokenizer, ends=None):
        """The vocabulary of a ``golem_core.text`` tokenizer, whose own ``eog`` are the ends unless
        others are given. Control tokens match no text."""

        def find(text):
            ids = tokenizer.encode(text, add_special=False, parse_special=True)
            return ids[0] if len(ids) == 1 else None

        pieces = tokenizer.pieces
        silent = (token for token, piece in enumerate(pieces) if not piece)
        steers = [token for token in silent if tokenizer.is_control(token)]
        ends = tokenizer.eog if ends is None else ends
        return cls(pieces, ends=ends, steers=steers, find=find)

    def __dealloc__(self):
        trie_free(&self.trie)

    def __len__(self):
        return self.trie.vocab

    def is_end(self, int32_t token):
        """Whether a token ends a generation."""
        return 0 <= token < self.trie.vocab and bool(self.trie.ends[token])

    @property
    def nodes(self):
        """Nodes of the trie."""
        return self.trie.count


cdef class Folded:
    """A vocabulary in which some bytes are one: what a grammar that takes them for one walks along.

    classes: (256) of each byte, at the same places of UTF-8 (``folding.standard``).
    """

    cdef Trie trie
    cdef readonly bytes classes

    def __init__(self, Vocabulary vocabulary not None, bytes classes):
        cdef const uint8_t *own
        cdef bint fine
        if self.classes is not None or len(classes) != 256:
            raise ValueError("a vocabulary is folded once, by 256 classes")
        self.classes = classes
        own = classes
        with nogil:
            fine = trie_fold(&self.trie, &vocabulary.trie, own)
        if not fine:
            raise MemoryError

    def __dealloc__(self):
        trie_free(&self.trie)

    @property
    def nodes(self):
        """Nodes of the trie."""
        return self.trie.count


cdef class Bound:
    """A grammar over a vocabulary: made by ``Grammar.bind``, shared by its matchers.

    It reads the vocabulary's tables and does not keep them: whoever uses it does.
    kinds u8, values i32, rules i32, alternatives i32, steps u16 (states, classes), beyond u8
    (states), byte_class u8 (256): the Tables of stacks.h. root: a rule's number. folded: of the
    vocabulary, or None.
    """

    cdef CBound bound
    cdef object _tables  # keeps the arrays alive
    cdef Folded _folded
    cdef bint _ready

    def __init__(
        self,
        Vocabulary vocabulary not None,
        const uint8_t[::1] kinds,
        const int32_t[::1] values,
        const int32_t[::1] rules,
        const int32_t[::1] alternatives,
        const uint16_t[:, ::1] steps,
        const uint8_t[::1] beyond,
        const uint8_t[::1] byte_class,
        int root,
        Folded folded=None,
    ):
        cdef Tables tables
        cdef const Trie *fold = NULL
        cdef const uint8_t *classes = NULL
        if self._ready:
            raise RuntimeError("a grammar is bound once")
        self._tables = (kinds, values, rules, alternatives, steps, beyond, byte_class)
        tables.kinds = &kinds[0]
        tables.values = &values[0]
        tables.rules = &rules[0]
        tables.alternatives = &alternatives[0] if len(alternatives) else NULL
        tables.steps = &steps[0, 0]
        tables.beyond = &beyond[0]
        tables.byte_class = &byte_class[0]
        tables.byte_classes = steps.shape[1]
        tables.root = root
        self._ready = True
        self._folded = folded
        if folded is not None:
            fold = &folded.trie
            classes = folded.classes
        if not bound_init(&self.bound, &tables, &vocabulary.trie, fold, classes):
            raise MemoryError

    def __dealloc__(self):
        if self._ready:
            bound_free(&self.bound)

    @property
    def counts(self):
        """(sets of stacks kept, those with transitions, times that old ones were dropped)."""
        cdef Stacks *s = &self.bound.stacks
        return s.node_count, s.row_count, s.collections


cdef class Matcher:
    """A grammar's place in one answer.

    grammar: a Grammar. vocabulary: what the answer's tokens are of. Raises GrammarError when the
    grammar names a token that the vocabulary does not have, GrammarLimit when it is too deep.
    One thread at a time; several matchers of a grammar may be used by several threads.
    """

    cdef CMatcher matcher
    cdef Constraint hooks
    cdef Bound _bound
    cdef readonly Vocabulary vocabulary
    cdef object _grammar

    def __init__(self, grammar, Vocabulary vocabulary not None):
        if self._bound is not None:
            raise RuntimeError("a matcher is made once")
        self._grammar = grammar
        self.vocabulary = vocabulary
        self._begin(grammar.bind(vocabulary))

    cdef _begin(self, Bound bound):
        cdef int result
        self._bound = bound
        self.hooks.self = &self.matcher
        self.hooks.allows = <int (*)(void *, int32_t) noexcept nogil>matcher_allows
        self.hooks.narrow = <int (*)(void *, float *, int) noexcept nogil>matcher_narrow
        self.hooks.accept = <int (*)(void *, int32_t) noexcept nogil>matcher_accept
        with nogil:  # here and below: another thread may be at work on the same grammar
            result = matcher_init(&self.matcher, &bound.bound)
        _checked(result)

    def __dealloc__(self):
        with nogil:
            matcher_free(&self.matcher)

    @property
    def constraint(self):
        """A capsule of constraint.h's Constraint, good for as long as this matcher lives."""
        return PyCapsule_New(&self.hooks, CONSTRAINT_CAPSULE, NULL)

    def allows(self, int32_t token):
        """Whether a token may follow. Raises GrammarLimit."""
        cdef int result
        with nogil:
            result = matcher_allows(&self.matcher, token)
        return bool(_checked(result))

    def accept(self, int32_t token):
        """Takes a token. Raises GrammarError when it may not follow; then nothing changes."""
        cdef int result
        with nogil:
            result = matcher_accept(&self.matcher, token)
        if not _checked(result):
            raise GrammarError(f"token {token} may not follow here")

    def feed(self, const uint8_t[::1] text not None):
        """Takes a text (bytes); False, and nothing changes, when it may not follow."""
        cdef int result
        if not len(text):
            return True
        with nogil:
            result = matcher_feed(&self.matcher, &text[0], <int>len(text))
        return bool(_checked(result))

    def mask(self, out=None):
        """Which tokens may follow: a bit each, token i is bit i % 32 of word i // 32.

        out: u32 (⌈V / 32⌉) that is filled and returned; a new array when None.
        """
        cdef int result
        if out is None:
            out = np.empty(self._bound.bound.words, np.uint32)
        cdef uint32_t[::1] words = out
        if words.shape[0] != self._bound.bound.words:
            raise ValueError(f"a mask of {words.shape[0]} words, not {self._bound.bound.words}")
        with nogil:
            result = matcher_mask(&self.matcher, &words[0])
        _checked(result)
        return out

    def allowed(self):
        """The ids of the tokens that may follow, ascending, as an array."""
        bits = np.unpackbits(self.mask().view(np.uint8), bitorder="little")
        return np.flatnonzero(bits)

    def narrow(self, float[::1] logits not None):
        """Sets the logits (V) f32 of tokens that may not follow to -inf; returns how many may."""
        cdef int result
        with nogil:
            result = matcher_narrow(&self.matcher, &logits[0], <int>logits.shape[0])
        return _checked(result)

    @property
    def may_end(self):
        """Whether what was said is whole."""
        cdef bint result
        with nogil:
            result = matcher_may_end(&self.matcher)
        return bool(result)

    @property
    def may_go_on(self):
        """Whether anything but an end may follow."""
        cdef bint result
        with nogil:
            result = matcher_may_go_on(&self.matcher)
        return bool(result)

    def rollback(self, int tokens):
        """Takes the last tokens (255 at most) back; ``feed`` counts as one."""
        if not matcher_rollback(&self.matcher, tokens):
            raise ValueError(f"{tokens} tokens cannot be taken back")

    def copy(self):
        """Another matcher at the same place."""
        cdef Matcher other = Matcher.__new__(Matcher)
        other._grammar = self._grammar
        other.vocabulary = self.vocabulary
        other._begin(self._bound)
        with nogil:
            matcher_copy(&other.matcher, &self.matcher)
        return other

    def reset(self):
        """Back to the start."""
        cdef int result
        with nogil:
            result = matcher_reset(&self.matcher)
        _checked(result)


cdef int _checked(int result) except -1:
    if result >= 0:
        return result
    raise gave_up(result)


def gave_up(int code):
    """The error that a negative number of stacks.h stands for."""
    if code == STACKS_NO_MEMORY:
        return MemoryError("no memory is left for what a grammar has to remember")
    if code == STACKS_TOO_DEEP:
        return GrammarLimit(
            f"the grammar's rules lead more than {DEEPEST} steps into each other here before a "
            "byte is read: use repetitions (x*, x{2,4}) instead of rules that contain themselves, "
            "and fewer parts in a row that may be empty"
        )
    if code == STACKS_TOO_LONG:
        return GrammarLimit(
            f"the grammar can be read in too many ways here, one token takes more than {WORK} "
            "steps: let the alternatives of its rules (anyOf of a schema) begin differently, and "
            "repeat nothing that may be empty or repeats already"
        )
    return GrammarLimit(
        f"the grammar has to remember more than {MOST_OPEN} rules that are open or {MOST_READINGS} "
        "ways to read what was said: let its rules ($ref of a schema) nest less deeply, and their "
        "alternatives begin differently"
    )
