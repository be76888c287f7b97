from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class Scratch:
    cdef uint8_t *text
    cdef int64_t room
    cdef int reserve(self, int64_t size) except -1
    cdef int64_t read_pair(self, str line, int64_t *cut) except -2


cdef class Alphabet:
    cdef int32_t[512] byte_of
    cdef int64_t read_pair(self, str line, Scratch scratch, int64_t *cut) except -2
    cdef int64_t read(self, str text, int64_t start, int64_t end, Scratch scratch,
                      int64_t at) except -2
