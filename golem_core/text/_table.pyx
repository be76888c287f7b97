# cython: language_level=3
"""Byte strings by number and numbers by byte string, for vocabularies of a quarter of a million.

A dict of Python objects would take a second and a hundred megabytes for the largest vocabularies;
these tables take tens of milliseconds, and the merge loops read them without the interpreter.
Both only grow while a tokenizer is built, and are never written to afterwards.
"""

from cpython.bytes cimport PyBytes_AsStringAndSize, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    LIMIT = 1 << 30


cdef uint64_t hash_of(const uint8_t *text, int64_t size) noexcept nogil:
    cdef uint64_t state = <uint64_t>size
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, text, 8)
        state = mix(state, word)
        text += 8
        size -= 8
    if size:
        word = 0
        memcpy(&word, text, size)
        state = mix(state, word)
    return mix(state, 0)


cdef class Table:
    """Byte strings numbered in the order they came; ``Table(texts)`` numbers a vocabulary.

    Of equal strings in ``texts`` the last is the one found. ``longest`` is in bytes.
    """

    def __cinit__(self):
        self._rehash(64)
        self._reserve(0)

    def __init__(self, texts=()):
        cdef Py_ssize_t size
        cdef const char *text
        cdef char *raw
        self._rehash(max(64, 1 << (2 * (self.count + len(texts))).bit_length()))
        for item in texts:
            if isinstance(item, str):
                try:
                    text = PyUnicode_AsUTF8AndSize(item, &size)
                except UnicodeEncodeError:      # bytes that were no UTF-8 in the file
                    item = item.encode("utf-8", "surrogateescape")
                    PyBytes_AsStringAndSize(item, &raw, &size)
                    text = raw
            else:
                PyBytes_AsStringAndSize(item, &raw, &size)
                text = raw
            self.append(<const uint8_t *>text, size)

    def __dealloc__(self):
        free(self.blob)
        free(self.starts)
        free(self.slots)

    def __len__(self):
        return self.count

    def text(self, Py_ssize_t number):
        """String ``number`` as bytes; ``IndexError`` outside the table."""
        if not 0 <= number < self.count:
            raise IndexError(f"string {number} of a table of {self.count}")
        return PyBytes_FromStringAndSize(
            <const char *>self.blob + self.starts[number],
            self.starts[number + 1] - self.starts[number],
        )

    def get(self, bytes text):
        """The number of ``text``, or None."""
        cdef int32_t number = self.find(<const uint8_t *><const char *>text, len(text))
        return None if number < 0 else number

    def before(self, bytes character):
        """The characters that come right before ``character`` inside any string, as one str."""
        cdef set found = set()
        cdef Py_ssize_t size = len(character)
        cdef const uint8_t *wanted = <const uint8_t *><const char *>character
        cdef int64_t at, end, start
        cdef Py_ssize_t i
        for i in range(self.count):
            end = self.starts[i + 1]
            for at in range(self.starts[i] + 1, end - size + 1):
                if self.blob[at] == wanted[0] and memcmp(self.blob + at, wanted, size) == 0:
                    start = at - 1
                    while start > self.starts[i] and self.blob[start] & 0xC0 == 0x80:
                        start -= 1
                    found.add(self.blob[start:at])
        return "".join(sorted(char.decode("utf-8", "replace") for char in found))

    cdef int32_t find(self, const uint8_t *text, int64_t size) noexcept nogil:
        """The number of a string, or -1."""
        return self.slots[self._slot(text, size)]

    cdef int32_t append(self, const uint8_t *text, int64_t size) except -1:
        """Number a string anew; from now on it is the one found. Empty strings are never found."""
        cdef int32_t number = self.count
        self._reserve(size)
        self.count += 1
        self.starts[self.count] = self.starts[number] + size
        if size:
            memcpy(self.blob + self.starts[number], text, size)
            self.slots[self._slot(text, size)] = number
            self.longest = max(self.longest, size)
        return number

    cdef int32_t intern(self, const uint8_t *text, int64_t size) except -1:
        """The number of a string, which is appended when it is new."""
        cdef int32_t number = self.find(text, size)
        return number if number >= 0 else self.append(text, size)

    cdef int _reserve(self, int64_t size) except -1:
        cdef int64_t used = self.starts[self.count] if self.starts != NULL else 0
        cdef void *grown
        if used + size > self.blob_room:
            self.blob_room = max(4096, 2 * (used + size))
            grown = realloc(self.blob, self.blob_room)
            if grown == NULL:
                raise MemoryError
            self.blob = <uint8_t *>grown
        if self.starts == NULL or self.count + 2 > self.room:
            if self.count >= LIMIT:
                raise OverflowError("a vocabulary of more than 2**30 strings")
            self.room = max(256, 2 * (self.count + 2))
            grown = realloc(self.starts, self.room * sizeof(int64_t))
            if grown == NULL:
                raise MemoryError
            self.starts = <int64_t *>grown
            self.starts[self.count] = used
        if 2 * (self.count + 1) > self.slot_mask:
            self._rehash(2 * (self.slot_mask + 1))
        return 0

    cdef int _rehash(self, int64_t slots) except -1:
        cdef int32_t *grown = <int32_t *>realloc(self.slots, slots * sizeof(int32_t))
        cdef Py_ssize_t i
        cdef int64_t size
        if grown == NULL:
            raise MemoryError
        self.slots = grown
        self.slot_mask = slots - 1
        memset(grown, 0xFF, slots * sizeof(int32_t))
        for i in range(self.count):
            size = self.starts[i + 1] - self.starts[i]
            if size:
                self.slots[self._slot(self.blob + self.starts[i], size)] = i
        return 0

    cdef int64_t _slot(self, const uint8_t *text, int64_t size) noexcept nogil:
        """The slot that holds a string, or the free one where it belongs."""
        cdef int64_t at = hash_of(text, size) & self.slot_mask
        cdef int32_t number
        while True:
            number = self.slots[at]
            if number < 0:
                return at
            if (self.starts[number + 1] - self.starts[number] == size
                    and memcmp(self.blob + self.starts[number], text, size) == 0):
                return at
            at = (at + 1) & self.slot_mask


cdef class Trie:
    """Strings by their beginnings: node 0 is the root, ``values[node]`` what ends there, or -1."""

    def __cinit__(self):
        self.mask = 255
        self.edges = <Edge *>calloc(self.mask + 1, sizeof(Edge))
        if self.edges == NULL:
            raise MemoryError
        memset(self.roots, 0xFF, sizeof(self.roots))
        self._new_node()

    def __dealloc__(self):
        free(self.edges)
        free(self.values)

    cdef int add(self, const uint8_t *text, int64_t size, int32_t value) except -1:
        """Let ``text`` end in ``value``; of equal texts the last added is kept."""
        cdef int32_t node = 0
        cdef int32_t child
        cdef int64_t i, at
        cdef uint64_t key
        for i in range(size):
            child = self.step(node, text[i])
            if child < 0:
                child = self._new_node()
                if node == 0:
                    self.roots[text[i]] = child
                else:
                    if 2 * (self.used + 1) > self.mask:
                        self._grow()
                    key = (<uint64_t>node << 9) | 256 | text[i]
                    at = mix(key, 1) & self.mask
                    while self.edges[at].key:
                        at = (at + 1) & self.mask
                    self.edges[at].key = key
                    self.edges[at].child = child
                    self.used += 1
            node = child
        self.values[node] = value
        return 0

    cdef int32_t step(self, int32_t node, uint8_t byte) noexcept nogil:
        """The child of ``node`` along ``byte``, or -1."""
        cdef uint64_t key
        cdef int64_t at
        if node == 0:
            return self.roots[byte]
        key = (<uint64_t>node << 9) | 256 | byte
        at = mix(key, 1) & self.mask
        while self.edges[at].key:
            if self.edges[at].key == key:
                return self.edges[at].child
            at = (at + 1) & self.mask
        return -1

    cdef int _grow(self) except -1:
        cdef Edge *old = self.edges
        cdef int64_t slots = 2 * (self.mask + 1)
        cdef Edge *grown = <Edge *>calloc(slots, sizeof(Edge))
        cdef int64_t i, at
        if grown == NULL:
            raise MemoryError
        for i in range(self.mask + 1):
            if old[i].key:
                at = mix(old[i].key, 1) & (slots - 1)
                while grown[at].key:
                    at = (at + 1) & (slots - 1)
                grown[at] = old[i]
        self.edges = grown
        self.mask = slots - 1
        free(old)
        return 0

    cdef int32_t _new_node(self) except -1:
        cdef int32_t *grown
        if self.nodes >= self.room:
            self.room = max(1024, 2 * self.room)
            grown = <int32_t *>realloc(self.values, self.room * sizeof(int32_t))
            if grown == NULL:
                raise MemoryError
            self.values = grown
        self.values[self.nodes] = -1
        self.nodes += 1
        return self.nodes - 1
