/* Codes and scales of a part in AVX2 registers: half a group, eight rows, at a time.
 *
 * Pointers called part, super and words are those of the group plus the half's offset: vectors of
 * the two halves alternate in memory, 32 bytes each.
 */
#ifndef GOLEM_LINEAR_AVX2_CODES_H
#define GOLEM_LINEAR_AVX2_CODES_H

#include <immintrin.h>

#include "linear_layout.h"

/* Inlined wherever used, and compiled for the instruction set: a plain inline function may not use
 * intrinsics. Arguments marked const are constants at every call, so the branches on them
 * vanish. */
#define TARGET "avx2,fma,f16c"
#define INLINE static inline __attribute__((always_inline, target(TARGET)))

/* f32 numbers of a part, one lane a row. */
typedef struct {
    __m256 scale[2], low[2]; /* [0] of the part or [0], [1] of its halves */
} scales;

INLINE __m256i load_vector(const uint8_t *part, int vector) {
    return _mm256_load_si256((const __m256i *)(part + 64 * vector));
}

INLINE __m256i byte_mask(int byte) { return _mm256_set1_epi8((char)byte); }

INLINE __m256i shifted(__m256i x, const int left) {
    return left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
}

INLINE __m256i looked_up(const int8_t *values, int offset, __m256i index) {
    __m128i t = _mm_add_epi8(_mm_loadu_si128((const __m128i *)values), _mm_set1_epi8((char)offset));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

/* Types whose codes need all eight bits are multiplied as signed numbers. */
INLINE int is_signed(const enum type type) {
    return type == T_Q8_0 || type == T_IQ4_NL || type == T_IQ4_XS;
}

INLINE int has_sixes(const enum type type) {
    return type == T_Q3_K || type == T_Q4_K || type == T_Q5_K;
}

/* Types whose halves have scales of their own. */
INLINE int has_halves(const enum type type) {
    return type == T_Q2_K || type == T_Q3_K || type == T_Q6_K;
}

/* The offset subtracted from codes to get their value, and added to make values unsigned:
 * its binary logarithm, or -1 where there is none. */
INLINE int offset_of(const enum type type) {
    switch (type) {
    case T_Q4_0: return 3;
    case T_Q5_0: return 4;
    case T_Q3_K: return 2;
    case T_Q6_K: return 5;
    case T_MXFP4: return 4;
    case T_Q1_0:
    case T_Q2_0:
    case T_PQ2_0:
    case T_PTQ1_0:
    case T_TQ1_0:
    case T_TQ2_0: return 0;
    default: return -1;
    }
}

/* Vectors of a half whose pairwise products with activations may be added in 16 bits: the largest
 * code times 2 * 127 times this stays below 32768. */
INLINE int steps_of(const enum type type) {
    return is_signed(type) ? 1 : type == T_Q6_K ? 2 : 4;
}

/* Vector v of a part. */
INLINE __m256i load_code(const enum type type, const int bits, const uint8_t *part, const int v) {
    __m256i x;
    if (bits == 8) return _mm256_xor_si256(load_vector(part, v), byte_mask(128));
    if (bits >= 4) {
        x = load_vector(part, v & 3);
        if (v >= 4) x = _mm256_srli_epi16(x, 4);
        x = _mm256_and_si256(x, byte_mask(15));
    } else if (bits >= 2) {
        x = _mm256_srli_epi16(load_vector(part, v >> 2), 2 * (v & 3));
        x = _mm256_and_si256(x, byte_mask(3));
    } else {
        return _mm256_and_si256(shifted(load_vector(part, 0), 1 - v), byte_mask(2));
    }
    if (bits == 5 || bits == 3) {
        int at = bits - 1;
        __m256i high = shifted(load_vector(part, bits == 5 ? 4 : 2), at - v);
        x = _mm256_or_si256(x, _mm256_and_si256(high, byte_mask(1 << at)));
    }
    if (bits == 6) {
        __m256i high = shifted(load_vector(part, 4 + (v >> 2)), 4 - 2 * (v & 3));
        x = _mm256_or_si256(x, _mm256_and_si256(high, byte_mask(48)));
    }
    if (type == T_IQ4_NL || type == T_IQ4_XS) return looked_up(iq4_values, 0, x);
    if (type == T_MXFP4) return looked_up(fp4_values, 1 << offset_of(type), x);
    return x;
}

INLINE __m256 load_halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p));
}

INLINE __m128i load_bytes(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)p); }

/* 2^(e - 128) as half of 2^(e - 127), which has e as its exponent but where e is 0. */
INLINE __m256 load_powers(const uint8_t *p) {
    __m256i e = _mm256_cvtepu8_epi32(load_bytes(p));
    __m256i twice = _mm256_max_epu32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(0x00400000));
    return _mm256_mul_ps(_mm256_castsi256_ps(twice), _mm256_set1_ps(0.5f));
}

/* The four words of "sixes", each with the numbers of two parts in its low 24 bits. */
typedef struct {
    __m256i word[4];
} sixes;

INLINE sixes load_sixes(const uint8_t *words) {
    sixes s;
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) s.word[k] = load_vector(words, k);
    __m256i middle = _mm256_and_si256(_mm256_srli_epi32(s.word[1], 16), _mm256_set1_epi32(0xff00));
    __m256i high = _mm256_and_si256(_mm256_srli_epi32(s.word[2], 8), _mm256_set1_epi32(0xff0000));
    s.word[3] = _mm256_or_si256(_mm256_srli_epi32(s.word[0], 24), _mm256_or_si256(middle, high));
    return s;
}

INLINE __m256i six(__m256i word, const int at) {
    return _mm256_and_si256(_mm256_srli_epi32(word, at), _mm256_set1_epi32(63));
}

/* Bits at .. at + 3 */
INLINE __m256i four(__m256i word, const int at) {
    return _mm256_and_si256(_mm256_srli_epi32(word, at), _mm256_set1_epi32(15));
}

INLINE __m256 times(__m256 d, __m256i x) { return _mm256_mul_ps(d, _mm256_cvtepi32_ps(x)); }

INLINE __m128i load_pairs(const uint8_t *super, const int h, int i) {
    return _mm_load_si128((const __m128i *)(super + 64 + 32 * i + 16 * h));
}

/* Scales of part i of `parts`, for rows 8 h ..; word and odd: for types with sixes. */
INLINE scales load_scales(const enum type type, const uint8_t *super, const int h, int i,
                          const int parts, __m256i word, const int odd) {
    scales s;
    const uint8_t *d = super + 16 * h;
    switch (type) {
    case T_Q4_1:
    case T_Q5_1:
        s.scale[0] = load_halves(d);
        s.low[0] = load_halves(d + 32);
        break;
    case T_Q4_K:
    case T_Q5_K:
        s.scale[0] = times(load_halves(d), six(word, 12 * odd));
        s.low[0] = times(load_halves(d + 32), six(word, 12 * odd + 6));
        break;
    case T_IQ4_XS: {
        __m256i x = _mm256_cvtepi8_epi32(load_bytes(super + 64 + 16 * i + 8 * h));
        s.scale[0] = times(load_halves(d), x);
        break;
    }
    case T_MXFP4: s.scale[0] = load_powers(super + 16 * i + 8 * h); break;
    case T_Q2_K: {
        __m256i x = _mm256_cvtepu16_epi32(load_pairs(super, h, i));
        __m256 scale = load_halves(d), low = load_halves(d + 32);
        s.scale[0] = times(scale, four(x, 0)), s.scale[1] = times(scale, four(x, 8));
        s.low[0] = times(low, four(x, 4)), s.low[1] = times(low, four(x, 12));
        break;
    }
    case T_Q3_K: {
        __m256 scale = load_halves(d);
        __m256i centre = _mm256_set1_epi32(32);
        s.scale[0] = times(scale, _mm256_sub_epi32(six(word, 12 * odd), centre));
        s.scale[1] = times(scale, _mm256_sub_epi32(six(word, 12 * odd + 6), centre));
        break;
    }
    case T_Q6_K: {
        __m256i x = _mm256_cvtepi16_epi32(load_pairs(super, h, i));
        __m256 scale = load_halves(d);
        s.scale[0] = times(scale, _mm256_srai_epi32(_mm256_slli_epi32(x, 24), 24));
        s.scale[1] = times(scale, _mm256_srai_epi32(x, 8));
        break;
    }
    default: s.scale[0] = load_halves(d + (2 * i < parts ? 0 : 32));
    }
    return s;
}

#endif
