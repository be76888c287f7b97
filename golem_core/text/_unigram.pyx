# cython: language_level=3
"""Unigram models: how SentencePiece normalises a text, and its likeliest cut into tokens."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr
from cpython.bytes cimport PyBytes_FromStringAndSize

import numpy as np

from golem_core.text._table cimport Table, Trie, char_size
from golem_core.text.errors import TokenizerError


cdef class Unigram:
    """``scores`` f32, one a token of ``table``; only the tokens ``usable`` (i32) are cut out."""

    cdef Table table
    cdef Trie trie
    cdef const float[::1] scores
    cdef int32_t unknown
    cdef double unknown_score

    def __cinit__(self, Table table not None, const float[::1] scores, const int32_t[::1] usable,
                  *, int32_t unknown, double unknown_score):
        cdef Py_ssize_t i
        cdef int32_t token
        self.table = table
        self.scores = scores
        self.unknown = unknown
        self.unknown_score = unknown_score
        self.trie = Trie()
        for i in range(usable.shape[0]):
            token = usable[i]
            if not 0 <= token < min(table.count, scores.shape[0]):
                raise IndexError(token)
            self.trie.add(table.blob + table.starts[token],
                          table.starts[token + 1] - table.starts[token], token)

    def extend(self, bytes text, list ids):
        """Append the ids of the likeliest cut of ``text`` (UTF-8) to ``ids``.

        Sums are f64 and only a better one replaces what was found first. A character that is no
        token costs ``unknown_score``; neighbours of that kind are one unknown token.
        """
        cdef int64_t size = len(text)
        cdef const uint8_t *raw = <const uint8_t *><const char *>text
        cdef double *best
        cdef int32_t *tokens
        cdef int32_t *starts
        cdef int64_t at
        cdef list found = []
        if size == 0:
            return
        if size >= (1 << 31) - 1:
            raise OverflowError("a text of 2 GiB or more cannot be tokenized at once")
        best = <double *>malloc((size + 1) * sizeof(double))
        tokens = <int32_t *>malloc((size + 1) * sizeof(int32_t))
        starts = <int32_t *>malloc((size + 1) * sizeof(int32_t))
        try:
            if best == NULL or tokens == NULL or starts == NULL:
                raise MemoryError
            with nogil:
                self._walk(raw, size, best, tokens, starts)
            at = size
            while at > 0:
                found.append(tokens[at])
                at = starts[at]
                while found[len(found) - 1] == self.unknown and at and tokens[at] == self.unknown:
                    at = starts[at]
        finally:
            free(best)
            free(tokens)
            free(starts)
        found.reverse()
        ids.extend(found)

    cdef void _walk(self, const uint8_t *text, int64_t size, double *best, int32_t *tokens,
                    int32_t *starts) noexcept nogil:
        cdef int64_t at = 0
        cdef int64_t i, length
        cdef int32_t node, token
        cdef double score
        cdef bint whole
        for i in range(size + 1):
            best[i] = -INFINITY
            tokens[i] = self.unknown
            starts[i] = 0
        best[0] = 0
        while at < size:
            length = char_size(text[at], size - at)
            whole = False
            node = 0
            i = at
            while i < size:
                node = self.trie.step(node, text[i])
                if node < 0:
                    break
                i += 1
                token = self.trie.values[node]
                if token >= 0:
                    whole = whole or i - at == length
                    score = best[at] + self.scores[token]
                    if score > best[i]:
                        best[i] = score
                        tokens[i] = token
                        starts[i] = <int32_t>at
            if not whole:
                score = best[at] + self.unknown_score
                if score > best[at + length]:
                    best[at + length] = score
                    tokens[at + length] = self.unknown
                    starts[at + length] = <int32_t>at
            at += length


cdef class Charsmap:
    """SentencePiece's normalisation: replacements of the longest match, then the spaces.

    ``blob`` is ``precompiled_charsmap``: a u32 size, a double array of u32 by XOR, replacements
    ended by NUL. ``own``: texts that pass unchanged (user-defined tokens). ``prefix``: a U+2581
    goes in front; ``merge``: runs of spaces become one and none is left at the ends.
    """

    cdef bytes blob
    cdef const uint32_t[::1] units
    cdef int64_t texts              # where in blob the replacements begin
    cdef Trie own
    cdef bint prefix, merge

    def __cinit__(self, bytes blob, own, *, bint prefix, bint merge):
        cdef bytes text
        self.blob = blob
        self.prefix = prefix
        self.merge = merge
        self.own = Trie()
        for text in own:
            self.own.add(<const uint8_t *><const char *>text, len(text), 1)
        if blob:
            size = int.from_bytes(blob[:4], "little")
            if len(blob) < 5 or size % 4 or size + 4 >= len(blob) or blob[len(blob) - 1]:
                raise TokenizerError(
                    f"tokenizer.ggml.precompiled_charsmap is damaged: {len(blob)} bytes that "
                    f"announce a table of {size}, and end in {blob[len(blob) - 1]} instead of 0"
                )
            self.units = np.frombuffer(blob, "<u4", size // 4, 4).astype(np.uint32)
            self.texts = 4 + size
        else:
            self.units = np.zeros(0, np.uint32)

    def normalise(self, bytes text):
        """The text as the vocabulary spells it, UTF-8."""
        cdef const uint8_t *raw = <const uint8_t *><const char *>text
        cdef const uint8_t *blob = <const uint8_t *><const char *>self.blob
        cdef int64_t size = len(text)
        cdef int64_t at = 0
        cdef int64_t taken, i, length
        cdef int64_t value
        cdef const uint8_t *piece
        cdef Output out = Output()
        cdef bint in_word = False
        cdef bint prefixed = False
        while at < size:
            taken = self._own(raw + at, size - at)
            piece = raw + at
            length = taken
            if not taken:
                taken = self._match(raw + at, size - at, &value)
                if taken:
                    piece = blob + self.texts + value
                    length = <const uint8_t *>memchr(
                        piece, 0, len(self.blob) - self.texts - value
                    ) - piece
                else:
                    taken = length = char_size(raw[at], size - at)
            for i in range(length):
                if piece[i] != 32:
                    if not in_word:
                        in_word = True
                        if self.merge or (self.prefix and not prefixed):
                            out.add_space()
                            prefixed = True
                    out.add(piece[i])
                else:
                    in_word = False
                    if not self.merge:
                        out.add_space()
            at += taken
        return PyBytes_FromStringAndSize(<const char *>out.text, out.size)

    cdef int64_t _own(self, const uint8_t *raw, int64_t size) noexcept nogil:
        cdef int32_t node = 0
        cdef int64_t i
        cdef int64_t longest = 0
        for i in range(size):
            node = self.own.step(node, raw[i])
            if node < 0:
                break
            if self.own.values[node] >= 0:
                longest = i + 1
        return longest

    cdef int64_t _match(self, const uint8_t *raw, int64_t size, int64_t *value) except -1:
        """The length of the longest match and where its replacement is, 0 for none."""
        cdef uint32_t node, unit
        cdef int64_t i
        cdef int64_t longest = 0
        cdef int64_t count = self.units.shape[0]
        if count == 0:
            return 0
        node = base(self.units[0])
        for i in range(size):
            if raw[i] == 0:
                break
            node ^= raw[i]
            if node >= count:
                self._damaged()
            unit = self.units[node]
            if unit & 0x800000FF != raw[i]:
                break
            node ^= base(unit)
            if unit >> 8 & 1:
                if node >= count:
                    self._damaged()
                longest = i + 1
                value[0] = self.units[node] & 0x7FFFFFFF
                if self.texts + value[0] >= len(self.blob):
                    self._damaged()
        return longest

    def _damaged(self):
        raise TokenizerError("tokenizer.ggml.precompiled_charsmap points outside of itself")


cdef inline uint32_t base(uint32_t unit) noexcept nogil:
    return (unit >> 10) << ((unit & 0x200) >> 6)


cdef class Output:
    """Bytes that are added one by one."""

    cdef uint8_t *text
    cdef int64_t size, room

    def __dealloc__(self):
        free(self.text)

    cdef inline int add(self, uint8_t byte) except -1:
        cdef uint8_t *grown
        if self.size == self.room:
            self.room = max(256, 2 * self.room)
            grown = <uint8_t *>realloc(self.text, self.room)
            if grown == NULL:
                raise MemoryError
            self.text = grown
        self.text[self.size] = byte
        self.size += 1
        return 0

    cdef int add_space(self) except -1:
        self.add(0xE2)
        self.add(0x96)
        self.add(0x81)
        return 0
