/* How a group of 16 rows ("r16") lies in memory, for every block type; and the list of types.
 *
 * A group is a sequence of SUPERBLOCKS of COLS columns: a head of HEAD bytes with the scales, then
 * COLS / 32 PARTS of PART bytes with the codes of 32 columns. The last superblock of a row may be
 * partly unused. A superblock is a multiple of 64 bytes, so that every vector of a part is aligned,
 * and about as large as the blocks it was made from.
 *
 * The codes of a part are read as eight vectors v = 0 .. 7 of 64 bytes: byte 4 r + i of vector v is
 * row r, column 4 v + i of the part. That is what a 4-byte integer dot product wants: 16 rows side
 * by side, against 4 activations broadcast to all of them. Codes are stored in planes:
 *
 *   bits 8   8 x 64 bytes: the vectors themselves
 *   bits 4   4 x 64: packed vector p holds vector p in its low and p + 4 in its high nibbles
 *   bits 2   2 x 64: packed vector p holds vector 4 p + f in its bits 2 f, 2 f + 1
 *   bits 1   1 x 64: vector v in bit v
 *   bits 5 = 4 then 1, bits 6 = 4 then 2, bits 3 = 2 then 1: low plane first
 *
 * Heads (d and m are f16; [16] is one per row):
 *
 *   Q4_0 Q5_0 Q8_0 IQ4_NL Q2_0 PQ2_0 PTQ1_0 TQ1_0 TQ2_0 Q1_0   d[2][16], each for half of the parts
 *   Q4_1 Q5_1     d[16] m[16]
 *   MXFP4         e[4][16] bytes, one for each part
 *   Q4_K Q5_K     d[16] dmin[16], sixes of (scale, minimum) of each part
 *   Q3_K          d[16], 32 bytes unused, sixes of the scales (+32) of each part's two halves
 *   Q2_K          d[16] dmin[16], [8][16][2] bytes: scale | minimum << 4 of each part's two halves
 *   Q6_K          d[16], 32 bytes unused, [8][16][2] signed bytes: scales of each part's halves
 *   IQ4_XS        d[16], 32 bytes unused, [8][16] signed bytes: the scale of each part
 *
 * "Sixes": two 6-bit numbers a part, eight parts, in 3 x 16 words of 32 bits. Word k of row r holds
 * parts 2 k and 2 k + 1 in its low 24 bits (first, second, first, second); its top byte is byte k
 * of the same 24 bits for parts 6 and 7.
 */
#ifndef GOLEM_LINEAR_LAYOUT_H
#define GOLEM_LINEAR_LAYOUT_H

#include <stdint.h>
#include <string.h>

#include "linear.h"

/* NAME, GGML id, weights and bytes of a file block */
#define GOLEM_FLOAT_TYPES(X) \
    X(F32, 0, 1, 4)          \
    X(F16, 1, 1, 2)          \
    X(BF16, 30, 1, 2)

/* NAME, GGML id, weights and bytes of a file block, bits of a code, COLS, HEAD */
#define GOLEM_CODE_TYPES(X)               \
    X(Q4_0, 2, 32, 18, 4, 64, 64)         \
    X(Q4_1, 3, 32, 20, 4, 32, 64)         \
    X(Q5_0, 6, 32, 22, 5, 64, 64)         \
    X(Q5_1, 7, 32, 24, 5, 32, 64)         \
    X(Q8_0, 8, 32, 34, 8, 64, 64)         \
    X(Q2_K, 10, 256, 84, 2, 256, 320)     \
    X(Q3_K, 11, 256, 110, 3, 256, 256)    \
    X(Q4_K, 12, 256, 144, 4, 256, 256)    \
    X(Q5_K, 13, 256, 176, 5, 256, 256)    \
    X(Q6_K, 14, 256, 210, 6, 256, 320)    \
    X(IQ4_NL, 20, 32, 18, 4, 64, 64)      \
    X(IQ4_XS, 23, 256, 136, 4, 256, 192)  \
    X(TQ1_0, 34, 256, 54, 2, 256, 64)     \
    X(TQ2_0, 35, 256, 66, 2, 256, 64)     \
    X(MXFP4, 39, 32, 17, 4, 128, 64)      \
    X(Q1_0, 41, 128, 18, 1, 256, 64)      \
    X(Q2_0, 42, 64, 18, 2, 128, 64)       \
    X(PQ2_0, 142, 128, 34, 2, 256, 64)    \
    X(PTQ1_0, 143, 128, 28, 2, 256, 64)

#define GOLEM_NAME_FLOAT(NAME, ID, WEIGHTS, BYTES) T_##NAME,
#define GOLEM_NAME_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) T_##NAME,
enum type { GOLEM_FLOAT_TYPES(GOLEM_NAME_FLOAT) GOLEM_CODE_TYPES(GOLEM_NAME_CODES) T_COUNT };

/* The numbers of a type as constants: BITS_Q4_0, COLS_Q4_0, HEAD_Q4_0, PART_Q4_0, SUPER_Q4_0. */
#define GOLEM_SIZES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) \
    WEIGHTS_##NAME = WEIGHTS, BYTES_##NAME = BYTES,             \
    BITS_##NAME = BITS, COLS_##NAME = COLS, HEAD_##NAME = HEAD, \
    PART_##NAME = BITS * 64, SUPER_##NAME = HEAD + COLS / 32 * BITS * 64,
enum { GOLEM_CODE_TYPES(GOLEM_SIZES) };

/* What a code stands for, as a number of the block's scale. Types not listed: code - OFFSET. */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline uint16_t load_u16(const void *p) {
    uint16_t x;
    memcpy(&x, p, 2);
    return x;
}

static inline uint32_t load_u32(const void *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}

/* As everything here, for little-endian machines. */
static inline void store_u32(void *p, uint32_t x) { memcpy(p, &x, 4); }
static inline void store_u64(void *p, uint64_t x) { memcpy(p, &x, 8); }

static inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* f16 -> f32, exact, in integer arithmetic: baseline code has no instruction for it. */
static inline float f32_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude < 0x0400) return float_of_bits(sign | bits_of_float((float)magnitude * 0x1p-24f));
    uint32_t bits = (magnitude << 13) + (112u << 23);
    if (magnitude >= 0x7c00) bits += 112u << 23;
    if (magnitude > 0x7c00) bits |= 0x00400000;
    return float_of_bits(sign | bits);
}

/* Sixteen drawn values whose largest magnitude has these bits (magnitudes order as their bits do,
 * and NaN is above infinity): their scale, and what to multiply them with before rounding, 0 where
 * the codes are to be zero. */
static inline void scale_of(uint32_t largest, float *inverse, float *d) {
    float amax = float_of_bits(largest);
    int finite = largest < 0x7f800000, used = finite && amax >= 1e-30f;
    *inverse = used ? 127.0f / amax : 0.0f;
    *d = used ? amax / 127.0f : finite ? 0.0f : float_of_bits(0x7fc00000);
}

/* A prompt's sixteen with that largest magnitude, beside others with the base 1 / per_base: k of
 * their scale base * 2^k. 127.5 is 1.9921875 * 2^6: from that mantissa on a code would round to
 * 128, and the addition carries. */
static inline int prompt_exponent(uint32_t largest, float per_base) {
    int k = (int)((bits_of_float(float_of_bits(largest) * per_base) + 0x10000) >> 23) - 133;
    return k < -GOLEM_PROMPT_SHIFTS ? -GOLEM_PROMPT_SHIFTS : k;
}

static inline float power_of_2(int k) { return float_of_bits((uint32_t)(127 + k) << 23); }

/* MXFP4's scale 2^(e - 128), which makes up for values doubled in fp4_values. */
static inline float f32_of_e8(uint8_t e) {
    return float_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

#endif
