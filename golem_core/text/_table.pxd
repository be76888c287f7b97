from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    /* A product of 128 bits folded to 64: one multiplication spreads every bit of both. */
    static inline uint64_t golem_text_mix(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD1B54A32D192ED03u);
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    uint64_t mix "golem_text_mix"(uint64_t a, uint64_t b) noexcept nogil


cdef inline int64_t char_size(uint8_t lead, int64_t left) noexcept nogil:
    """The bytes of a UTF-8 character that begins with `lead` where `left` bytes are left."""
    cdef int64_t size = 1
    if lead >= 0xF0:
        size = 4
    elif lead >= 0xE0:
        size = 3
    elif lead >= 0xC0:
        size = 2
    return size if size <= left else left


cdef class Table:
    cdef uint8_t *blob
    cdef int64_t *starts
    cdef int32_t *slots
    cdef int64_t blob_room, room, slot_mask
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t longest
    cdef int32_t find(self, const uint8_t *text, int64_t size) noexcept nogil
    cdef int32_t append(self, const uint8_t *text, int64_t size) except -1
    cdef int32_t intern(self, const uint8_t *text, int64_t size) except -1
    cdef int _reserve(self, int64_t size) except -1
    cdef int _rehash(self, int64_t slots) except -1
    cdef int64_t _slot(self, const uint8_t *text, int64_t size) noexcept nogil


ctypedef struct Edge:
    uint64_t key        # parent node << 9 | 256 | byte; 0 = free
    int32_t child


cdef class Trie:
    cdef Edge *edges
    cdef int32_t *values
    cdef int32_t[256] roots
    cdef int64_t mask, used, room
    cdef int32_t nodes
    cdef int add(self, const uint8_t *text, int64_t size, int32_t value) except -1
    cdef int32_t step(self, int32_t node, uint8_t byte) noexcept nogil
    cdef int _grow(self) except -1
    cdef int32_t _new_node(self) except -1
