# cython: language_level=3
"""Walks the arrays of a GGUF header whose elements have no fixed size.

A vocabulary holds hundreds of thousands of strings, and the way to what follows is over every one
of them; in Python that alone takes a tenth of a second. Nothing is decoded or allocated here
except the index that `element_offsets` returns.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cpython.unicode cimport PyUnicode_DecodeUTF8

import numpy as np

cdef enum:
    PAST_END = -1
    UNKNOWN_TYPE = -2
    TOO_DEEP = -3
    STRING = 8
    ARRAY = 9
    TYPES = 13
    DEPTH = 8

cdef int64_t[13] WIDTH = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]


cdef int64_t skip(const uint8_t *data, int64_t at, int64_t end, uint32_t kind, uint64_t count,
                  int depth, int64_t *offsets, uint32_t *unknown) noexcept nogil:
    """Where `count` elements of type `kind` that begin at `at` end, or one of the errors above.

    With `offsets` (count) the place of each outermost element is kept.
    """
    cdef uint64_t i, length
    cdef uint32_t inner
    if kind >= TYPES:
        unknown[0] = kind
        return UNKNOWN_TYPE
    if kind != STRING and kind != ARRAY:
        if count > <uint64_t>((end - at) // WIDTH[kind]):
            return PAST_END
        return at + <int64_t>count * WIDTH[kind]
    if depth >= DEPTH:
        return TOO_DEEP
    if count > <uint64_t>((end - at) // 8):
        return PAST_END
    for i in range(count):
        if offsets != NULL:
            offsets[i] = at
        if kind == STRING:
            if end - at < 8:
                return PAST_END
            memcpy(&length, data + at, 8)
            at += 8
            if length > <uint64_t>(end - at):
                return PAST_END
            at += <int64_t>length
        else:
            if end - at < 12:
                return PAST_END
            memcpy(&inner, data + at, 4)
            memcpy(&length, data + at + 4, 8)
            at = skip(data, at + 12, end, inner, length, depth + 1, NULL, unknown)
            if at < 0:
                return at
    return at


def skip_array(const uint8_t[::1] data, int64_t at, int64_t end, uint32_t kind, uint64_t count):
    """The end of an array's elements, which begin at ``at``; ``ValueError`` says what is wrong."""
    return _walk(data, at, end, kind, count, None)


def element_offsets(const uint8_t[::1] data, int64_t at, int64_t end, uint32_t kind,
                    uint64_t count):
    """Where each of ``count`` strings or arrays begins, and their end: int64 ``(count + 1)``."""
    if count > <uint64_t>((end - at) // 8):
        raise ValueError(_reason(PAST_END, 0))
    index = np.empty(count + 1, np.int64)
    index[count] = _walk(data, at, end, kind, count, index)
    return index


def decode_strings(const uint8_t[::1] data, const int64_t[::1] edges):
    """The strings an `element_offsets` index points at; bytes that are no UTF-8 become surrogates."""
    cdef Py_ssize_t i
    cdef Py_ssize_t count = edges.shape[0] - 1
    cdef int64_t start, end
    cdef list texts = [None] * count
    for i in range(count):
        start = edges[i] + 8
        end = edges[i + 1]
        if start < 8 or end < start or end > data.shape[0]:
            raise ValueError(_reason(PAST_END, 0))
        texts[i] = PyUnicode_DecodeUTF8(
            <const char *>&data[0] + start, end - start, "surrogateescape"
        )
    return texts


cdef int64_t _walk(const uint8_t[::1] data, int64_t at, int64_t end, uint32_t kind,
                   uint64_t count, index) except -1:
    cdef int64_t[::1] places
    cdef int64_t *offsets = NULL
    cdef uint32_t unknown = 0
    cdef int64_t result
    if at < 0 or end > data.shape[0] or at > end:
        raise ValueError(_reason(PAST_END, 0))
    if index is not None:
        places = index
        offsets = &places[0]
    with nogil:
        result = skip(&data[0], at, end, kind, count, 0, offsets, &unknown)
    if result < 0:
        raise ValueError(_reason(result, unknown))
    return result


cdef str _reason(int64_t error, uint32_t unknown):
    if error == UNKNOWN_TYPE:
        return f"an array of the unknown value type {unknown} (0 to 12 are known)"
    if error == TOO_DEEP:
        return f"arrays nested more than {DEPTH} deep"
    return "an array that runs past the end of the file"
