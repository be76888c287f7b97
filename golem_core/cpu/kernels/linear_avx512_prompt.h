/* Prompt columns with AVX-512: records of their own, and two groups at once.
 *
 * Scaling the sums of each sixteen values is what keeps drawn columns from the rate at which a core
 * multiplies codes: three multiplications in the units that also do that. Here the scale of sixteen
 * is 2^k beside the base of 256 values, so that an integer sum is scaled by a shift, which other
 * units do, and one multiplication is left: by the weights' scale. Where the columns have scales of
 * their own they are those of the chunk, at the end.
 *
 * 32 weights of two groups are unpacked into sixteen registers and meet all columns, one after the
 * other; what the columns have so far waits in L1. So nothing unpacked is stored and loaded again, and
 * a column's ten loads and stores of vectors beside its codes stay below what it multiplies. Each
 * column's sums are scaled while those of the next are formed. Counted, 32 x 16 weights and a column
 * take 4.5 cycles: nine instructions for the two units that multiply. Measured on Zen 5: 4.9.
 *
 * In a record, e[h] is the shift k + 10, minus[h] is MINUS times minus the sum of the codes (what most
 * types' offset asks for), s the sum of the shifted codes and base what to multiply with it.
 */
#ifndef GOLEM_LINEAR_AVX512_PROMPT_H
#define GOLEM_LINEAR_AVX512_PROMPT_H

#include "linear_avx512_pairs.h"

enum { MINUS_SHIFT = 3 };
enum { OPENS = 1, CLOSES = 2 };   /* what a part is to its chunk, by whose base sums are multiplied */

/* Sums of the halves of a part with one column, [half][group]. */
typedef struct {
    __m512i of[2][2];
} part_sums;

/* Where the products of a chunk's columns are: sums so far, of the first group and then of the second,
 * then what follows from them. first: the columns' records that have their base. */
typedef struct {
    const golem_q8 *first;
    float *acc, *out[2];
} prompt_place;

/* Where the sums of half h start: at what makes up for the offset of the codes. */
INLINE __m512i prompt_start(const enum type type, const int32_t *minus) {
    const int shift = offset_of(type);
    if (shift < 0) return _mm512_setzero_si512();
    if (shift < MINUS_SHIFT) return _mm512_srai_epi32(broadcast(minus), MINUS_SHIFT - shift);
    return _mm512_slli_epi32(broadcast(minus), shift - MINUS_SHIFT);
}

/* As the intrinsic does, whose result is copied more often and formed elsewhere than here. */
INLINE void add_products(__m512i *sum, __m512i w, __m512i q) {
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(w), "v"(q));
}

INLINE part_sums sum_part(const enum type type, const pair_part *p, const golem_q8 *a) {
    part_sums sum;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        sum.of[h][0] = prompt_start(type, &a->minus[h]);
        PIN(sum.of[h][0]);
        sum.of[h][1] = sum.of[h][0];
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512i q = broadcast(a->q + 16 * h + 4 * v);
            PIN(q);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) add_products(&sum.of[h][g], p->w[g][4 * h + v], q);
        }
    return sum;
}

/* What the sums of a part add to y, the products of its chunk so far with group g. */
INLINE __m512 scaled_sums(const enum type type, const scales *s, const golem_q8 *a,
                          const part_sums *sum, const int g, __m512i e0, __m512i e1, __m512 y) {
    __m512i x0 = _mm512_sllv_epi32(sum->of[0][g], e0), x1 = _mm512_sllv_epi32(sum->of[1][g], e1);
    if (!has_halves(type))
        return add_halves(type, _mm512_cvtepi32_ps(_mm512_add_epi32(x0, x1)), s, a, y);
    y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(x0), s->scale[0], y);
    y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(x1), s->scale[1], y);
    if (type != T_Q2_K) return y;
    x0 = _mm512_sllv_epi32(_mm512_srai_epi32(broadcast(&a->minus[0]), MINUS_SHIFT), e0);
    x1 = _mm512_sllv_epi32(_mm512_srai_epi32(broadcast(&a->minus[1]), MINUS_SHIFT), e1);
    y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(x0), s->low[0], y);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(x1), s->low[1], y);
}

/* Scales the sums of a part with column c, whose record is a. */
INLINE void scale_part(const enum type type, const pair_part *p, const int role,
                       const golem_q8 *a, part_sums sum, const prompt_place *place, int c) {
    __m512i e0 = broadcast(&a->e[0]), e1 = broadcast(&a->e[1]);
    __m512 y[2];
    PIN(e0);
    PIN(e1);
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
        const float *acc = place->acc + GOLEM_GROUP * (g * GOLEM_PROMPT_COLUMNS + c);
        y[g] = role & OPENS ? _mm512_setzero_ps() : _mm512_load_ps(acc);
        y[g] = scaled_sums(type, &p->s[g], a, &sum, g, e0, e1, y[g]);
    }
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
        float *out = place->out[g] + GOLEM_GROUP * c;
        __m512 base = _mm512_set1_ps(place->first[c].base);
        if (role & CLOSES)
            _mm512_storeu_ps(out, _mm512_fmadd_ps(y[g], base, _mm512_loadu_ps(out)));
        else
            _mm512_store_ps(place->acc + GOLEM_GROUP * (g * GOLEM_PROMPT_COLUMNS + c), y[g]);
    }
}

/* Adds the products of a part with nc columns, whose records are a[0 ..], to those of its chunk. */
INLINE void add_part(const enum type type, const pair_part *part, const int role,
                     const golem_q8 *a, const int nc, const prompt_place *place) {
    pair_part p = *part;
    int c = 0;
#pragma GCC unroll 8
    for (int v = 0; v < 8; v++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) KEEP(p.w[g][v]);
    part_sums even = sum_part(type, &p, a), odd;
    for (; c + 2 < nc; c += 2) {
        odd = sum_part(type, &p, a + c + 1);
        scale_part(type, &p, role, a + c, even, place, c);
        even = sum_part(type, &p, a + c + 2);
        scale_part(type, &p, role, a + c + 1, odd, place, c + 1);
    }
    if (c + 1 < nc) odd = sum_part(type, &p, a + c + 1);
    scale_part(type, &p, role, a + c, even, place, c);
    if (c + 1 < nc) scale_part(type, &p, role, a + c + 1, odd, place, c + 1);
}

/* As dot_pair, for at most GOLEM_PROMPT_COLUMNS prompt columns. */
INLINE void prompt_pair(const enum type type, const int bits, const int parts, const int head,
                        const uint8_t *first, const uint8_t *second, int in, const golem_q8 *a,
                        int n, int nc, float *out_first, float *out_second) {
    _Alignas(64) float acc[2 * GOLEM_PROMPT_COLUMNS * GOLEM_GROUP];
    const int size = CHUNK / parts * (head + parts * 64 * bits);
    const uint8_t *group[2] = {first, second};
    prompt_place place = {a, acc, {out_first, out_second}};
    sixes words[2];
    pair_part p;
    memset(out_first, 0, sizeof(float) * GOLEM_GROUP * (size_t)nc);
    memset(out_second, 0, sizeof(float) * GOLEM_GROUP * (size_t)nc);
    for (int left = in / 32; left > 0; left -= CHUNK) {
        const int count = left < CHUNK ? left : CHUNK;
        place.first = a;
        if (has_sixes(type))
            for (int g = 0; g < 2; g++) words[g] = load_sixes(group[g] + 64);
        for (int i = 0; i < count; i++, a += n) {
            const int at = i / parts * (head + parts * 64 * bits), k = i % parts;
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
                const uint8_t *super = group[g] + at, *codes = super + head + k * 64 * bits;
                if (k == 0) prefetch_kept(super, head);
                prefetch_kept(codes, 64 * bits);
                p.s[g] = pair_scales(type, super, k, parts, &words[g]);
#pragma GCC unroll 8
                for (int v = 0; v < 8; v++) p.w[g][v] = load_code(type, bits, codes, v);
            }
            if (count == 1) add_part(type, &p, OPENS | CLOSES, a, nc, &place);
            else if (i == 0) add_part(type, &p, OPENS, a, nc, &place);
            else if (i < count - 1) add_part(type, &p, 0, a, nc, &place);
            else add_part(type, &p, CLOSES, a, nc, &place);
        }
        group[0] += size, group[1] += size;
    }
}

#define PROMPT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                        \
    __attribute__((target(TARGET))) static void prompt_##NAME(                                    \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        float spare[GOLEM_PROMPT_COLUMNS * GOLEM_GROUP];                                          \
        if (!second) second = first, out_second = spare;                                          \
        prompt_pair(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a->q + c0, a->n, nc,      \
                    out_first, out_second);                                                       \
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
