/* The codes of 32 weights out of a block as the file has it: read by repacking and dequantising.
 *
 * codes_TYPE(block, part, codes): part is which 32 of the block's weights; codes are unsigned, as
 * stored (what they stand for: linear_layout.h, and the scales: linear_dequant.c).
 */
#ifndef GOLEM_LINEAR_FILE_H
#define GOLEM_LINEAR_FILE_H

#include "linear_layout.h"

/* 16 bytes: low nibbles are the first 16 codes, high nibbles the last 16. */
static inline void nibble_halves(const uint8_t *qs, uint8_t *codes) {
    for (int j = 0; j < 16; j++) {
        codes[j] = qs[j] & 15;
        codes[j + 16] = qs[j] >> 4;
    }
}

/* Field `shift` of `bits` bits of 32 consecutive bytes. */
static inline void field(const uint8_t *qs, int shift, int bits, uint8_t *codes) {
    uint8_t mask = (uint8_t)((1 << bits) - 1);
    for (int j = 0; j < 32; j++) codes[j] = (uint8_t)(qs[j] >> shift) & mask;
}

/* The bits of 4 bytes, lowest first. Byte k of the product keeps bit k; adding 127 carries it to
 * the top of its byte. */
static inline void bit_row(const uint8_t *qs, uint8_t *codes) {
    for (int j = 0; j < 4; j++) {
        uint64_t x = qs[j] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
        x = ((x + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7) & UINT64_C(0x0101010101010101);
        store_u64(codes + 8 * j, x);
    }
}

static inline void codes_Q4_0(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    nibble_halves(block + 2, codes);
}

static inline void codes_Q4_1(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    nibble_halves(block + 4, codes);
}

static inline void fifth_bits(const uint8_t *qh, uint8_t *codes) {
    uint8_t high[32];
    bit_row(qh, high);
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)(high[j] << 4);
}

static inline void codes_Q5_0(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    nibble_halves(block + 6, codes);
    fifth_bits(block + 2, codes);
}

static inline void codes_Q5_1(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    nibble_halves(block + 8, codes);
    fifth_bits(block + 4, codes);
}

/* Stored as code = value + 128, so that all codes are unsigned. */
static inline void codes_Q8_0(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    for (int j = 0; j < 32; j++) codes[j] = block[2 + j] ^ 0x80;
}

static inline void codes_IQ4_NL(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    nibble_halves(block + 2, codes);
}

static inline void codes_IQ4_XS(const uint8_t *block, int part, uint8_t *codes) {
    nibble_halves(block + 8 + 16 * part, codes);
}

static inline void codes_MXFP4(const uint8_t *block, int part, uint8_t *codes) {
    (void)part;
    nibble_halves(block + 1, codes);
}

static inline void codes_Q2_K(const uint8_t *block, int part, uint8_t *codes) {
    field(block + 16 + 32 * (part >> 2), 2 * (part & 3), 2, codes);
}

static inline void codes_Q3_K(const uint8_t *block, int part, uint8_t *codes) {
    uint8_t high[32];
    field(block + 32 + 32 * (part >> 2), 2 * (part & 3), 2, codes);
    field(block, part, 1, high);
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)(high[j] << 2);
}

static inline void codes_Q4_K(const uint8_t *block, int part, uint8_t *codes) {
    field(block + 16 + 32 * (part >> 1), 4 * (part & 1), 4, codes);
}

static inline void codes_Q5_K(const uint8_t *block, int part, uint8_t *codes) {
    uint8_t high[32];
    field(block + 48 + 32 * (part >> 1), 4 * (part & 1), 4, codes);
    field(block + 16, part, 1, high);
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)(high[j] << 4);
}

static inline void codes_Q6_K(const uint8_t *block, int part, uint8_t *codes) {
    int half = part >> 2, quarter = part & 3; /* 128 weights; 32 of them */
    uint8_t high[32];
    field(block + 64 * half + 32 * (quarter & 1), 4 * (quarter >> 1), 4, codes);
    field(block + 128 + 32 * half, 2 * quarter, 2, high);
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)(high[j] << 4);
}

static inline void codes_Q1_0(const uint8_t *block, int part, uint8_t *codes) {
    bit_row(block + 2 + 4 * part, codes);
}

/* 2-bit codes in sequence, four a byte, lowest first. */
static inline void codes_Q2_0(const uint8_t *block, int part, uint8_t *codes) {
    for (int j = 0; j < 8; j++) { /* nibbles apart, then their halves */
        uint32_t x = block[2 + 8 * part + j];
        x = (x & 0x0f) | (x & 0xf0) << 12;
        store_u32(codes + 4 * j, (x & 0x00030003) | (x & 0x000c000c) << 6);
    }
}

static inline void codes_PQ2_0(const uint8_t *block, int part, uint8_t *codes) {
    codes_Q2_0(block, part, codes);
}

static inline void codes_TQ2_0(const uint8_t *block, int part, uint8_t *codes) {
    field(block + 32 * (part >> 2), 2 * (part & 3), 2, codes);
}

/* Digit n of base-3 fractions of 256: n times a factor 3 shifts the digits before it out. */
static inline void trits(const uint8_t *qs, int n, int count, uint8_t *codes) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int j = 0; j < count; j++) codes[j] = (uint8_t)(((uint8_t)(qs[j] * power[n]) * 3) >> 8);
}

/* 5 digits of 32 bytes, 5 of the next 16, 4 of the last 4; digit n of all before digit n + 1. */
static inline void codes_TQ1_0(const uint8_t *block, int part, uint8_t *codes) {
    if (part < 5) {
        trits(block, part, 32, codes);
        return;
    }
    int n = 2 * (part - 5);
    trits(block + 32, n, 16, codes);
    if (part < 7)
        trits(block + 32, n + 1, 16, codes + 16);
    else
        for (n = 0; n < 4; n++) trits(block + 48, n, 4, codes + 16 + 4 * n);
}

/* The same walk over 16, 8 and 2 bytes. */
static inline void codes_PTQ1_0(const uint8_t *block, int part, uint8_t *codes) {
    if (part < 3) trits(block, 2 * part, 16, codes);
    if (part < 2) trits(block, 2 * part + 1, 16, codes + 16);
    if (part == 2)
        for (int n = 0; n < 2; n++) trits(block + 16, n, 8, codes + 16 + 8 * n);
    if (part < 3) return;
    for (int n = 2; n < 5; n++) trits(block + 16, n, 8, codes + 8 * (n - 2));
    for (int n = 0; n < 4; n++) trits(block + 24, n, 2, codes + 24 + 2 * n);
}

/* Scale j of the twelve bytes q that Q4_K and Q5_K pack eight 6-bit scales and minima into. */
static inline int k_scale(const uint8_t *q, int j) {
    return j < 4 ? q[j] & 63 : (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
}

static inline int k_minimum(const uint8_t *q, int j) {
    return j < 4 ? q[j + 4] & 63 : (q[j + 4] >> 4) | (q[j] >> 6) << 4;
}

/* Q3_K: scale j = 0 .. 15 of the twelve bytes q, 0 .. 63 (32 too high). */
static inline int q3_scale(const uint8_t *q, int j) {
    int low = j < 8 ? q[j] & 15 : q[j - 8] >> 4;
    return low | ((q[8 + (j & 3)] >> (2 * (j >> 2))) & 3) << 4;
}

/* IQ4_XS: scale of sub-block j = 0 .. 7, -32 .. 31. */
static inline int iq4_scale(const uint8_t *block, int j) {
    int low = (block[4 + (j >> 1)] >> (4 * (j & 1))) & 15;
    return (low | ((load_u16(block + 2) >> (2 * j)) & 3) << 4) - 32;
}

#endif
