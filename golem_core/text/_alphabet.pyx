# cython: language_level=3
"""Reads the texts and merges of a BPE vocabulary as bytes.

GPT-2's vocabularies are printable: each byte has a character that stands for it. Here that is
undone while a tokenizer is built, a quarter of a million texts and half a million merges.
"""

from cpython.bytes cimport PyBytes_AsStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from golem_core.text._table cimport Table


cdef class Scratch:
    """A few bytes to put a text together in."""

    def __dealloc__(self):
        free(self.text)

    cdef int reserve(self, int64_t size) except -1:
        cdef uint8_t *grown
        if size > self.room:
            grown = <uint8_t *>realloc(self.text, 2 * size)
            if grown == NULL:
                raise MemoryError
            self.text = grown
            self.room = 2 * size
        return 0

    cdef int64_t read_pair(self, str line, int64_t *cut) except -2:
        """Read a line of two texts as UTF-8, the second from ``cut`` on; the size, or -1."""
        cdef Py_ssize_t size
        cdef char *raw
        cdef const char *text
        cdef const char *space
        cdef bytes odd
        try:
            text = PyUnicode_AsUTF8AndSize(line, &size)
        except UnicodeEncodeError:              # bytes that were no UTF-8 in the file
            odd = line.encode("utf-8", "surrogateescape")
            PyBytes_AsStringAndSize(odd, &raw, &size)
            text = raw
        space = <const char *>memchr(text + 1, 32, size - 1) if size > 1 else NULL
        if space == NULL:
            return -1
        self.reserve(size)
        cut[0] = space - text
        memcpy(self.text, text, cut[0])
        memcpy(self.text + cut[0], space + 1, size - cut[0] - 1)
        return size - 1


cdef class Alphabet:
    """GPT-2's printable stand-ins for bytes, undone: text of a vocabulary to the bytes it means."""

    def __cinit__(self):
        cdef int32_t i, extra = 256
        for i in range(512):
            self.byte_of[i] = -1
        for i in range(256):
            if 33 <= i <= 126 or 161 <= i <= 172 or 174 <= i <= 255:
                self.byte_of[i] = i
            else:
                self.byte_of[extra] = i
                extra += 1

    def decode(self, str text):
        """The bytes ``text`` stands for, or None when a character stands for none."""
        cdef Scratch scratch = Scratch()
        cdef int64_t size = self.read(text, 0, len(text), scratch, 0)
        return None if size < 0 else scratch.text[:size]

    def table(self, texts):
        """The bytes of a vocabulary, numbered as it is; texts of other characters are empty."""
        cdef Table table = Table()
        cdef Scratch scratch = Scratch()
        cdef str text
        for text in texts:
            table.append(scratch.text, max(0, self.read(text, 0, len(text), scratch, 0)))
        return table

    cdef int64_t read_pair(self, str line, Scratch scratch, int64_t *cut) except -2:
        """Read a line of two texts as bytes, the second from ``cut`` on; the size, or -1."""
        cdef int64_t size
        cut[0] = line.find(" ", 1)
        if cut[0] < 0 or self.read(line, 0, cut[0], scratch, 0) < 0:
            return -1
        return self.read(line, cut[0] + 1, len(line), scratch, cut[0])

    cdef int64_t read(self, str text, int64_t start, int64_t end, Scratch scratch,
                      int64_t at) except -2:
        """Write the bytes of ``text[start:end]`` from ``at`` on; where they end, or -1."""
        cdef int64_t i
        cdef Py_UCS4 c
        scratch.reserve(at + end - start + 1)
        for i in range(start, end):
            c = text[i]
            if c >= 512 or self.byte_of[c] < 0:
                return -1
            scratch.text[at] = self.byte_of[c]
            at += 1
        return at
