/* Prompt columns with AVX2: weights unpacked once for all columns, and scaled by what adds pairs.
 *
 * Where drawn columns' sums of each sixteen values are multiplied by a scale, here the scale is
 * 2^k beside the base of 256 values, so the instruction that adds 16-bit pairs to 32 bits
 * (vpmaddwd, times 1 otherwise) multiplies by it, and the sums of both halves add up as integers.
 * A part then takes one conversion and one multiplication by the weights' scale; the base waits
 * until the end of the 256. Offsets of codes are minima of weights: so many times their scale.
 *
 * The codes of 32 x 16 weights lie unpacked in L1 while all columns meet them, three at a time:
 * their sums in 16 and in 32 bits, two vectors of weights, a broadcast and a product are the 16
 * registers. 256 products, of 8 rows and a column, take 20 instructions of arithmetic in types of 4
 * and 5 bits, of which 10 are for the two units that multiply, and 8 that load and store. Measured
 * on Zen 3, which does some 3.7 of them a cycle: 8.6 cycles, where the drawn columns' kernels take
 * 11.4. Signed codes, whose pairs are added in 32 bits, take 13.6.
 *
 * In a record, m[h] is 2^(k + GOLEM_PROMPT_SHIFTS), twice; base what values and sums are multiples
 * of; s the sum of the part's values, halves those of its halves. Integers: a half's sum is below
 * 16 * 63 * 127 * 2^10 < 2^27 with unsigned and 16 * 127 * 127 * 2^10 < 2^28 with signed codes, so
 * a part's has 30 bits.
 */
#ifndef GOLEM_LINEAR_AVX2_PROMPT_H
#define GOLEM_LINEAR_AVX2_PROMPT_H

#include "linear_avx2_codes.h"

#define PROMPTS_OF_CODES

enum { ABREAST = 3 };             /* columns that meet a part at once */
enum { PROMPT_AHEAD = 2048 };     /* bytes by which weights are fetched before use */

/* A part of a group as columns meet it, [half of the group]. codes: where they are signed, their
 * magnitudes are beside them. scale, low: [0] of the part or [0], [1] of its halves */
typedef struct {
    __m256i code[8][2], magnitude[8][2];
    __m256 scale[2][2], low[2][2];
} prompt_part;

/* What a column has of its 256 values, in multiples of their base. */
typedef struct {
    __m256 of[2];
} prompt_sums;

/* Whether values are more than scale times code: less an offset, or a minimum. */
INLINE int has_low(const enum type type) {
    return !is_signed(type);
}

INLINE void load_part(const enum type type, const int bits, const int parts, const int head,
                      const uint8_t *super, int i, prompt_part *p) {
    const int shift = offset_of(type), halves = has_halves(type);
    const uint8_t *part = super + head + i * (64 * bits);
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
        __m256i word = _mm256_setzero_si256();
        if (has_sixes(type)) {
            sixes s = load_sixes(super + 64 + 32 * g);
            word = s.word[i >> 1];
        }
        scales s = load_scales(type, super, g, i, parts, word, i & 1);
#pragma GCC unroll 2
        for (int h = 0; h < 1 + halves; h++) {
            p->scale[h][g] = s.scale[h];
            if (shift >= 0) {
                const __m256 offset = _mm256_set1_ps((float)-(1 << shift));
                p->low[h][g] = _mm256_mul_ps(s.scale[h], offset);
            } else if (type == T_Q4_K || type == T_Q5_K) {
                p->low[h][g] = _mm256_sub_ps(_mm256_setzero_ps(), s.low[h]);
            } else if (type == T_Q2_K) {
                p->low[h][g] = _mm256_sub_ps(_mm256_setzero_ps(), s.low[h]);
            } else if (has_low(type)) {
                p->low[h][g] = s.low[h];
            }
        }
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            p->code[v][g] = load_code(type, bits, part + 32 * g, v);
            if (is_signed(type)) p->magnitude[v][g] = _mm256_abs_epi8(p->code[v][g]);
        }
    }
}

/* The instructions of a part in the order written, which compilers would change until they run out
 * of registers. */
INLINE __m256i spread(const void *four_bytes) {
    __m256i x;
    __asm__ volatile("vpbroadcastd %1, %0" : "=x"(x) : "m"(*(const uint32_t *)four_bytes));
    return x;
}

/* Adds the products of codes with 4 activations a lane to pairs, or sets these to them. */
INLINE void add_pairs(__m256i *pairs, __m256i w, __m256i q, const int first) {
    __m256i y;
    if (first) {
        __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(*pairs) : "x"(w), "x"(q));
        return;
    }
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                     : "+x"(*pairs), "=&x"(y)
                     : "x"(w), "x"(q));
}

/* Adds pairs times m to 32-bit sums, or sets these to them. */
INLINE void add_total(__m256i *total, __m256i pairs, __m256i m, const int first) {
    __asm__ volatile("vpmaddwd %2, %1, %0" : "=x"(pairs) : "x"(pairs), "x"(m));
    *total = first ? pairs : _mm256_add_epi32(*total, pairs);
    KEEP(*total);
}

/* The same of signed codes, whose magnitudes are w: two of their pairs have no room in 16 bits. */
INLINE void add_signed(__m256i *total, const __m256i *code, __m256i w, __m256i q, __m256i m,
                       const int first) {
    __m256i pairs;
    __asm__ volatile("vpsignb %1, %3, %0\n\tvpmaddubsw %0, %2, %0"
                     : "=&x"(pairs)
                     : "m"(*code), "x"(w), "x"(q));
    add_total(total, pairs, m, first);
}

/* Sums of half h of a part with `columns` columns, added to total or set. */
INLINE void add_half(const enum type type, const prompt_part *p, const int h, const golem_q8 *a,
                     const int columns, const int first, __m256i (*total)[ABREAST]) {
    const int steps = steps_of(type);
    __m256i pairs[2][ABREAST], m[ABREAST];
    if (is_signed(type)) {
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++) m[c] = spread(&a[c].m[h]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const int v = 4 * h + k;
        const __m256i *code = p->code[v], *magnitude = p->magnitude[v];
        __m256i w[2];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) w[g] = is_signed(type) ? magnitude[g] : code[g];
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++) {
            __m256i q = spread(a[c].q + 4 * v);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
                if (is_signed(type))
                    add_signed(&total[g][c], &code[g], w[g], q, m[c], first && k == 0);
                else
                    add_pairs(&pairs[g][c], w[g], q, k % steps == 0);
            }
        }
        if (is_signed(type) || k % steps != steps - 1) continue;
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++) {
            m[c] = spread(&a[c].m[h]);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                add_total(&total[g][c], pairs[g][c], m[c], first && k < steps);
        }
    }
}

/* Adds the products of a part with `columns` columns, whose records are a[0 ..]. */
INLINE void add_columns(const enum type type, const prompt_part *p, const golem_q8 *a,
                        const int columns, prompt_sums *sums) {
    const int halves = has_halves(type);
    __m256i total[2][ABREAST];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        add_half(type, p, h, a, columns, h == 0 || halves, total);
        if (!halves && h == 0) continue;
        const int of = halves ? h : 0;
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++) {
            const __m256 s = _mm256_castsi256_ps(spread(halves ? &a[c].halves[h] : &a[c].s));
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
                const __m256 y = _mm256_cvtepi32_ps(total[g][c]);
                __m256 x = _mm256_fmadd_ps(y, p->scale[of][g], sums[c].of[g]);
                if (has_low(type)) x = _mm256_fmadd_ps(s, p->low[of][g], x);
                sums[c].of[g] = x;
            }
        }
    }
}

/* The same for any number of columns. */
INLINE void add_part_of(const enum type type, const prompt_part *p, const golem_q8 *a, int nc,
                        prompt_sums *sums) {
    while (nc > 0) {
        int step = nc == 4 ? 2 : nc > ABREAST ? ABREAST : nc;
        switch (step) {
        case 3: add_columns(type, p, a, 3, sums); break;
        case 2: add_columns(type, p, a, 2, sums); break;
        default: add_columns(type, p, a, 1, sums);
        }
        a += step, sums += step, nc -= step;
    }
}

/* Ends 256 values: adds what columns have of them, times their bases, to out. */
INLINE void close_sums(const golem_q8 *a, int nc, prompt_sums *sums, float *out) {
    for (int c = 0; c < nc; c++) {
        __m256 base = _mm256_set1_ps(a[c].base);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++, out += 8) {
            _mm256_storeu_ps(out, _mm256_fmadd_ps(sums[c].of[g], base, _mm256_loadu_ps(out)));
            sums[c].of[g] = _mm256_setzero_ps();
        }
    }
}

/* At most GOLEM_PROMPT_COLUMNS prompt columns, whose first has its first record at a, times a group
 * or two. */
INLINE void prompt_groups(const enum type type, const int bits, const int parts, const int head,
                          const uint8_t *first, const uint8_t *second, int in, const golem_q8 *a,
                          int n, int nc, float *out_first, float *out_second) {
    const int super = head + parts * 64 * bits, groups = second ? 2 : 1;
    const uint8_t *group[2] = {first, second};
    float *out[2] = {out_first, out_second};
    prompt_sums sums[2][GOLEM_PROMPT_COLUMNS];
    for (int g = 0; g < groups; g++) {
        memset(sums[g], 0, sizeof sums[g][0] * (size_t)nc);
        memset(out[g], 0, sizeof(float) * GOLEM_GROUP * (size_t)nc);
    }
    for (int b = 0; b < in / 32; b++, a += n) {
        const int ends = (b + 1) % (GOLEM_PROMPT_BLOCK / 32) == 0 || b + 1 == in / 32;
        for (int g = 0; g < groups; g++) {
            const uint8_t *at = group[g] + b / parts * super;
            prompt_part p;
            prefetch(at + head + b % parts * (64 * bits) + PROMPT_AHEAD, 64 * bits);
            load_part(type, bits, parts, head, at, b % parts, &p);
            add_part_of(type, &p, a, nc, sums[g]);
            if (ends) close_sums(a, nc, sums[g], out[g]);
        }
    }
}

#define PROMPT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                        \
    __attribute__((target(TARGET))) static void prompt_##NAME(                                    \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        prompt_groups(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a->q + c0, a->n, nc,    \
                      out_first, out_second);                                                     \
    }
GOLEM_CODE_TYPES(PROMPT)

INLINE void set_prompt_half(golem_q8 *q, int h, const float *x, float per_base, float base, int k) {
    const int32_t m = 1 << (k + GOLEM_PROMPT_SHIFTS);
    q->m[h] = m << 16 | m;
    q->halves[h] = (float)(m * -code_half(x + 16 * h, per_base * power_of_2(-k), q->q + 16 * h));
    q->base = base * power_of_2(-GOLEM_PROMPT_SHIFTS);
    if (h) q->s = q->halves[0] + q->halves[1];
}

#endif
