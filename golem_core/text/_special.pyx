# cython: language_level=3
"""Finds the special tokens of a vocabulary in a text.

The rule is llama.cpp's: the longest token first wherever it stands, its occurrences from left to
right, then the next longest in what is left. A vocabulary may have thousands of them, so one walk
over the text finds where any occur; occurrences that overlap form a cluster, and only within one
does the rule have anything to decide.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp

from golem_core.text._table cimport Trie

cdef enum:
    ALWAYS = 1          # found even where only plain text is wanted
    TRIM_LEFT = 2       # swallows the white space before it
    TRIM_RIGHT = 4

cdef struct Special:
    int32_t id
    int32_t flags
    int64_t size
    const uint8_t *text


cdef class Specials:
    """``tokens``: (text, id, flags) of each, empty texts left out by the caller."""

    cdef Trie trie
    cdef Special *order         # longest first, lower ids first among equals
    cdef list texts             # owns what order points at
    cdef Py_ssize_t count

    def __cinit__(self, tokens):
        cdef Py_ssize_t i
        cdef bytes text
        self.trie = Trie()
        ranked = sorted(tokens, key=lambda token: (-len(token[0]), token[1]))
        self.count = len(ranked)
        self.texts = [token[0] for token in ranked]
        self.order = <Special *>malloc(max(1, self.count) * sizeof(Special))
        if self.order == NULL:
            raise MemoryError
        for i in range(self.count):
            text = self.texts[i]
            self.order[i].text = <const uint8_t *><const char *>text
            self.order[i].size = len(text)
            self.order[i].id = ranked[i][1]
            self.order[i].flags = ranked[i][2]
            self.trie.add(self.order[i].text, self.order[i].size, i)

    def __dealloc__(self):
        free(self.order)

    def __len__(self):
        return self.count

    def cut(self, bytes text, bint everything):
        """Where special tokens lie in ``text``: a list of (start, end, id) from left to right.

        The span holds the white space that the token swallows. Unless ``everything``, only tokens
        flagged as always found are.
        """
        cdef const uint8_t *raw = <const uint8_t *><const char *>text
        cdef int64_t size = len(text)
        cdef int64_t at, i, end
        cdef int64_t cluster = 0        # where the open cluster starts and where it ends so far
        cdef int64_t cluster_end = 0
        cdef int64_t free_from = 0
        cdef int32_t node, index
        cdef set members = set()
        cdef list found = []
        if not self.count:
            return found
        if size >= (1 << 31) - 1:
            raise OverflowError("a text of 2 GiB or more cannot be tokenized at once")
        for at in range(size):
            node = self.trie.roots[raw[at]]
            if node < 0:
                continue
            if members and at >= cluster_end:
                self._settle(raw, cluster, cluster_end, free_from, members, found)
                members.clear()
                free_from = cluster_end
            i = at + 1
            while True:
                index = self.trie.values[node]
                if index >= 0 and (everything or self.order[index].flags & ALWAYS):
                    if not members:
                        cluster = cluster_end = at
                    members.add(index)
                    end = i
                    if self.order[index].flags & TRIM_RIGHT:
                        while end < size and is_space(raw[end]):
                            end += 1
                    cluster_end = max(cluster_end, end)
                if i >= size:
                    break
                node = self.trie.step(node, raw[i])
                if node < 0:
                    break
                i += 1
        if members:
            self._settle(raw, cluster, cluster_end, free_from, members, found)
        found.sort()
        return found

    cdef int _settle(self, const uint8_t *raw, int64_t start, int64_t end, int64_t free_from,
                     set members, list found) except -1:
        """Decide which tokens of a cluster are taken. ends[i]: end of what took start + i."""
        cdef int32_t *ends = <int32_t *>calloc(end - start, sizeof(int32_t))
        cdef Py_ssize_t index
        if ends == NULL:
            raise MemoryError
        try:
            for index in sorted(members):
                self._take(raw, start, end, free_from, &self.order[index], ends, found)
        finally:
            free(ends)
        return 0

    cdef int _take(self, const uint8_t *raw, int64_t base, int64_t limit, int64_t free_from,
                   Special *special, int32_t *ends, list found) except -1:
        """Take one token's occurrences in [base, limit) that lie in free text.

        What was taken before is at least as long, so an overlap covers one of the two borders.
        """
        cdef int64_t at = base
        cdef int64_t start, end, i
        cdef const uint8_t *hit
        while at + special.size <= limit:
            hit = <const uint8_t *>memchr(raw + at, special.text[0], limit - special.size + 1 - at)
            if hit == NULL:
                break
            at = hit - raw
            end = at + special.size
            if ends[at - base] or ends[end - 1 - base]:
                at = base + max(ends[at - base], ends[end - 1 - base])
                continue
            if memcmp(hit, special.text, special.size) != 0:
                at += 1
                continue
            start = at
            if special.flags & TRIM_RIGHT:
                while end < limit and not ends[end - base] and is_space(raw[end]):
                    end += 1
            for i in range(start, end):
                ends[i - base] = end - base
            at = end
            if special.flags & TRIM_LEFT:
                while (start > free_from and is_space(raw[start - 1])
                       and (start <= base or not ends[start - 1 - base])):
                    start -= 1
            found.append((start, end, special.id))
        return 0


cdef inline bint is_space(uint8_t byte) noexcept nogil:
    return byte == 32 or 9 <= byte <= 13
