/* Group dot products and the quantiser with AVX2, FMA and F16C.
 *
 * Eight rows are the eight lanes; the two halves of a group are worked on together.
 * Unsigned codes times signed activations give pairs in 16 bits (vpmaddubsw), which are added as
 * often as they cannot overflow; codes of all eight bits go in as magnitudes, their signs moved to
 * the activations. The steps in f32 and their order are linear_portable.c's, so the bits are too.
 */
#include "linear.h"

#if defined(__x86_64__)
#include "linear_avx2_codes.h"

/* Bytes; on Zen 5 one column read 92 to 99 % of memory's rate at 4 KiB, all of it at 6 and 8. */
enum { AHEAD = 6144 };
enum { WIDEST = 4 }; /* columns a block of registers holds */

/* Sums in the order written: the compiler would rather form all products first and run out of
 * registers. */
#define KEEP(x) __asm__("" : "+x"(x))

INLINE void prefetch(const uint8_t *p, const int bytes) {
#pragma GCC unroll 16
    for (int at = 0; at < bytes; at += 64) _mm_prefetch((const char *)p + at, _MM_HINT_T0);
}

INLINE __m256i broadcast(const void *four_bytes) {
    return _mm256_set1_epi32((int)load_u32(four_bytes));
}

/* Products of 4 codes and 4 activations a lane, added in pairs. */
INLINE __m256i pair_products(const enum type type, __m256i w, __m256i q) {
    if (is_signed(type)) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
    return _mm256_maddubs_epi16(w, q);
}

/* Adds a part's products with `columns` columns to acc[half of the group][column]. Vector by
 * vector, both halves of the group against one broadcast: 16 registers hold no more. */
INLINE void add_part(const enum type type, const int bits, const uint8_t *part, const scales *s,
                     const golem_q8 *a, const int columns, __m256 (*acc)[WIDEST]) {
    const int halves = has_halves(type);
    const int steps = steps_of(type), shift = offset_of(type);
    __m256 x[2][WIDEST];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256i total[2][WIDEST], pairs[2][WIDEST];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const int v = 4 * h + k;
            __m256i w[2] = {load_code(type, bits, part, v), load_code(type, bits, part + 32, v)};
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) {
                __m256i q = broadcast(a[c].q + 4 * v);
#pragma GCC unroll 2
                for (int g = 0; g < 2; g++) {
                    __m256i p = pair_products(type, w[g], q);
                    pairs[g][c] = k % steps ? _mm256_add_epi16(pairs[g][c], p) : p;
                    KEEP(pairs[g][c]);
                }
            }
            if (k % steps != steps - 1) continue;
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++) {
                    __m256i p = _mm256_madd_epi16(pairs[g][c], _mm256_set1_epi16(1));
                    total[g][c] = k < steps ? p : _mm256_add_epi32(total[g][c], p);
                    KEEP(total[g][c]);
                }
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            __m256 d = _mm256_set1_ps(a[c].d[h]);
            __m256i minus = broadcast(&a[c].minus[h]);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
                if (shift >= 0)
                    total[g][c] = _mm256_add_epi32(total[g][c], _mm256_slli_epi32(minus, shift));
                __m256 y = _mm256_cvtepi32_ps(total[g][c]);
                if (!halves) {
                    x[g][c] = h ? _mm256_fmadd_ps(y, d, x[g][c]) : _mm256_mul_ps(y, d);
                    continue;
                }
                y = _mm256_mul_ps(y, s[g].scale[h]);
                if (type == T_Q2_K) y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(minus), s[g].low[h], y);
                acc[g][c] = _mm256_fmadd_ps(y, d, acc[g][c]);
            }
        }
    }
    if (halves) return;
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            acc[g][c] = _mm256_fmadd_ps(x[g][c], s[g].scale[0], acc[g][c]);
            if (type == T_Q4_1 || type == T_Q5_1)
                acc[g][c] = _mm256_fmadd_ps(s[g].low[0], _mm256_set1_ps(a[c].s), acc[g][c]);
            if (type == T_Q4_K || type == T_Q5_K)
                acc[g][c] = _mm256_fnmadd_ps(s[g].low[0], _mm256_set1_ps(a[c].s), acc[g][c]);
        }
    }
}

INLINE void one_part(const enum type type, const int bits, const int parts, const int head,
                     const uint8_t *super, const uint8_t *far, int i, const sixes *s, const int odd,
                     const golem_q8 *a, const int columns, __m256 (*acc)[WIDEST]) {
    const uint8_t *part = super + head + i * (64 * bits);
    prefetch(far + head + i * (64 * bits), 64 * bits);
    scales x[2] = {load_scales(type, super, 0, i, parts, s[0].word[0], odd),
                   load_scales(type, super, 1, i, parts, s[1].word[0], odd)};
    if (columns == WIDEST) __asm__("" : "+m"(x)); /* in memory: the registers are for sums */
    add_part(type, bits, part, x, a, columns, acc);
}

/* `columns` columns, whose first has its first record at a, times a whole group. */
INLINE void dot_columns(const enum type type, const int bits, const int parts, const int head,
                        const uint8_t *super, int in, const golem_act *act, const golem_q8 *a,
                        const int columns, float *out) {
    const int six_bits = has_sixes(type), n = act->n;
    __m256 acc[2][WIDEST];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) acc[0][c] = acc[1][c] = _mm256_setzero_ps();
    for (int left = in / 32; left > 0; left -= parts, super += head + parts * 64 * bits) {
        sixes s[2] = {{{_mm256_setzero_si256()}}, {{_mm256_setzero_si256()}}};
        const uint8_t *far = golem_ahead(act, super, AHEAD);
        prefetch(far, head);
        if (six_bits) {
            s[0] = load_sixes(super + 64), s[1] = load_sixes(super + 96);
            for (int i = 0; i < parts; i += 2, a += 2 * n) {
                one_part(type, bits, parts, head, super, far, i, s, 0, a, columns, acc);
                one_part(type, bits, parts, head, super, far, i + 1, s, 1, a + n, columns, acc);
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++)
                    for (int k = 0; k < 3; k++) s[h].word[k] = s[h].word[k + 1];
            }
        } else {
            int count = left < parts ? left : parts;
            for (int i = 0; i < count; i++, a += n)
                one_part(type, bits, parts, head, super, far, i, s, 0, a, columns, acc);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) {
        _mm256_storeu_ps(out + GOLEM_GROUP * c, acc[0][c]);
        _mm256_storeu_ps(out + GOLEM_GROUP * c + 8, acc[1][c]);
    }
}

/* Blocks of 4 columns, then of what is left: a column's steps are the same in every block. */
#define DOT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                           \
    __attribute__((target(TARGET))) static void dot_##NAME(const uint8_t *group, int in,          \
                                                           const golem_act *a, int c0, int nc,    \
                                                           float *out) {                          \
        const golem_q8 *q = a->q + c0;                                                            \
        while (nc > 0) {                                                                          \
            int step = nc >= 4 ? 4 : nc >= 2 ? 2 : 1;                                             \
            switch (step) {                                                                       \
            case 4: CASE(NAME, BITS, COLS, HEAD, 4);                                              \
            case 2: CASE(NAME, BITS, COLS, HEAD, 2);                                              \
            default: CASE(NAME, BITS, COLS, HEAD, 1);                                             \
            }                                                                                     \
            q += step, nc -= step, out += GOLEM_GROUP * step;                                     \
        }                                                                                         \
    }
#define CASE(NAME, BITS, COLS, HEAD, N)                                                   \
    dot_columns(T_##NAME, BITS, COLS / 32, HEAD, group, in, a, q, N, out);                \
    break
GOLEM_CODE_TYPES(DOT)

INLINE __m256 load_weights(const enum type type, const uint8_t *p) {
    switch (type) {
    case T_F16: return load_halves(p);
    case T_BF16: {
        __m256i x = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    }
    default: return _mm256_load_ps((const float *)p);
    }
}

/* Column k of the weights times value k of each column, into sum[half][column]. */
INLINE void add_column(const enum type type, const int bytes, const uint8_t *weights,
                       const float *const *x, int k, const int columns,
                       __m256 (*sum)[WIDEST]) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 w = load_weights(type, weights + 8 * bytes * h);
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            sum[h][c] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[c][k]), sum[h][c]);
    }
}

/* Even columns of the weights go into one sum, odd ones into another. */
INLINE void dot_float(const enum type type, const int bytes, const uint8_t *group, int in,
                      const golem_act *a, int c0, const int columns, float *out) {
    const int line = GOLEM_GROUP * bytes;
    __m256 even[2][WIDEST], odd[2][WIDEST];
    const float *x[WIDEST];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) x[c] = golem_column(a, c0 + c);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        even[0][c] = even[1][c] = odd[0][c] = odd[1][c] = _mm256_setzero_ps();
    int k = 0;
    for (; k + 2 <= in; k += 2, group += 2 * line) {
        prefetch(golem_ahead(a, group, AHEAD), 2 * line);
        add_column(type, bytes, group, x, k, columns, even);
        add_column(type, bytes, group + line, x, k + 1, columns, odd);
    }
    if (k < in) add_column(type, bytes, group, x, k, columns, even);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        for (int h = 0; h < 2; h++)
            _mm256_storeu_ps(out + GOLEM_GROUP * c + 8 * h, _mm256_add_ps(even[h][c], odd[h][c]));
}

#define DOT_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                       \
    __attribute__((target(TARGET))) static void dot_##NAME(const uint8_t *group, int in,          \
                                                           const golem_act *a, int c0, int nc,    \
                                                           float *out) {                          \
        while (nc > 0) {                                                                          \
            int step = nc >= 3 ? 3 : nc;                                                          \
            switch (step) {                                                                       \
            case 3: CASE_FLOAT(NAME, BYTES, 3);                                                   \
            case 2: CASE_FLOAT(NAME, BYTES, 2);                                                   \
            default: CASE_FLOAT(NAME, BYTES, 1);                                                  \
            }                                                                                     \
            c0 += step, nc -= step, out += GOLEM_GROUP * step;                                    \
        }                                                                                         \
    }
#define CASE_FLOAT(NAME, BYTES, N)                                 \
    dot_float(T_##NAME, BYTES, group, in, a, c0, N, out);          \
    break
GOLEM_FLOAT_TYPES(DOT_FLOAT)

INLINE uint32_t largest_of(__m256i x) {
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1)));
}

INLINE int sum_of(__m256i x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

INLINE __m256i magnitudes(const float *x) {
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
}

/* See linear_portable.c: sixteen values are two vectors. */
INLINE uint32_t largest_magnitude(const float *x) {
    return largest_of(_mm256_max_epu32(magnitudes(x), magnitudes(x + 8)));
}

INLINE int32_t code_half(const float *x, float by, int8_t *codes) {
    if (by == 0) {
        memset(codes, 0, 16);
        return 0;
    }
    __m256 inverse = _mm256_set1_ps(by);
    __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
    __m256i i1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
    /* to nearest even */
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(i0, i1), 0xd8);
    _mm_storeu_si128((__m128i *)codes, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                       _mm256_extracti128_si256(words, 1)));
    return -sum_of(_mm256_add_epi32(i0, i1));
}

#include "linear_avx2_prompt.h"
#include "linear_prompt.h"
#include "linear_quantise.h"

#define ENTRY_FLOAT(NAME, ID, WEIGHTS, BYTES) dot_##NAME,
#define ENTRY_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) dot_##NAME,
static const golem_group_fn dot[] = {GOLEM_FLOAT_TYPES(ENTRY_FLOAT)
                                         GOLEM_CODE_TYPES(ENTRY_CODES)};

const golem_linear_isa golem_linear_avx2 = {
    .name = "avx2",
    .dot = dot,
    .quantise_row = quantise_row,
    .quantise_prompt = quantise_prompt,
    .prompt = prompts,
    .quantise_precise = quantise_precise,
};
#endif
