"""Guesses what a conversation says next: what it said after the same words before.

Every run of three tokens is indexed where it last ended; occurrences are chained backwards. The
guess goes on from the occurrence whose history agrees for longest. How often guesses come true is
counted for every length of agreement, also for those nobody acted on, so the estimate is free.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

import numpy as np

cdef enum:
    N = 3              # tokens of an indexed run
    CANDIDATES = 16    # occurrences looked at, latest first
    LONGEST = 64       # tokens of agreement that are counted
    CLASSES = 6        # of lengths of agreement
    MOST = 64          # tokens of a guess

cdef double FADE = 0.95     # what counts of a try at the next one
cdef double PRIOR = 2.0     # tries that the priors are worth
cdef double[6] EXPECTED = [0.2, 0.3, 0.45, 0.6, 0.75, 0.85]


cdef int class_of(int agreement) noexcept nogil:
    if agreement <= 4:
        return agreement - N
    return 2 if agreement <= 6 else 3 if agreement <= 10 else 4 if agreement <= 20 else 5


cdef class Ngram:
    """The tokens of one conversation, and guesses from them. One thread at a time.

    tokens: (n,) i32, the prompt.
    """

    cdef int32_t *tokens
    cdef int32_t *earlier      # of the run ending here: where it ended before, -1 = nowhere
    cdef int32_t *table        # run -> where it last ended + 1, 0 = empty
    cdef int size, room
    cdef uint32_t mask
    cdef int next_place, agreement   # where the next guess is read, and the agreement behind it
    cdef double tries[CLASSES]
    cdef double hits[CLASSES]

    def __cinit__(self, tokens):
        cdef const int32_t[::1] given = np.ascontiguousarray(tokens, np.int32)
        cdef int i
        self.next_place = -1
        for i in range(CLASSES):
            self.tries[i] = PRIOR
            self.hits[i] = PRIOR * EXPECTED[i]
        self.grow(2 * <int>given.shape[0] + 256)
        for i in range(given.shape[0]):
            self.append(given[i])
        self.look()

    def __dealloc__(self):
        free(self.tokens)
        free(self.earlier)
        free(self.table)

    def __len__(self):
        return self.size

    cdef int grow(self, int room) except -1:
        cdef void *tokens = realloc(self.tokens, room * sizeof(int32_t))
        if tokens != NULL:
            self.tokens = <int32_t *>tokens
        cdef void *earlier = realloc(self.earlier, room * sizeof(int32_t))
        if earlier != NULL:
            self.earlier = <int32_t *>earlier
        cdef uint32_t places = 64
        while places < 2 * <uint32_t>room:
            places *= 2
        cdef int32_t *table = <int32_t *>calloc(places, sizeof(int32_t))
        if tokens == NULL or earlier == NULL or table == NULL:
            free(table)
            raise MemoryError
        free(self.table)
        self.table = table
        self.mask = places - 1
        self.room = room
        cdef int at
        for at in range(N - 1, self.size):
            self.place(at)[0] = at + 1
        return 0

    cdef int32_t *place(self, int end) noexcept nogil:
        """The table's place of the run that ends there."""
        cdef const int32_t *run = self.tokens + end - N + 1
        cdef uint64_t hash = 0
        cdef int i
        for i in range(N):
            hash = (hash ^ <uint32_t>run[i]) * <uint64_t>0x9E3779B97F4A7C15
            hash ^= hash >> 29
        cdef uint32_t at = <uint32_t>hash & self.mask
        cdef const int32_t *other
        while self.table[at]:
            other = self.tokens + self.table[at] - N
            if other[0] == run[0] and other[1] == run[1] and other[2] == run[2]:
                break
            at = (at + 1) & self.mask
        return self.table + at

    cdef int append(self, int32_t token) except -1:
        if self.size == self.room:
            self.grow(2 * self.room)
        cdef int at = self.size
        self.tokens[at] = token
        self.earlier[at] = -1
        self.size += 1
        cdef int32_t *place
        if at >= N - 1:
            place = self.place(at)
            self.earlier[at] = place[0] - 1
            place[0] = at + 1
        return 0

    cdef void look(self) noexcept nogil:
        """Finds the occurrence that agrees for longest with the last tokens."""
        cdef int last = self.size - 1, seen = 0, end, same
        self.next_place = -1
        self.agreement = 0
        if last < N - 1:
            return
        end = self.earlier[last]
        while end >= 0 and seen < CANDIDATES:
            same = N
            while same < LONGEST and same <= end and self.tokens[end - same] == self.tokens[last - same]:
                same += 1
            if same > self.agreement:
                self.agreement = same
                self.next_place = end + 1
            end = self.earlier[end]
            seen += 1

    cdef int take(self, int32_t token) except -1:
        cdef int kind
        if self.next_place >= 0:
            kind = class_of(self.agreement)
            self.tries[kind] = self.tries[kind] * FADE + 1
            self.hits[kind] = self.hits[kind] * FADE + (self.tokens[self.next_place] == token)
        self.append(token)
        self.look()
        return 0

    def told(self, tokens):
        """Tokens that were drawn, in order."""
        for token in tokens:
            self.take(token)

    def guess(self, int most):
        """At most so many tokens that may follow, and for each the chance that it is drawn after
        all those before it."""
        cdef int32_t found[MOST]
        cdef int i, at, agreement = self.agreement, kind
        cdef double chance = 1
        if self.next_place < 0:
            return [], []
        most = min(most, MOST)
        chances = []
        for i in range(most):
            at = self.next_place + i
            found[i] = self.tokens[at] if at < self.size else found[at - self.size]
            kind = class_of(min(agreement + i, LONGEST))
            chance *= self.hits[kind] / self.tries[kind]
            chances.append(chance)
        return [found[i] for i in range(most)], chances
