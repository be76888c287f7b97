/* Prompt columns with AVX-512: records of their own, and two groups at once.
 *
 * Scaling the sums of each sixteen values is what keeps drawn columns from the rate at which a core
 * multiplies codes: three multiplications in the units that also do that. Here the scale of sixteen
 * is 2^k beside the base of 256 values, so that an integer sum is scaled by a shift, which other
 * units do, and one multiplication is left: by the weights' scale. Where the columns have scales of
 * their own they are those of the chunk, at the end.
 *
 * In a record, e[h] is the shift k + 10, minus[h] is MINUS times minus the sum of the codes (what most
 * types' offset asks for), s the sum of the shifted codes and base what to multiply with it.
 */
#ifndef GOLEM_LINEAR_AVX512_PROMPT_H
#define GOLEM_LINEAR_AVX512_PROMPT_H

#include "linear_avx512_pairs.h"

enum { MINUS_SHIFT = 3 };

/* Where the sums of half h start: at what makes up for the offset of the codes. */
INLINE __m512i prompt_start(const enum type type, const int32_t *minus) {
    const int shift = offset_of(type);
    if (shift < 0) return _mm512_setzero_si512();
    if (shift < MINUS_SHIFT) return _mm512_srai_epi32(broadcast(minus), MINUS_SHIFT - shift);
    return _mm512_slli_epi32(broadcast(minus), shift - MINUS_SHIFT);
}

/* As add_tile, for `columns` prompt columns. */
INLINE void add_prompt(const enum type type, const int bits, const int parts, const int head,
                       pair_chunk *p, int count, const int fresh, const golem_q8 *a, int n,
                       const int columns, float *const *out) {
    const golem_q8 *first = a;
    __m512 acc[2][WIDE];
    sixes words[2];
#pragma GCC unroll 5
    for (int c = 0; c < columns; c++) acc[0][c] = acc[1][c] = _mm512_setzero_ps();
    if (fresh && has_sixes(type))
        for (int g = 0; g < 2; g++) words[g] = load_sixes(p->group[g] + 64);
    for (int i = 0; i < count; i++, a += n) {
        const scales *s = p->part[i].s;
        __m512i x[2][WIDE];
        if (fresh) read_scales(type, bits, parts, head, p, i, words);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512i sum[2][WIDE];
#pragma GCC unroll 5
            for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
                for (int g = 0; g < 2; g++) {
                    sum[g][c] = prompt_start(type, &a[c].minus[h]);
                    PIN(sum[g][c]); /* loaded anew: cheaper than copied */
                }
            sum_half(type, bits, parts, head, p, i, fresh, h, a, columns, sum);
#pragma GCC unroll 5
            for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
                for (int g = 0; g < 2; g++) {
                    __m512i y = _mm512_sllv_epi32(sum[g][c], broadcast(&a[c].e[h]));
                    if (has_halves(type)) {
                        acc[g][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(y), s[g].scale[h], acc[g][c]);
                    } else {
                        x[g][c] = h ? _mm512_add_epi32(y, x[g][c]) : y;
                        PIN(x[g][c]);
                    }
                    if (type == T_Q2_K) {
                        y = _mm512_srai_epi32(broadcast(&a[c].minus[h]), MINUS_SHIFT);
                        y = _mm512_sllv_epi32(y, broadcast(&a[c].e[h]));
                        acc[g][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(y), s[g].low[h], acc[g][c]);
                    }
                }
        }
        if (has_halves(type)) continue;
#pragma GCC unroll 5
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                acc[g][c] =
                    add_halves(type, _mm512_cvtepi32_ps(x[g][c]), s + g, a + c, acc[g][c]);
    }
#pragma GCC unroll 5
    for (int c = 0; c < columns; c++) {
        __m512 base = _mm512_set1_ps(first[c].base);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            float *y = out[g] + GOLEM_GROUP * c;
            _mm512_storeu_ps(y, _mm512_fmadd_ps(acc[g][c], base, _mm512_loadu_ps(y)));
        }
    }
}

/* As dot_pair. */
INLINE void prompt_pair(const enum type type, const int bits, const int parts, const int head,
                        const uint8_t *first, const uint8_t *second, int in, const golem_q8 *a,
                        int n, int nc, float *out_first, float *out_second) {
#define PROMPT_TILE(FRESH, A, OUT) \
    add_prompt(type, bits, parts, head, &p, count, FRESH, A, n, WIDE, OUT)
    PAIR_TILES(WIDE, PROMPT_TILE);
}

/* One column. */
INLINE void prompt_column(const enum type type, const int bits, const int parts, const int head,
                          const uint8_t *first, const uint8_t *second, int in, const golem_q8 *a,
                          int n, float *out_first, float *out_second) {
    const int size = CHUNK / parts * (head + parts * 64 * bits);
    float *const out[2] = {out_first, out_second};
    pair_chunk p;
    p.group[0] = first, p.group[1] = second;
    memset(out_first, 0, sizeof(float) * GOLEM_GROUP);
    memset(out_second, 0, sizeof(float) * GOLEM_GROUP);
    for (int left = in / 32; left > 0; left -= CHUNK, a += (ptrdiff_t)CHUNK * n) {
        add_prompt(type, bits, parts, head, &p, left < CHUNK ? left : CHUNK, 1, a, n, 1, out);
        p.group[0] += size, p.group[1] += size;
    }
}

#define PROMPT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                        \
    __attribute__((target(TARGET))) static void prompt_##NAME(                                    \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        float spare[GOLEM_PROMPT_COLUMNS * GOLEM_GROUP];                                          \
        if (!second) second = first, out_second = spare;                                          \
        if (nc >= WIDE) {                                                                         \
            prompt_pair(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a->q + c0, a->n, nc,  \
                        out_first, out_second);                                                   \
            return;                                                                               \
        }                                                                                         \
        for (int c = 0; c < nc; c++)                                                              \
            prompt_column(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a->q + c0 + c,      \
                          a->n, out_first + GOLEM_GROUP * c, out_second + GOLEM_GROUP * c);       \
    }
GOLEM_CODE_TYPES(PROMPT)

/* Lane i of the result is what COMBINE makes of the lanes of x[i]. */
#define OF_LANES(NAME, COMBINE)                                                                   \
    INLINE __m512i NAME(const __m512i *x) {                                                       \
        __m512i t[8], u[4];                                                                       \
        for (int i = 0; i < 8; i++)                                                               \
            t[i] = COMBINE(_mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]),                         \
                           _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]));                        \
        for (int i = 0; i < 4; i++)                                                               \
            u[i] = COMBINE(_mm512_unpacklo_epi64(t[2 * i], t[2 * i + 1]),                         \
                           _mm512_unpackhi_epi64(t[2 * i], t[2 * i + 1]));                        \
        __m512i v = COMBINE(_mm512_shuffle_i32x4(u[0], u[1], 0x88),                               \
                            _mm512_shuffle_i32x4(u[0], u[1], 0xdd));                              \
        __m512i w = COMBINE(_mm512_shuffle_i32x4(u[2], u[3], 0x88),                               \
                            _mm512_shuffle_i32x4(u[2], u[3], 0xdd));                              \
        return COMBINE(_mm512_shuffle_i32x4(v, w, 0x88), _mm512_shuffle_i32x4(v, w, 0xdd));       \
    }
OF_LANES(largest_lanes, _mm512_max_epu32)
OF_LANES(sums_of_lanes, _mm512_add_epi32)

/* 256 values or, at the end of a column, fewer: the steps of linear_quantise.h for all sixteens. */
INLINE void quantise_block(const float *x, int in, golem_q8 *q, int n) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const int sixteens = in / 16;
    __m512i y[16];
    for (int i = 0; i < 16; i++)
        y[i] = i < sixteens ? _mm512_and_si512(_mm512_loadu_si512(x + 16 * i), magnitude)
                            : _mm512_setzero_si512();
    __m512i largest = largest_lanes(y);
    float per_base, base;
    scale_of((uint32_t)_mm512_reduce_max_epi32(largest), &per_base, &base);

    __m512 share = _mm512_mul_ps(_mm512_castsi512_ps(largest), _mm512_set1_ps(per_base));
    __m512i k = _mm512_add_epi32(_mm512_castps_si512(share), _mm512_set1_epi32(0x10000));
    k = _mm512_sub_epi32(_mm512_srli_epi32(k, 23), _mm512_set1_epi32(133));
    k = _mm512_max_epi32(k, _mm512_set1_epi32(-GOLEM_PROMPT_SHIFTS));
    __m512i power = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(127), k), 23);
    __m512 inverse = _mm512_mul_ps(_mm512_set1_ps(per_base), _mm512_castsi512_ps(power));
    k = _mm512_add_epi32(k, _mm512_set1_epi32(GOLEM_PROMPT_SHIFTS));

    _Alignas(64) float inverses[16];
    _Alignas(64) int32_t shifts[16], minus[16], shifted[16];
    _mm512_store_ps(inverses, inverse);
    _mm512_store_si512(shifts, k);
    for (int i = 0; i < sixteens; i++) {
        __mmask16 used = inverses[i] > 0 ? 0xffff : 0;
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(inverses[i]));
        y[i] = _mm512_maskz_cvtps_epi32(used, v);
        golem_q8 *to = q + (ptrdiff_t)(i / 2) * n;
        _mm_storeu_si128((__m128i *)(to->q + 16 * (i & 1)), _mm512_cvtepi32_epi8(y[i]));
    }
    __m512i sum = sums_of_lanes(y);
    _mm512_store_si512(shifted, _mm512_sllv_epi32(sum, k));
    sum = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), sum), MINUS_SHIFT);
    _mm512_store_si512(minus, sum);
    for (int i = 0; i < sixteens; i += 2) {
        golem_q8 *to = q + (ptrdiff_t)(i / 2) * n;
        memcpy(to->e, shifts + i, 8);
        memcpy(to->minus, minus + i, 8);
        to->s = (float)(shifted[i] + shifted[i + 1]);
        to->base = base * power_of_2(-GOLEM_PROMPT_SHIFTS);
    }
}

__attribute__((target(TARGET))) static void quantise_prompt(const float *x, int in, golem_q8 *q,
                                                            int n) {
    for (; in > 0; in -= GOLEM_PROMPT_BLOCK, x += GOLEM_PROMPT_BLOCK) {
        quantise_block(x, in < GOLEM_PROMPT_BLOCK ? in : GOLEM_PROMPT_BLOCK, q, n);
        q += (ptrdiff_t)(GOLEM_PROMPT_BLOCK / GOLEM_ACT_BLOCK) * n;
    }
}

#endif
