/* Codes and scales of a part in NEON registers: a quarter of a group, four rows, at a time.
 *
 * Pointers called part, super and words are those of the group plus the quarter's offset: vectors
 * of the four quarters alternate in memory, 16 bytes each.
 */
#ifndef GOLEM_LINEAR_NEON_CODES_H
#define GOLEM_LINEAR_NEON_CODES_H

#include <arm_neon.h>

#include "linear_layout.h"

/* Arguments marked const are constants at every call, so the branches on them vanish. */
#define INLINE static inline __attribute__((always_inline))

/* f32 numbers of a part, one lane a row. */
typedef struct {
    float32x4_t scale[2], low[2]; /* [0] of the part or [0], [1] of its halves */
} scales;

INLINE uint8x16_t load_vector(const uint8_t *part, int vector) {
    return vld1q_u8(part + 64 * vector);
}

INLINE uint8x16_t shifted(uint8x16_t x, const int left) {
    return left >= 0 ? x << left : x >> -left;
}

INLINE int8x16_t looked_up(const int8_t *values, uint8x16_t index) {
    return vqtbl1q_s8(vld1q_s8(values), index);
}

/* What is to be subtracted from codes to get their value: its binary logarithm, or -1 where the
 * codes are the values. */
INLINE int offset_of(const enum type type) {
    switch (type) {
    case T_Q4_0: return 3;
    case T_Q5_0: return 4;
    case T_Q3_K: return 2;
    case T_Q6_K: return 5;
    case T_Q1_0:
    case T_Q2_0:
    case T_PQ2_0:
    case T_PTQ1_0:
    case T_TQ1_0:
    case T_TQ2_0: return 0;
    default: return -1;
    }
}

/* Vector v of a part. */
INLINE int8x16_t load_code(const enum type type, const int bits, const uint8_t *part, const int v) {
    uint8x16_t x;
    if (bits == 8) {
        x = load_vector(part, v) ^ 128;
    } else if (bits >= 4) {
        x = load_vector(part, v & 3);
        x = v >= 4 ? x >> 4 : x & 15;
    } else if (bits >= 2) {
        x = load_vector(part, v >> 2) >> (2 * (v & 3)) & 3;
    } else {
        x = shifted(load_vector(part, 0), 1 - v) & 2;
    }
    if (bits == 5 || bits == 3) {
        const int at = bits - 1;
        x |= shifted(load_vector(part, bits == 5 ? 4 : 2), at - v) & (uint8_t)(1 << at);
    }
    if (bits == 6) x |= shifted(load_vector(part, 4 + (v >> 2)), 4 - 2 * (v & 3)) & 48;
    if (type == T_IQ4_NL || type == T_IQ4_XS) return looked_up(iq4_values, x);
    if (type == T_MXFP4) return looked_up(fp4_values, x);
    return vreinterpretq_s8_u8(x);
}

INLINE float32x4_t load_halves(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

INLINE uint16x8_t load_bytes(const uint8_t *p) { return vmovl_u8(vcreate_u8(load_u32(p))); }

/* 2^(e - 128) as half of 2^(e - 127), which has e as its exponent but where e is 0. */
INLINE float32x4_t load_powers(const uint8_t *p) {
    uint32x4_t e = vmovl_u16(vget_low_u16(load_bytes(p)));
    return vreinterpretq_f32_u32(vmaxq_u32(e << 23, vdupq_n_u32(0x00400000))) * 0.5f;
}

/* The numbers of part i in the low twelve bits, of "sixes". */
INLINE uint32x4_t load_sixes(const uint8_t *words, int i) {
    uint32x4_t word = {0};
    if (i < 6)
        word = vreinterpretq_u32_u8(load_vector(words, i / 2));
    else
        for (int k = 0; k < 3; k++)
            word |= vreinterpretq_u32_u8(load_vector(words, k)) >> 24 << (8 * k);
    return word >> (12 * (i & 1));
}

INLINE int32x4_t bits_at(uint32x4_t word, const int at, const int mask) {
    return vreinterpretq_s32_u32(word >> at & mask);
}

INLINE float32x4_t times(float32x4_t d, int32x4_t x) { return d * vcvtq_f32_s32(x); }

/* Scales of part i of `parts`, for rows 4 g .. */
INLINE scales load_scales(const enum type type, const uint8_t *super, const int g, int i,
                          const int parts) {
    scales s;
    const uint8_t *halves = super + 8 * g, *words = super + 64 + 16 * g;
    const uint8_t *bytes = super + 64 + 16 * i + 4 * g, *pairs = super + 64 + 32 * i + 8 * g;
    switch (type) {
    case T_Q4_1:
    case T_Q5_1:
        s.scale[0] = load_halves(halves);
        s.low[0] = load_halves(halves + 32);
        break;
    case T_Q4_K:
    case T_Q5_K: {
        uint32x4_t word = load_sixes(words, i);
        s.scale[0] = times(load_halves(halves), bits_at(word, 0, 63));
        s.low[0] = times(load_halves(halves + 32), bits_at(word, 6, 63));
        break;
    }
    case T_IQ4_XS: {
        int16x4_t x = vget_low_s16(vmovl_s8(vcreate_s8(load_u32(bytes))));
        s.scale[0] = times(load_halves(halves), vmovl_s16(x));
        break;
    }
    case T_MXFP4: s.scale[0] = load_powers(bytes - 64); break;
    case T_Q2_K: {
        uint32x4_t x = vmovl_u16(vreinterpret_u16_u8(vld1_u8(pairs)));
        float32x4_t scale = load_halves(halves), low = load_halves(halves + 32);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            s.scale[h] = times(scale, bits_at(x, 8 * h, 15));
            s.low[h] = times(low, bits_at(x, 8 * h + 4, 15));
        }
        break;
    }
    case T_Q3_K: {
        uint32x4_t word = load_sixes(words, i);
        float32x4_t scale = load_halves(halves);
        s.scale[0] = times(scale, bits_at(word, 0, 63) - 32);
        s.scale[1] = times(scale, bits_at(word, 6, 63) - 32);
        break;
    }
    case T_Q6_K: {
        int32x4_t x = vmovl_s16(vreinterpret_s16_u8(vld1_u8(pairs)));
        float32x4_t scale = load_halves(halves);
        s.scale[0] = times(scale, x << 24 >> 24);
        s.scale[1] = times(scale, x >> 8);
        break;
    }
    default: s.scale[0] = load_halves(halves + (2 * i < parts ? 0 : 32));
    }
    return s;
}

#endif
