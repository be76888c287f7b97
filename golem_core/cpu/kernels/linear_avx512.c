/* Group dot products and the quantiser with AVX-512 (f, bw, vl, dq, vnni).
 *
 * Sixteen rows are the sixteen lanes: a part of codes is unpacked once into eight vectors of
 * unsigned bytes and multiplied (vpdpbusd) with 4 broadcast activations at a time, for up to eight
 * columns side by side in registers. The steps and their order are linear_portable.c's, so the bits
 * are too. Codes of one or two bits are picked out of their bytes by GFNI where there is such: on
 * Zen 5 one column of TQ2_0 is then multiplied at 68 GB/s out of a core's cache, not 50, and one of
 * Q1_0 at 38, not 27 (two groups of it at once: 43). One column is limited by memory: the weights
 * are prefetched AHEAD bytes before use.
 */
#include "linear_avx512.h"

#if defined(__x86_64__)
#include "linear_avx512_codes.h"

/* Bytes. Zen 5, two threads, 4096 x 12288, in turns: where memory was read at 83 GB/s or more, Q4_K
 * came at 65 to 67 with 6 KiB, 77 to 81 with 8 to 10; where it was at 55, Q4_0 at 50.5 with 6, 52.3
 * with 8. */
enum { AHEAD = 8192 };
enum { WIDEST = 8 };  /* columns a block of registers holds */

/* For weights that a pass reads once. They go past the second and the last cache: what these keep
 * of more than they hold is never found again, and keeping it costs 3 to 10 % of memory's rate.
 * Compiled once more (linear_avx512_kept.c) for models that the last cache holds. */
#if defined(GOLEM_KEPT)
#define HINT _MM_HINT_T0
#define DOT_TABLE golem_avx512_kept_dot
#define PAIR_TABLE golem_avx512_kept_pair
#else
#define HINT _MM_HINT_NTA
#define DOT_TABLE golem_avx512_dot
#define PAIR_TABLE golem_avx512_pair
#endif
INLINE void prefetch(const uint8_t *p, const int bytes) {
#pragma GCC unroll 16
    for (int at = 0; at < bytes; at += 64) _mm_prefetch((const char *)p + at, HINT);
}

/* For weights that meet the next columns of a prompt soon. */
INLINE void prefetch_kept(const uint8_t *p, const int bytes) {
#pragma GCC unroll 16
    for (int at = 0; at < bytes; at += 64) _mm_prefetch((const char *)p + at, _MM_HINT_T0);
}

INLINE __m512i broadcast(const void *four_bytes) {
    return _mm512_set1_epi32((int)load_u32(four_bytes));
}

/* sum += w times four activations: one instruction, of which compilers make two. With one column a
 * core has some four cycles for a line of memory, and instructions are what is short: on Zen
 * 5 Q5_K comes at 92 instead of 85 % of a plain read, Q6_K at 94 instead of 91. */
INLINE void add_broadcast(__m512i *sum, __m512i w, const int8_t *four) {
    typedef int32_t __attribute__((may_alias, aligned(1))) any32;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*sum) : "v"(w), "m"(*(const any32 *)four));
}

/* What makes up for the offset of the codes, when products are added to it. raised: the binary
 * logarithm of what the codes are multiplied by. */
INLINE __m512i less_offset(const enum type type, const int32_t *minus, const int raised) {
    const int shift = offset_of(type);
    return shift < 0 ? _mm512_setzero_si512()
                     : _mm512_slli_epi32(broadcast(minus), shift + raised);
}

/* A value the compiler forms here and nowhere else, so that halves of parts follow each other and
 * their sums have registers. */
#define PIN(x) __asm__ volatile("" : "+v"(x))

/* A value the compiler may not form again instead of keeping it. */
#define KEEP(x) __asm__("" : "+v"(x))

/* What half h of a part, its products summed, adds to x: the row's sum itself where halves have
 * scales of their own, else the sum of the part so far (anything when h is 0). */
INLINE __m512 add_half(const enum type type, const int h, __m512i sum, const scales *s,
                       const golem_q8 *a, __m512 x) {
    __m512 d = _mm512_set1_ps(a->d[h]), y = _mm512_cvtepi32_ps(sum);
    if (!has_halves(type)) return h ? _mm512_fmadd_ps(y, d, x) : _mm512_mul_ps(y, d);
    y = _mm512_mul_ps(y, s->scale[h]);
    if (type == T_Q2_K)
        y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(broadcast(&a->minus[h])), s->low[h], y);
    return _mm512_fmadd_ps(y, d, x);
}

/* The row's sum with a part, of which add_half made x. */
INLINE __m512 add_halves(const enum type type, __m512 x, const scales *s, const golem_q8 *a,
                         __m512 acc) {
    if (has_halves(type)) return x;
    acc = _mm512_fmadd_ps(x, s->scale[0], acc);
    if (type == T_Q4_1 || type == T_Q5_1)
        acc = _mm512_fmadd_ps(s->low[0], _mm512_set1_ps(a->s), acc);
    if (type == T_Q4_K || type == T_Q5_K)
        acc = _mm512_fnmadd_ps(s->low[0], _mm512_set1_ps(a->s), acc);
    return acc;
}

/* A part of which the second half's codes are masked where they lie, 16 times as large: one or two
 * columns' sums are shifted sooner than eight vectors of codes. */
INLINE void one_part(const enum type type, const int bits, const int parts, const int head,
                     const uint8_t *super, const uint8_t *far, int i, __m512i word, const int odd,
                     const golem_q8 *a, const int columns, const int picks, __m512 *acc) {
    const uint8_t *part = super + head + i * (64 * bits);
    /* Q4_K has more to load besides, so its codes are loaded once only. */
    const int keeps = type == T_Q4_K && columns <= 2;
    __m512i packed[4];
    __m512 x[WIDEST];
    prefetch(far + head + i * (64 * bits), 64 * bits);
    scales s = load_scales(type, super, i, parts, word, odd);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const int raised = h && columns <= 2 && has_nibbles(type) ? 4 : 0;
        __m512i sum[WIDEST];
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++) {
            sum[c] = less_offset(type, &a[c].minus[h], raised);
            if (columns > 2) PIN(sum[c]);
        }
#pragma GCC unroll 4
        for (int v = 4 * h; v < 4 * h + 4; v++) {
            if (keeps && h == 0) {
                packed[v] = load_vector(part, v);
                KEEP(packed[v]);
            }
            __m512i w;
            if (picks) w = few_bits(bits, load_vector(part, bits == 2 ? v >> 2 : 0), v, 1);
            else if (raised) w = high_nibbles(keeps ? packed[v - 4] : load_vector(part, v - 4));
            else if (keeps) w = low_nibbles(packed[v]);
            else w = load_code(type, bits, part, v);
#pragma GCC unroll 8
            for (int c = 0; c < columns; c++)
                add_broadcast(&sum[c], w, a[c].q + 4 * v);
        }
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++) {
            if (raised) sum[c] = _mm512_srai_epi32(sum[c], raised);
            x[c] = add_half(type, h, sum[c], &s, a + c, h ? x[c] : acc[c]);
            if (columns > 2) PIN(x[c]);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++) acc[c] = add_halves(type, x[c], &s, a + c, acc[c]);
}

/* `columns` columns, whose first has its first record at a, times a whole group. picks: by GFNI. */
INLINE void dot_columns(const enum type type, const int bits, const int parts, const int head,
                        const uint8_t *super, int in, const golem_act *act, const golem_q8 *a,
                        const int columns, const int picks, float *out) {
    const int six_bits = has_sixes(type), n = act->n;
    __m512 acc[WIDEST];
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++) acc[c] = _mm512_setzero_ps();
    for (int left = in / 32; left > 0; left -= parts, super += head + parts * 64 * bits) {
        const uint8_t *far = golem_ahead(act, super, AHEAD);
        prefetch(far, head);
        if (six_bits) {
            sixes s = load_sixes(super + 64);
            for (int i = 0; i < parts; i += 2, a += 2 * n) {
                one_part(type, bits, parts, head, super, far, i, s.word[0], 0, a, columns, 0, acc);
                one_part(type, bits, parts, head, super, far, i + 1, s.word[0], 1, a + n, columns,
                         0, acc);
                s.word[0] = s.word[1], s.word[1] = s.word[2], s.word[2] = s.word[3];
            }
        } else {
            int count = left < parts ? left : parts;
            for (int i = 0; i < count; i++, a += n)
                one_part(type, bits, parts, head, super, far, i, _mm512_setzero_si512(), 0, a,
                         columns, picks, acc);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++) _mm512_storeu_ps(out + GOLEM_GROUP * c, acc[c]);
}

/* Blocks of 8 columns, then what is left in one: a column's steps are the same in every block, and
 * every block unpacks the codes. */
#define DOT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                           \
    __attribute__((target(TARGET))) static void dot_##NAME(const uint8_t *group, int in,          \
                                                           const golem_act *a, int c0, int nc,    \
                                                           float *out) {                          \
        const golem_q8 *q = a->q + c0;                                                            \
        while (nc > 0) {                                                                          \
            int step = nc < WIDEST ? nc : WIDEST;                                                 \
            switch (step) {                                                                       \
            case 8: CASE(NAME, BITS, COLS, HEAD, 8);                                              \
            case 7: CASE(NAME, BITS, COLS, HEAD, 7);                                              \
            case 6: CASE(NAME, BITS, COLS, HEAD, 6);                                              \
            case 5: CASE(NAME, BITS, COLS, HEAD, 5);                                              \
            case 4: CASE(NAME, BITS, COLS, HEAD, 4);                                              \
            case 3: CASE(NAME, BITS, COLS, HEAD, 3);                                              \
            case 2: CASE(NAME, BITS, COLS, HEAD, 2);                                              \
            default: CASE(NAME, BITS, COLS, HEAD, 1);                                             \
            }                                                                                     \
            q += step, nc -= step, out += GOLEM_GROUP * step;                                     \
        }                                                                                         \
    }
#define CASE(NAME, BITS, COLS, HEAD, N)                                                   \
    if (BITS <= 2 && __builtin_cpu_supports("gfni"))                                      \
        dot_columns(T_##NAME, BITS, COLS / 32, HEAD, group, in, a, q, N, 1, out);         \
    else                                                                                  \
        dot_columns(T_##NAME, BITS, COLS / 32, HEAD, group, in, a, q, N, 0, out);         \
    break
GOLEM_CODE_TYPES(DOT)

INLINE __m512 load_weights(const enum type type, const uint8_t *p) {
    switch (type) {
    case T_F16: return load_halves(p);
    case T_BF16: {
        __m512i x = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    }
    default: return _mm512_load_ps(p);
    }
}

/* Even columns of the weights go into one sum, odd ones into another. */
INLINE void dot_float(const enum type type, const int bytes, const uint8_t *group, int in,
                      const golem_act *a, int c0, const int columns, float *out) {
    const int line = GOLEM_GROUP * bytes;
    __m512 even[WIDEST], odd[WIDEST];
    const float *x[WIDEST];
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++) x[c] = golem_column(a, c0 + c);
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++) even[c] = odd[c] = _mm512_setzero_ps();
    int k = 0;
    for (; k + 2 <= in; k += 2, group += 2 * line) {
        prefetch(golem_ahead(a, group, AHEAD), 2 * line);
        __m512 w0 = load_weights(type, group), w1 = load_weights(type, group + line);
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++) {
            even[c] = _mm512_fmadd_ps(w0, _mm512_set1_ps(x[c][k]), even[c]);
            odd[c] = _mm512_fmadd_ps(w1, _mm512_set1_ps(x[c][k + 1]), odd[c]);
        }
    }
    if (k < in) {
        __m512 w = load_weights(type, group);
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++)
            even[c] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[c][k]), even[c]);
    }
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++)
        _mm512_storeu_ps(out + GOLEM_GROUP * c, _mm512_add_ps(even[c], odd[c]));
}

#define DOT_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                       \
    __attribute__((target(TARGET))) static void dot_##NAME(const uint8_t *group, int in,          \
                                                           const golem_act *a, int c0, int nc,    \
                                                           float *out) {                          \
        while (nc > 0) {                                                                          \
            int step = nc < WIDEST ? nc : WIDEST;                                                 \
            switch (step) {                                                                       \
            case 8: CASE_FLOAT(NAME, BYTES, 8);                                                   \
            case 7: CASE_FLOAT(NAME, BYTES, 7);                                                   \
            case 6: CASE_FLOAT(NAME, BYTES, 6);                                                   \
            case 5: CASE_FLOAT(NAME, BYTES, 5);                                                   \
            case 4: CASE_FLOAT(NAME, BYTES, 4);                                                   \
            case 3: CASE_FLOAT(NAME, BYTES, 3);                                                   \
            case 2: CASE_FLOAT(NAME, BYTES, 2);                                                   \
            default: CASE_FLOAT(NAME, BYTES, 1);                                                  \
            }                                                                                     \
            c0 += step, nc -= step, out += GOLEM_GROUP * step;                                    \
        }                                                                                         \
    }
#define CASE_FLOAT(NAME, BYTES, N)                                       \
    dot_float(T_##NAME, BYTES, group, in, a, c0, N, out);                \
    break
GOLEM_FLOAT_TYPES(DOT_FLOAT)

#include "linear_avx512_floats.h"
#include "linear_avx512_pairs.h"

#define ENTRY_FLOAT(NAME, ID, WEIGHTS, BYTES) dot_##NAME,
#define ENTRY_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) dot_##NAME,
const golem_group_fn DOT_TABLE[] = {GOLEM_FLOAT_TYPES(ENTRY_FLOAT) GOLEM_CODE_TYPES(ENTRY_CODES)};
#define ENTRY_PAIR_FLOAT(NAME, ID, WEIGHTS, BYTES) pair_##NAME,
#define ENTRY_PAIR(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) pair_##NAME,
const golem_pair_fn PAIR_TABLE[] = {
    GOLEM_FLOAT_TYPES(ENTRY_PAIR_FLOAT) GOLEM_CODE_TYPES(ENTRY_PAIR)};

#if !defined(GOLEM_KEPT)
#include "linear_avx512_prompt.h"

INLINE __m256i upper(__m512i x) { return _mm512_extracti64x4_epi64(x, 1); }

/* Of two vectors of 16 at once: the largest in element 0 of the result, and in element 2. */
INLINE __m128i largest_of(__m512i first, __m512i second) {
    __m256i x = _mm256_max_epu32(_mm512_castsi512_si256(first), upper(first));
    __m256i y = _mm256_max_epu32(_mm512_castsi512_si256(second), upper(second));
    x = _mm256_max_epu32(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
    __m128i z = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_max_epu32(z, _mm_shuffle_epi32(z, 0xb1));
}

/* The sums, likewise. */
INLINE __m128i sums_of(__m512i first, __m512i second) {
    __m256i x = _mm256_add_epi32(_mm512_castsi512_si256(first), upper(first));
    __m256i y = _mm256_add_epi32(_mm512_castsi512_si256(second), upper(second));
    x = _mm256_add_epi32(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
    __m128i z = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_add_epi32(z, _mm_shuffle_epi32(z, 0xb1));
}

/* See linear_portable.c: 32 values are two vectors. */
__attribute__((target(TARGET))) void golem_avx512_quantise_row(const float *x, int in, golem_q8 *q,
                                                               int n) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int b = 0; b < in / 32; b++, x += 32, q += n) {
        __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        __m128i largest = largest_of(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                     _mm512_and_si512(_mm512_castps_si512(x1), magnitude));
        float inverse[2];
        scale_of((uint32_t)_mm_cvtsi128_si32(largest), &inverse[0], &q->d[0]);
        scale_of((uint32_t)_mm_extract_epi32(largest, 2), &inverse[1], &q->d[1]);
        /* to nearest even; where the inverse is 0, so are the codes, whatever the values are */
        __mmask16 used0 = inverse[0] > 0 ? 0xffff : 0, used1 = inverse[1] > 0 ? 0xffff : 0;
        __m512i i0 = _mm512_maskz_cvtps_epi32(used0, _mm512_mul_ps(x0, _mm512_set1_ps(inverse[0])));
        __m512i i1 = _mm512_maskz_cvtps_epi32(used1, _mm512_mul_ps(x1, _mm512_set1_ps(inverse[1])));
        _mm_storeu_si128((__m128i *)q->q, _mm512_cvtepi32_epi8(i0));
        _mm_storeu_si128((__m128i *)(q->q + 16), _mm512_cvtepi32_epi8(i1));
        __m128i sums = sums_of(i0, i1);
        q->minus[0] = -_mm_cvtsi128_si32(sums);
        q->minus[1] = -_mm_extract_epi32(sums, 2);
        q->s = -(q->d[0] * (float)q->minus[0] + q->d[1] * (float)q->minus[1]);
        q->base = 0;
    }
}

#define ENTRY_PROMPT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) prompt_##NAME,
static const golem_prompt_fn prompts[] = {GOLEM_FLOAT_TYPES(ENTRY_PAIR_FLOAT)
                                              GOLEM_CODE_TYPES(ENTRY_PROMPT)};

static const golem_linear_isa kept = {
    .name = "avx512", .dot = golem_avx512_kept_dot, .quantise_row = golem_avx512_quantise_row,
    .pair = golem_avx512_kept_pair, .quantise_prompt = quantise_prompt, .prompt = prompts};

const golem_linear_isa golem_linear_avx512 = {
    .name = "avx512", .dot = DOT_TABLE, .quantise_row = golem_avx512_quantise_row,
    .pair = PAIR_TABLE, .quantise_prompt = quantise_prompt, .prompt = prompts, .kept = &kept};
#endif
#endif
