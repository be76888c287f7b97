/* Codes and scales of a part in AVX-512 registers: 16 rows are the 16 lanes. */
#ifndef GOLEM_LINEAR_AVX512_CODES_H
#define GOLEM_LINEAR_AVX512_CODES_H

#include <immintrin.h>

#include "linear_layout.h"

/* Inlined wherever used, and compiled for the instruction set: a plain inline function may not use
 * intrinsics. Arguments marked const are constants at every call, so the branches on them
 * vanish. */
#define TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#define INLINE static inline __attribute__((always_inline, target(TARGET)))

/* f32 numbers of a part, one lane a row. */
typedef struct {
    __m512 scale[2], low[2]; /* [0] of the part or [0], [1] of its halves */
} scales;

INLINE __m512i load_vector(const uint8_t *part, int vector) {
    return _mm512_load_si512(part + 64 * vector);
}

/* (x & mask) | rest in one instruction */
INLINE __m512i masked_or(__m512i x, __m512i mask, __m512i rest) {
    return _mm512_ternarylogic_epi32(x, mask, rest, 0xEA);
}

INLINE __m512i byte_mask(int byte) { return _mm512_set1_epi8((char)byte); }

/* Bits 2 f .. 2 f + 1 of each byte of packed, moved to bits 4 .. 5 (others are rubbish). */
INLINE __m512i pair_at_4(__m512i packed, const int f) {
    return f < 2 ? _mm512_slli_epi16(packed, 4 - 2 * f) : _mm512_srli_epi16(packed, 2 * f - 4);
}

/* Bit v of each byte, moved to bit `to`. */
INLINE __m512i bit_at(__m512i packed, const int v, const int to) {
    return v < to ? _mm512_slli_epi16(packed, to - v) : _mm512_srli_epi16(packed, v - to);
}

/* The offset subtracted from codes to get their value, and added to make values unsigned:
 * its binary logarithm, or -1 where there is none. */
INLINE int offset_of(const enum type type) {
    switch (type) {
    case T_Q4_0: return 3;
    case T_Q5_0: return 4;
    case T_Q8_0: return 7;
    case T_Q3_K: return 2;
    case T_Q6_K: return 5;
    case T_IQ4_NL:
    case T_IQ4_XS: return 7;
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

/* Codes that index a table -> its values, made unsigned by the offset. */
INLINE __m512i looked_up(const enum type type, const int8_t *values, __m512i index) {
    __m128i t = _mm_loadu_si128((const __m128i *)values);
    t = _mm_add_epi8(t, _mm_set1_epi8((char)(1 << offset_of(type))));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index);
}

/* Vector v of a part, as unsigned bytes. */
INLINE __m512i load_code(const enum type type, const int bits, const uint8_t *part, const int v) {
    __m512i x;
    if (bits == 8) return load_vector(part, v);
    if (bits >= 4) {
        x = load_vector(part, v & 3);
        if (v >= 4) x = _mm512_srli_epi16(x, 4);
        x = _mm512_and_si512(x, byte_mask(15));
    } else if (bits >= 2) {
        x = _mm512_srli_epi16(load_vector(part, v >> 2), 2 * (v & 3));
        x = _mm512_and_si512(x, byte_mask(3));
    } else {
        return _mm512_and_si512(bit_at(load_vector(part, 0), v, 1), byte_mask(2));
    }
    if (bits == 6)
        x = masked_or(pair_at_4(load_vector(part, 4 + (v >> 2)), v & 3), byte_mask(48), x);
    if (bits == 5) x = masked_or(bit_at(load_vector(part, 4), v, 4), byte_mask(16), x);
    if (bits == 3) x = masked_or(bit_at(load_vector(part, 2), v, 2), byte_mask(4), x);
    if (type == T_IQ4_NL || type == T_IQ4_XS) return looked_up(type, iq4_values, x);
    if (type == T_MXFP4) return looked_up(type, fp4_values, x);
    return x;
}

/* Whether the high nibbles of a part are the codes of its second half. */
INLINE int has_nibbles(const enum type type) {
    return type == T_Q4_0 || type == T_Q4_1 || type == T_Q4_K;
}

INLINE __m512i low_nibbles(__m512i x) { return _mm512_and_si512(x, byte_mask(15)); }
INLINE __m512i high_nibbles(__m512i x) { return _mm512_and_si512(x, byte_mask(0xf0)); }

/* GFNI's matrix of bits picks the code of `bits` bits at bit `at` out of every byte; one of one bit
 * becomes 0 or 2. */
INLINE __m512i picked(const int bits, __m512i x, const int at) {
    const uint64_t rows = bits == 2 ? (uint64_t)1 << (56 + at) | (uint64_t)2 << (48 + at)
                                    : (uint64_t)1 << (48 + at);
    __m512i y;
    __asm__("vgf2p8affineqb $0, %2, %1, %0"
            : "=v"(y)
            : "v"(x), "v"(_mm512_set1_epi64((long long)rows)));
    return y;
}

/* Vector v of a part with codes of one or two bits, as load_code gives it, out of the packed vector
 * that has it. picks: by GFNI. That is one instruction, but for units that multiply as well, where
 * shifting and masking are two for others: a mixture keeps all of them busy. */
INLINE __m512i few_bits(const int bits, __m512i x, const int v, const int picks) {
    const int at = bits == 2 ? 2 * (v & 3) : v, to = bits == 2 ? 0 : 1;
    if (picks && at != to && (bits == 2 || (v & 3) != 3)) return picked(bits, x, at);
    x = bits == 2 ? _mm512_srli_epi16(x, at) : bit_at(x, v, to);
    return _mm512_and_si512(x, byte_mask(bits == 2 ? 3 : 2));
}

INLINE __m512 load_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p));
}

/* 2^(e - 128) as half of 2^(e - 127), which has e as its exponent but where e is 0. */
INLINE __m512 load_powers(const uint8_t *p) {
    __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)p));
    __m512i twice = _mm512_max_epu32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(0x00400000));
    return _mm512_mul_ps(_mm512_castsi512_ps(twice), _mm512_set1_ps(0.5f));
}

INLINE int has_sixes(const enum type type) {
    return type == T_Q3_K || type == T_Q4_K || type == T_Q5_K;
}

/* Whether the halves of a part have scales of their own. */
INLINE int has_halves(const enum type type) {
    return type == T_Q2_K || type == T_Q3_K || type == T_Q6_K;
}

/* Whether a part has a minimum that its columns' sums are multiplied by. */
INLINE int has_low(const enum type type) {
    return type == T_Q4_1 || type == T_Q5_1 || type == T_Q4_K || type == T_Q5_K;
}

/* The four words of "sixes", each with the numbers of two parts in its low 24 bits. */
typedef struct {
    __m512i word[4];
} sixes;

INLINE sixes load_sixes(const uint8_t *words) {
    sixes s;
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) s.word[k] = load_vector(words, k);
    __m512i middle = _mm512_and_si512(_mm512_srli_epi32(s.word[1], 16), _mm512_set1_epi32(0xff00));
    __m512i high = _mm512_and_si512(_mm512_srli_epi32(s.word[2], 8), _mm512_set1_epi32(0xff0000));
    s.word[3] = _mm512_or_si512(_mm512_srli_epi32(s.word[0], 24), _mm512_or_si512(middle, high));
    return s;
}

INLINE __m512i six(__m512i word, const int at) {
    return _mm512_and_si512(_mm512_srli_epi32(word, at), _mm512_set1_epi32(63));
}

/* Bits at .. at + 3 */
INLINE __m512i four(__m512i word, const int at) {
    return _mm512_and_si512(_mm512_srli_epi32(word, at), _mm512_set1_epi32(15));
}

INLINE __m512 times(__m512 d, __m512i x) { return _mm512_mul_ps(d, _mm512_cvtepi32_ps(x)); }

INLINE __m256i load_pairs(const uint8_t *super, int i) {
    return _mm256_load_si256((const __m256i *)(super + 64 + 32 * i));
}

/* Scales of part i of `parts`; word and odd: for types with sixes. */
INLINE scales load_scales(const enum type type, const uint8_t *super, int i, const int parts,
                          __m512i word, const int odd) {
    scales s;
    switch (type) {
    case T_Q4_1:
    case T_Q5_1:
        s.scale[0] = load_halves(super);
        s.low[0] = load_halves(super + 32);
        break;
    case T_Q4_K:
    case T_Q5_K:
        s.scale[0] = times(load_halves(super), six(word, 12 * odd));
        s.low[0] = times(load_halves(super + 32), six(word, 12 * odd + 6));
        break;
    case T_IQ4_XS: {
        __m512i x = _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(super + 64 + 16 * i)));
        s.scale[0] = times(load_halves(super), x);
        break;
    }
    case T_MXFP4: s.scale[0] = load_powers(super + 16 * i); break;
    case T_Q2_K: {
        __m512i x = _mm512_cvtepu16_epi32(load_pairs(super, i));
        __m512 d = load_halves(super), m = load_halves(super + 32);
        s.scale[0] = times(d, four(x, 0)), s.scale[1] = times(d, four(x, 8));
        s.low[0] = times(m, four(x, 4)), s.low[1] = times(m, four(x, 12));
        break;
    }
    case T_Q3_K: {
        __m512 d = load_halves(super);
        __m512i centre = _mm512_set1_epi32(32);
        s.scale[0] = times(d, _mm512_sub_epi32(six(word, 12 * odd), centre));
        s.scale[1] = times(d, _mm512_sub_epi32(six(word, 12 * odd + 6), centre));
        break;
    }
    case T_Q6_K: {
        __m512i x = _mm512_cvtepi16_epi32(load_pairs(super, i));
        __m512 d = load_halves(super);
        s.scale[0] = times(d, _mm512_srai_epi32(_mm512_slli_epi32(x, 24), 24));
        s.scale[1] = times(d, _mm512_srai_epi32(x, 8));
        break;
    }
    default: s.scale[0] = load_halves(super + (2 * i < parts ? 0 : 32));
    }
    return s;
}

#endif
