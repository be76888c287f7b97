/* Codes and scales of a part in AVX-512 registers: 16 rows are the 16 lanes. */
#ifndef GOLEM_LINEAR_AVX512_CODES_H
#define GOLEM_LINEAR_AVX512_CODES_H

#include <immintrin.h>

#include "linear_layout.h"

/* Inlined wherever used, and compiled for the instruction set: a plain inline function may not use
 * intrinsics. Arguments marked const are constants at every call, so the branches on them vanish. */
#define TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#define INLINE static inline __attribute__((always_inline, target(TARGET)))

/* The eight vectors of a part, as unsigned bytes. */
typedef struct {
    __m512i v[8];
} codes;

/* f32 and integer numbers of a part, one lane a row. */
typedef struct {
    __m512 scale, low;
    __m512i first, second; /* integer scales of the halves */
    __m512i weights;       /* both as 16-bit pairs */
    __m512i minima;
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

INLINE __m512i table(const int8_t *values, int offset) {
    __m128i t = _mm_loadu_si128((const __m128i *)values);
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8((char)offset)));
}

INLINE codes load_codes(const uint8_t *part, const int bits) {
    codes w;
    if (bits == 8) {
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) w.v[v] = load_vector(part, v);
    }
    if (bits >= 4 && bits <= 6) {
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++) {
            __m512i x = load_vector(part, p);
            w.v[p] = _mm512_and_si512(x, byte_mask(15));
            w.v[p + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 4), byte_mask(15));
        }
    }
    if (bits == 5) {
        __m512i high = load_vector(part, 4);
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) w.v[v] = masked_or(bit_at(high, v, 4), byte_mask(16), w.v[v]);
    }
    if (bits == 6) {
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++)
            w.v[v] = masked_or(pair_at_4(load_vector(part, 4 + (v >> 2)), v & 3), byte_mask(48), w.v[v]);
    }
    if (bits == 2 || bits == 3) {
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++)
            w.v[v] = _mm512_and_si512(_mm512_srli_epi16(load_vector(part, v >> 2), 2 * (v & 3)),
                                      byte_mask(3));
    }
    if (bits == 3) {
        __m512i high = load_vector(part, 2);
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) w.v[v] = masked_or(bit_at(high, v, 2), byte_mask(4), w.v[v]);
    }
    if (bits == 1) {
        __m512i x = load_vector(part, 0);
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) w.v[v] = _mm512_and_si512(bit_at(x, v, 1), byte_mask(2));
    }
    return w;
}

/* What is subtracted from a code to get its value; codes are made unsigned with it. */
INLINE int offset_of(const enum type type) {
    switch (type) {
    case T_Q4_0: return 8;
    case T_Q5_0: return 16;
    case T_Q8_0: return 128;
    case T_Q3_K: return 4;
    case T_Q6_K: return 32;
    case T_IQ4_NL:
    case T_IQ4_XS: return 128;
    case T_MXFP4: return 12;
    case T_Q1_0:
    case T_Q2_0:
    case T_PQ2_0:
    case T_PTQ1_0:
    case T_TQ1_0:
    case T_TQ2_0: return 1;
    default: return 0;
    }
}

/* Codes that index a table become its values, made unsigned by the offset. */
INLINE void look_up(const enum type type, codes *w) {
    __m512i t;
    if (type == T_IQ4_NL || type == T_IQ4_XS)
        t = table(iq4_values, offset_of(type));
    else if (type == T_MXFP4)
        t = table(fp4_values, offset_of(type));
    else
        return;
#pragma GCC unroll 8
    for (int v = 0; v < 8; v++) w->v[v] = _mm512_shuffle_epi8(t, w->v[v]);
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

/* 16-bit pairs of the halves' integer scales -> weights, first, second */
INLINE void split_weights(scales *s, __m512i pairs) {
    s->weights = pairs;
    s->first = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16);
    s->second = _mm512_srai_epi32(pairs, 16);
}

/* Scales of part i of `parts`; word and odd: for types with sixes. */
INLINE scales load_scales(const enum type type, const uint8_t *super, int i, const int parts,
                          __m512i word, const int odd) {
    scales s;
    switch (type) {
    case T_Q4_1:
    case T_Q5_1:
        s.scale = load_halves(super);
        s.low = load_halves(super + 32);
        break;
    case T_Q4_K:
    case T_Q5_K:
        s.scale = _mm512_mul_ps(load_halves(super), _mm512_cvtepi32_ps(six(word, 12 * odd)));
        s.low = _mm512_mul_ps(load_halves(super + 32), _mm512_cvtepi32_ps(six(word, 12 * odd + 6)));
        break;
    case T_IQ4_XS: {
        __m512i x = _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(super + 64 + 16 * i)));
        s.scale = _mm512_mul_ps(load_halves(super), _mm512_cvtepi32_ps(x));
        break;
    }
    case T_MXFP4: s.scale = load_powers(super + 16 * i); break;
    case T_Q2_K: {
        __m256i x = _mm256_load_si256((const __m256i *)(super + 64 + 32 * i));
        __m512i pairs = _mm512_cvtepu8_epi16(x);
        s.scale = load_halves(super);
        s.low = load_halves(super + 32);
        split_weights(&s, _mm512_and_si512(pairs, _mm512_set1_epi16(15)));
        s.minima = _mm512_srli_epi16(pairs, 4);
        break;
    }
    case T_Q3_K: {
        __m512i second = _mm512_slli_epi32(six(word, 12 * odd + 6), 16);
        __m512i pairs = _mm512_or_si512(six(word, 12 * odd), second);
        s.scale = load_halves(super);
        split_weights(&s, _mm512_sub_epi16(pairs, _mm512_set1_epi16(32)));
        break;
    }
    case T_Q6_K: {
        __m256i x = _mm256_load_si256((const __m256i *)(super + 64 + 32 * i));
        s.scale = load_halves(super);
        split_weights(&s, _mm512_cvtepi8_epi16(x));
        break;
    }
    default: s.scale = load_halves(super + (2 * i < parts ? 0 : 32));
    }
    return s;
}

#endif
