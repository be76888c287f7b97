/* Rows as a file has them -> groups of 16 rows as the kernels read them (linear_layout.h).
 *
 * Done once at load. Part by part, 16 rows abreast: each row's 32 codes are decoded to bytes, then
 * packed four at a time into the planes of the part.
 */
#include "linear_file.h"
#include "repack.h"

#define INLINE static inline __attribute__((always_inline))

enum { MASK4 = 0x0f0f0f0f, MASK2 = 0x03030303, MASK1 = 0x01010101 };

INLINE void store_word(uint8_t *plane, int vector, int r, uint32_t word) {
    memcpy(plane + 64 * vector + 4 * r, &word, 4);
}

INLINE void put_nibbles(uint8_t *plane, int r, const uint32_t *x) {
    for (int p = 0; p < 4; p++)
        store_word(plane, p, r, (x[p] & MASK4) | (x[p + 4] & MASK4) << 4);
}

INLINE void put_pairs(uint8_t *plane, int r, const uint32_t *x, int shift) {
    for (int p = 0; p < 2; p++) {
        uint32_t word = 0;
        for (int f = 0; f < 4; f++) word |= ((x[4 * p + f] >> shift) & MASK2) << (2 * f);
        store_word(plane, p, r, word);
    }
}

INLINE void put_bits(uint8_t *plane, int r, const uint32_t *x, int shift) {
    uint32_t word = 0;
    for (int v = 0; v < 8; v++) word |= ((x[v] >> shift) & MASK1) << v;
    store_word(plane, 0, r, word);
}

INLINE void put_codes(uint8_t *part, int r, const uint8_t *codes, const int bits) {
    uint32_t x[8];
    memcpy(x, codes, 32);
    if (bits == 8)
        for (int v = 0; v < 8; v++) store_word(part, v, r, x[v]);
    if (bits >= 4 && bits <= 6) put_nibbles(part, r, x);
    if (bits == 5) put_bits(part + 256, r, x, 4);
    if (bits == 6) put_pairs(part + 256, r, x, 4);
    if (bits == 2 || bits == 3) put_pairs(part, r, x, 0);
    if (bits == 3) put_bits(part + 128, r, x, 2);
    if (bits == 1) put_bits(part, r, x, 0);
}

INLINE void put_half(uint8_t *at, int r, const uint8_t *f16) { memcpy(at + 2 * r, f16, 2); }

/* Two 6-bit numbers of part i; the words are zero before. */
INLINE void put_sixes(uint8_t *words, int i, int r, int first, int second) {
    uint32_t bits = (uint32_t)(first | second << 6) << (12 * (i & 1));
    for (int k = 0; k < 3; k++) {
        uint32_t word = load_u32(words + 64 * k + 4 * r);
        if (i >> 1 == k) word |= bits;
        if (i >> 1 == 3) word |= ((bits >> (8 * k)) & 255) << 24;
        memcpy(words + 64 * k + 4 * r, &word, 4);
    }
}

/* scales_TYPE: what part i of the superblock (part j of the file's block) contributes to its
 * head. */
#define SCALES(NAME)                                                                      \
    INLINE void scales_##NAME(uint8_t *head, int i, int r, const uint8_t *block, int j)

/* One f16 at byte `at` of the block, two slots a superblock. */
#define TWO_SCALES(NAME, AT) \
    SCALES(NAME) { (void)j; put_half(head + 32 * (i / (COLS_##NAME / 64)), r, block + (AT)); }

TWO_SCALES(Q4_0, 0)
TWO_SCALES(Q5_0, 0)
TWO_SCALES(Q8_0, 0)
TWO_SCALES(IQ4_NL, 0)
TWO_SCALES(Q1_0, 0)
TWO_SCALES(Q2_0, 0)
TWO_SCALES(PQ2_0, 0)
TWO_SCALES(PTQ1_0, 26)
TWO_SCALES(TQ1_0, 52)
TWO_SCALES(TQ2_0, 64)

SCALES(Q4_1) {
    (void)i, (void)j;
    put_half(head, r, block);
    put_half(head + 32, r, block + 2);
}

SCALES(Q5_1) { scales_Q4_1(head, i, r, block, j); }

SCALES(MXFP4) {
    (void)j;
    head[16 * i + r] = block[0];
}

SCALES(Q2_K) {
    put_half(head, r, block + 80);
    put_half(head + 32, r, block + 82);
    memcpy(head + 64 + 32 * i + 2 * r, block + 2 * j, 2);
}

SCALES(Q3_K) {
    const uint8_t *q = block + 96;
    put_half(head, r, block + 108);
    put_sixes(head + 64, i, r, q3_scale(q, 2 * j), q3_scale(q, 2 * j + 1));
}

SCALES(Q4_K) {
    put_half(head, r, block);
    put_half(head + 32, r, block + 2);
    put_sixes(head + 64, i, r, k_scale(block + 4, j), k_minimum(block + 4, j));
}

SCALES(Q5_K) { scales_Q4_K(head, i, r, block, j); }

SCALES(Q6_K) {
    put_half(head, r, block + 208);
    memcpy(head + 64 + 32 * i + 2 * r, block + 192 + 2 * j, 2);
}

SCALES(IQ4_XS) {
    put_half(head, r, block);
    head[64 + 16 * i + r] = (uint8_t)iq4_scale(block, j);
}

#define REPACK(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                        \
    size_t group_bytes_##NAME(int in) {                                                           \
        return (size_t)((in + COLS - 1) / COLS) * SUPER_##NAME;                                   \
    }                                                                                             \
    void repack_##NAME(const uint8_t *src, size_t row_bytes, int rows, int in, uint8_t *dst) {    \
        memset(dst, 0, group_bytes_##NAME(in));                                                   \
        for (int b = 0; b < in / 32; b++) {                                                       \
            uint8_t *super = dst + (size_t)(b / (COLS / 32)) * SUPER_##NAME;                      \
            int i = b % (COLS / 32), j = b % (WEIGHTS / 32);                                      \
            const uint8_t *block = src + (size_t)(b / (WEIGHTS / 32)) * BYTES;                    \
            for (int r = 0; r < rows; r++, block += row_bytes) {                                  \
                uint8_t codes[32];                                                                \
                codes_##NAME(block, j, codes);                                                    \
                put_codes(super + HEAD + i * PART_##NAME, r, codes, BITS);                        \
                scales_##NAME(super, i, r, block, j);                                             \
            }                                                                                     \
        }                                                                                         \
    }
GOLEM_CODE_TYPES(REPACK)

/* Float types: column k of the 16 rows side by side. */
#define REPACK_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                    \
    size_t group_bytes_##NAME(int in) {                                                           \
        return ((size_t)in * BYTES * GOLEM_GROUP + 63) & ~(size_t)63;                             \
    }                                                                                             \
    void repack_##NAME(const uint8_t *src, size_t row_bytes, int rows, int in, uint8_t *dst) {    \
        memset(dst, 0, group_bytes_##NAME(in));                                                   \
        for (int k0 = 0; k0 < in; k0 += 64)                                                       \
            for (int r = 0; r < rows; r++)                                                        \
                for (int k = k0; k < in && k < k0 + 64; k++)                                      \
                    memcpy(dst + ((size_t)k * GOLEM_GROUP + r) * BYTES,                           \
                           src + (size_t)r * row_bytes + (size_t)k * BYTES, BYTES);               \
    }
GOLEM_FLOAT_TYPES(REPACK_FLOAT)
