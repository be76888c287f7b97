# cython: language_level=3
"""Joins the symbols of a word into tokens: the inner loop of byte-pair and SentencePiece models.

Both do the same: of all neighbours that may be joined, join the pair of the lowest rank, the
leftmost on a tie, until none is left. A BPE model ranks pairs by its list of merges; a
SentencePiece model ranks what the pair would become by its score. Short words are scanned; long
ones (a megabyte of one letter is one word) go through a heap, so that no text is quadratic.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

from golem_core.text._alphabet cimport Alphabet, Scratch
from golem_core.text._table cimport Table, char_size, mix

cdef enum:
    SHORT = 40              # symbols; up to here scanning beats the heap
    CACHED_WORDS = 1 << 16
    CACHED_LENGTH = 48      # characters
    BREATH = 1 << 12        # words after which other threads get their turn

cdef struct Pair:
    uint64_t key            # left << 32 | right, plus one; 0 = free
    int32_t rank
    int32_t joined

cdef struct Node:
    int32_t id              # number of the symbol's string, -1 when it has none
    int32_t start
    int32_t size            # bytes; 0 once it has been joined to its left
    int32_t previous
    int32_t next

cdef struct Entry:
    int32_t rank
    int32_t left            # place of the left node
    int32_t left_id
    int32_t right_id
    int32_t joined


cdef class Merger:
    """Words to token ids.

    ``table`` numbers the tokens first; ``unknown`` is the id for a character that has neither a
    token nor byte tokens (-1: it vanishes). ``whole``: a word that is a token is taken as it is;
    ``whole_newlines``: a word of newlines is.
    """

    cdef Table table
    cdef int32_t tokens
    cdef int32_t unknown
    cdef bint bytewise, whole, whole_newlines
    cdef Pair *pairs
    cdef uint64_t pair_mask
    cdef int32_t *ranks
    cdef int32_t[256] byte_symbols
    cdef int32_t[256] byte_tokens
    cdef dict cache

    def __cinit__(self, Table table not None, int32_t tokens, int32_t unknown=-1):
        self.table = table
        self.tokens = tokens
        self.unknown = unknown
        self.cache = {}

    def __dealloc__(self):
        free(self.pairs)
        free(self.ranks)

    @staticmethod
    def by_merges(Table table not None, int32_t tokens, lines, *, Alphabet alphabet=None,
                  int32_t unknown=-1, bint whole=False, bint whole_newlines=False):
        """A BPE model. ``lines``: its merges, "left right", the first ranks lowest.

        With ``alphabet`` symbols start as bytes, ``table`` holds raw bytes and the lines stand-ins
        for them; without, symbols start as characters and everything is UTF-8. A line without a
        space is passed over.
        """
        cdef Merger self = Merger(table, tokens, unknown)
        cdef Scratch scratch = Scratch()
        cdef int32_t left, right
        cdef int32_t rank = -1
        cdef int64_t size, cut
        cdef str line
        self.bytewise = alphabet is not None
        self.whole = whole
        self.whole_newlines = whole_newlines
        self._byte_symbols()
        self._room_for_pairs(len(lines))
        for line in lines:
            rank += 1
            if alphabet is not None:
                size = alphabet.read_pair(line, scratch, &cut)
            else:
                size = scratch.read_pair(line, &cut)
            if size < 0:
                continue
            left = table.intern(scratch.text, cut)
            right = table.intern(scratch.text + cut, size - cut)
            self._add_pair(left, right, rank, table.intern(scratch.text, size))
        return self

    @staticmethod
    def by_scores(Table table not None, ranks, int32_t unknown=-1):
        """A SentencePiece model. ``ranks``: for each token, 0 the best score, -1 not to be made."""
        cdef Merger self = Merger(table, len(ranks), unknown)
        cdef Py_ssize_t i
        self.ranks = <int32_t *>malloc(max(1, len(ranks)) * sizeof(int32_t))
        if self.ranks == NULL:
            raise MemoryError
        for i in range(len(ranks)):
            self.ranks[i] = ranks[i]
        self._byte_symbols()
        return self

    def extend(self, list words, list ids):
        """Append the ids of each of ``words`` (str without surrogates) to ``ids``."""
        cdef tuple known
        cdef Py_ssize_t done = 0
        for word in words:
            known = self.cache.get(word)
            if known is None:
                known = self._learn(word)
            ids.extend(known)
            done += 1
            if not done % BREATH:
                with nogil:     # of megabytes: others want to go on meanwhile
                    pass

    cdef tuple _learn(self, str word):
        cdef Py_ssize_t size
        cdef const uint8_t *text = <const uint8_t *>PyUnicode_AsUTF8AndSize(word, &size)
        cdef tuple ids
        cdef int32_t number
        if size >= (1 << 31) - 1:
            raise OverflowError("a text of 2 GiB or more cannot be tokenized at once")
        if self.whole or (self.whole_newlines and not word.strip("\n")):
            number = self.table.find(text, size)
            if 0 <= number < self.tokens:
                return (number,)
        ids = self._short(text, size)
        if ids is None:
            ids = self._long(text, size)
        if len(word) <= CACHED_LENGTH:
            if len(self.cache) >= CACHED_WORDS:
                self.cache.clear()
            self.cache[word] = ids
        return ids

    cdef tuple _short(self, const uint8_t *text, Py_ssize_t size):
        """The ids of a word of at most SHORT symbols, None for a longer one."""
        cdef int32_t[SHORT] ids
        cdef int32_t[SHORT + 1] starts
        cdef int32_t[SHORT] ranks       # of joining a symbol with the next one, -1 = never
        cdef int32_t[SHORT] joined
        cdef int32_t count = 0
        cdef int32_t at = 0
        cdef int32_t i, best, length
        cdef list out = []
        while at < size:
            if count == SHORT:
                return None
            length = 1 if self.bytewise else char_size(text[at], size - at)
            ids[count] = self._symbol(text + at, length)
            starts[count] = at
            at += length
            count += 1
        starts[count] = at
        for i in range(count - 1):
            joined[i] = self._pair(ids[i], ids[i + 1], text + starts[i],
                                   starts[i + 2] - starts[i], &ranks[i])
        while True:
            best = -1
            for i in range(count - 1):
                if ranks[i] >= 0 and (best < 0 or ranks[i] < ranks[best]):
                    best = i
            if best < 0:
                break
            ids[best] = joined[best]
            count -= 1
            for i in range(best + 1, count):
                ids[i] = ids[i + 1]
                starts[i] = starts[i + 1]
                ranks[i - 1] = ranks[i]
                joined[i - 1] = joined[i]
            starts[count] = starts[count + 1]
            for i in range(max(0, best - 1), min(best + 1, count - 1)):
                joined[i] = self._pair(ids[i], ids[i + 1], text + starts[i],
                                       starts[i + 2] - starts[i], &ranks[i])
        for i in range(count):
            self._emit(out, ids[i], text + starts[i], starts[i + 1] - starts[i])
        return tuple(out)

    cdef tuple _long(self, const uint8_t *text, Py_ssize_t size):
        cdef Node *nodes = <Node *>malloc(size * sizeof(Node))
        cdef Heap heap = Heap()
        cdef int32_t i = 0
        cdef list out = []
        cdef bint made
        if nodes == NULL:
            raise MemoryError
        try:
            with nogil:         # seconds for megabytes
                made = self._join(text, size, nodes, heap)
            if not made:
                raise MemoryError
            while i >= 0:
                self._emit(out, nodes[i].id, text + nodes[i].start, nodes[i].size)
                i = nodes[i].next
            return tuple(out)
        finally:
            free(nodes)

    cdef bint _join(self, const uint8_t *text, Py_ssize_t size, Node *nodes,
                    Heap heap) noexcept nogil:
        """Links ``nodes`` from the first on to what the word becomes; false without memory."""
        cdef Entry entry
        cdef int32_t count = 0
        cdef int32_t at = 0
        cdef int32_t i, right
        while at < size:
            i = count
            nodes[i].size = 1 if self.bytewise else char_size(text[at], size - at)
            nodes[i].id = self._symbol(text + at, nodes[i].size)
            nodes[i].start = at
            nodes[i].previous = i - 1
            nodes[i].next = i + 1
            at += nodes[i].size
            count += 1
        nodes[count - 1].next = -1
        if not heap.reserve(count):
            return False
        for i in range(count - 1):
            if self._candidate(nodes, i, text, &entry) and not heap.push(&entry):
                return False
        while heap.count:
            heap.pop(&entry)
            i = entry.left
            if nodes[i].size == 0 or nodes[i].id != entry.left_id:
                continue
            right = nodes[i].next
            if right < 0 or nodes[right].id != entry.right_id:
                continue
            nodes[i].id = entry.joined
            nodes[i].size += nodes[right].size
            nodes[i].next = nodes[right].next
            nodes[right].size = 0
            if nodes[i].next >= 0:
                nodes[nodes[i].next].previous = i
            if nodes[i].previous >= 0 and self._candidate(nodes, nodes[i].previous, text, &entry):
                if not heap.push(&entry):
                    return False
            if self._candidate(nodes, i, text, &entry) and not heap.push(&entry):
                return False
        return True

    cdef inline bint _candidate(self, Node *nodes, int32_t left, const uint8_t *text,
                                Entry *entry) noexcept nogil:
        """Whether ``left`` may be joined with its right neighbour; if so ``entry`` says how."""
        cdef int32_t right = nodes[left].next
        if right < 0:
            return False
        entry.joined = self._pair(nodes[left].id, nodes[right].id, text + nodes[left].start,
                                  nodes[left].size + nodes[right].size, &entry.rank)
        entry.left = left
        entry.left_id = nodes[left].id
        entry.right_id = nodes[right].id
        return entry.rank >= 0

    cdef inline int32_t _symbol(self, const uint8_t *text, int32_t size) noexcept nogil:
        """What a symbol starts as. Under scores only the text counts, so it needs no number."""
        if self.ranks != NULL:
            return -1
        if self.bytewise:
            return self.byte_symbols[text[0]]
        return self.table.find(text, size)

    cdef inline int32_t _pair(self, int32_t left, int32_t right, const uint8_t *text, int64_t size,
                              int32_t *rank) noexcept nogil:
        """What two neighbours, together ``text``, would become; ``rank`` -1 when they stay."""
        cdef uint64_t key
        cdef uint64_t at
        cdef int32_t number
        rank[0] = -1
        if self.ranks != NULL:
            if size <= self.table.longest:
                number = self.table.find(text, size)
                if number >= 0:
                    rank[0] = self.ranks[number]
                    return number
            return -1
        if left < 0 or right < 0:
            return -1
        key = (<uint64_t>left << 32 | <uint64_t>right) + 1
        at = mix(key, 2) & self.pair_mask
        while self.pairs[at].key:
            if self.pairs[at].key == key:
                rank[0] = self.pairs[at].rank
                return self.pairs[at].joined
            at = (at + 1) & self.pair_mask
        return -1

    cdef int _emit(self, list out, int32_t number, const uint8_t *text, int32_t size) except -1:
        """Append the token of a finished symbol, or of its bytes when there is none."""
        cdef int32_t i
        cdef bint spelled = True
        if self.ranks != NULL and number < 0:
            number = self.table.find(text, size)
            if number >= 0 and self.ranks[number] < 0:
                number = -1
        if 0 <= number < self.tokens:
            out.append(number)
            return 0
        for i in range(size):
            spelled = spelled and self.byte_tokens[text[i]] >= 0
        if not spelled and self.unknown >= 0:
            out.append(self.unknown)
            return 0
        for i in range(size):
            if self.byte_tokens[text[i]] >= 0:
                out.append(self.byte_tokens[text[i]])
        return 0

    cdef int _byte_symbols(self) except -1:
        cdef bytes name
        cdef uint8_t raw
        cdef int32_t number
        cdef int32_t i
        for i in range(256):
            raw = <uint8_t>i
            if self.bytewise:
                number = self.table.intern(&raw, 1)
                self.byte_symbols[i] = number
            else:
                name = b"<0x%02X>" % i
                number = self.table.find(<const uint8_t *><const char *>name, 6)
            self.byte_tokens[i] = number if number < self.tokens else -1
        return 0

    cdef int _room_for_pairs(self, Py_ssize_t count) except -1:
        self.pair_mask = max(64, 1 << (2 * count).bit_length()) - 1
        self.pairs = <Pair *>calloc(self.pair_mask + 1, sizeof(Pair))
        if self.pairs == NULL:
            raise MemoryError
        return 0

    cdef int _add_pair(self, int32_t left, int32_t right, int32_t rank, int32_t joined) except -1:
        cdef uint64_t key = (<uint64_t>left << 32 | <uint64_t>right) + 1
        cdef uint64_t at = mix(key, 2) & self.pair_mask
        while self.pairs[at].key:
            if self.pairs[at].key == key:      # listed twice: the first rank holds
                return 0
            at = (at + 1) & self.pair_mask
        self.pairs[at] = Pair(key, rank, joined)
        return 0


cdef class Heap:
    """Candidates, the lowest rank on top, the leftmost of equal ones."""

    cdef Entry *entries
    cdef int64_t count, room

    def __dealloc__(self):
        free(self.entries)

    cdef bint reserve(self, int64_t room) noexcept nogil:
        """Whether there is room for so many."""
        cdef Entry *grown
        if room > self.room:
            grown = <Entry *>realloc(self.entries, room * sizeof(Entry))
            if grown == NULL:
                return False
            self.entries = grown
            self.room = room
        return True

    cdef bint push(self, const Entry *entry) noexcept nogil:
        """Whether there was room for one more."""
        cdef int64_t at = self.count
        cdef int64_t parent
        if self.count == self.room and not self.reserve(max(<int64_t>64, 2 * self.room)):
            return False
        self.count += 1
        while at:
            parent = (at - 1) // 2
            if not before(entry, &self.entries[parent]):
                break
            self.entries[at] = self.entries[parent]
            at = parent
        self.entries[at] = entry[0]
        return True

    cdef void pop(self, Entry *top) noexcept nogil:
        cdef int64_t at = 0
        cdef int64_t child
        cdef Entry last
        top[0] = self.entries[0]
        self.count -= 1
        last = self.entries[self.count]
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and before(&self.entries[child + 1], &self.entries[child]):
                child += 1
            if not before(&self.entries[child], &last):
                break
            self.entries[at] = self.entries[child]
            at = child
        self.entries[at] = last


cdef inline bint before(const Entry *a, const Entry *b) noexcept nogil:
    return a.rank < b.rank or (a.rank == b.rank and a.left < b.left)


cdef class LongestMatch:
    """WordPiece: from the front the longest token each time; ``unknown`` for a word that has none.

    Only the first ``tokens`` strings of ``table`` count.
    """

    cdef Table table
    cdef int32_t tokens
    cdef int32_t unknown

    def __cinit__(self, Table table not None, int32_t tokens, int32_t unknown=-1):
        self.table = table
        self.tokens = tokens
        self.unknown = unknown

    def extend(self, list words, list ids):
        """Append the ids of each of ``words`` (str without surrogates) to ``ids``."""
        cdef Py_ssize_t size, at, end
        cdef const uint8_t *text
        cdef int32_t number
        cdef Py_ssize_t before
        for word in words:
            text = <const uint8_t *>PyUnicode_AsUTF8AndSize(word, &size)
            before = len(ids)
            at = 0
            while at < size:
                end = min(size, at + self.table.longest)
                number = -1
                while end > at:
                    number = self.table.find(text + at, end - at)
                    if 0 <= number < self.tokens:
                        break
                    end -= 1
                if end == at:
                    del ids[before:]
                    if self.unknown >= 0:
                        ids.append(self.unknown)
                    break
                ids.append(number)
                at = end
