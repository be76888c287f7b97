/* Group dot products and the quantiser with NEON and its dot products of bytes (FEAT_DotProd).
 *
 * Four rows are the four lanes; sixteen activations of a column are one register, whose words are
 * multiplied with a vector of codes by their number. Codes below 64 go in as they are, and sums
 * start at what the offset of all of them adds up to. The steps in f32 and their order are
 * linear_portable.c's, so the bits are too.
 */
#include "linear.h"

#if defined(__aarch64__)
#pragma GCC target("arch=armv8.2-a+dotprod")
#include "linear_neon_codes.h"

enum { QUADS = GOLEM_GROUP / 4 };
enum { WIDEST = 4 };       /* columns of codes whose sums are half of the registers */
enum { WIDEST_FLOAT = 3 }; /* columns with two sums each: three quarters */

/* Products of a half's four vectors with sixteen activations, added to sum. */
INLINE int32x4_t dot_half(int32x4_t sum, const int8x16_t *w, int8x16_t q) {
    sum = vdotq_laneq_s32(sum, w[0], q, 0);
    sum = vdotq_laneq_s32(sum, w[1], q, 1);
    sum = vdotq_laneq_s32(sum, w[2], q, 2);
    return vdotq_laneq_s32(sum, w[3], q, 3);
}

/* Adds the products of four rows of a part with `columns` columns to acc. */
INLINE void add_quad(const enum type type, const int bits, const uint8_t *part, const scales *s,
                     const golem_q8 *a, const int columns, float32x4_t *acc) {
    const int halves = type == T_Q2_K || type == T_Q3_K || type == T_Q6_K;
    const int shift = offset_of(type);
    float32x4_t x[WIDEST];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        int8x16_t w[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) w[k] = load_code(type, bits, part, 4 * h + k);
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            int32x4_t start = vdupq_n_s32(shift < 0 ? 0 : a[c].minus[h] * (1 << (shift & 31)));
            float32x4_t y = vcvtq_f32_s32(dot_half(start, w, vld1q_s8(a[c].q + 16 * h)));
            float d = a[c].d[h];
            if (!halves) {
                x[c] = h ? vfmaq_n_f32(x[c], y, d) : y * d;
                continue;
            }
            y *= s->scale[h];
            if (type == T_Q2_K) y = vfmaq_n_f32(y, s->low[h], (float)a[c].minus[h]);
            acc[c] = vfmaq_n_f32(acc[c], y, d);
        }
    }
    if (halves) return;
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) {
        acc[c] = vfmaq_f32(acc[c], x[c], s->scale[0]);
        if (type == T_Q4_1 || type == T_Q5_1) acc[c] = vfmaq_n_f32(acc[c], s->low[0], a[c].s);
        if (type == T_Q4_K || type == T_Q5_K) acc[c] = vfmsq_n_f32(acc[c], s->low[0], a[c].s);
    }
}

/* `columns` columns, whose first has its first record at a, times a whole group. */
INLINE void dot_columns(const enum type type, const int bits, const int parts, const int head,
                        const uint8_t *super, int in, const golem_q8 *a, int n, const int columns,
                        float *out) {
    float32x4_t acc[QUADS][WIDEST];
#pragma GCC unroll 4
    for (int g = 0; g < QUADS; g++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) acc[g][c] = vdupq_n_f32(0);
    for (int left = in / 32; left > 0; left -= parts, super += head + parts * 64 * bits) {
        int count = left < parts ? left : parts;
        for (int i = 0; i < count; i++, a += n)
#pragma GCC unroll 4
            for (int g = 0; g < QUADS; g++) {
                scales s = load_scales(type, super, g, i, parts);
                const uint8_t *part = super + head + i * (64 * bits) + 16 * g;
                add_quad(type, bits, part, &s, a, columns, acc[g]);
            }
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 4
        for (int g = 0; g < QUADS; g++) vst1q_f32(out + GOLEM_GROUP * c + 4 * g, acc[g][c]);
}

/* Blocks of 4 columns, then of what is left: a column's steps are the same in every block. */
#define DOT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                           \
    static void dot_##NAME(const uint8_t *group, int in, const golem_act *a, int c0, int nc,      \
                           float *out) {                                                          \
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
    dot_columns(T_##NAME, BITS, COLS / 32, HEAD, group, in, q, a->n, N, out);             \
    break
GOLEM_CODE_TYPES(DOT)

INLINE float32x4_t load_weights(const enum type type, const uint8_t *p) {
    switch (type) {
    case T_F16: return load_halves(p);
    case T_BF16: return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)p), 16));
    default: return vld1q_f32((const float *)p);
    }
}

/* One column of the weights times a value of each column, into sum. */
INLINE void add_column(const enum type type, const int bytes, const uint8_t *weights,
                       const float *const *x, int k, const int columns,
                       float32x4_t (*sum)[WIDEST_FLOAT]) {
#pragma GCC unroll 4
    for (int g = 0; g < QUADS; g++) {
        float32x4_t w = load_weights(type, weights + 4 * bytes * g);
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++) sum[g][c] = vfmaq_n_f32(sum[g][c], w, x[c][k]);
    }
}

/* Even columns of the weights go into one sum, odd ones into another. */
INLINE void dot_float(const enum type type, const int bytes, const uint8_t *group, int in,
                      const golem_act *a, int c0, const int columns, float *out) {
    const int line = GOLEM_GROUP * bytes;
    float32x4_t even[QUADS][WIDEST_FLOAT], odd[QUADS][WIDEST_FLOAT];
    const float *x[WIDEST_FLOAT];
#pragma GCC unroll 3
    for (int c = 0; c < columns; c++) {
        x[c] = golem_column(a, c0 + c);
#pragma GCC unroll 4
        for (int g = 0; g < QUADS; g++) even[g][c] = odd[g][c] = vdupq_n_f32(0);
    }
    int k = 0;
    for (; k + 2 <= in; k += 2, group += 2 * line) {
        add_column(type, bytes, group, x, k, columns, even);
        add_column(type, bytes, group + line, x, k + 1, columns, odd);
    }
    if (k < in) add_column(type, bytes, group, x, k, columns, even);
#pragma GCC unroll 3
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 4
        for (int g = 0; g < QUADS; g++)
            vst1q_f32(out + GOLEM_GROUP * c + 4 * g, even[g][c] + odd[g][c]);
}

#define DOT_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                       \
    static void dot_##NAME(const uint8_t *group, int in, const golem_act *a, int c0, int nc,      \
                           float *out) {                                                          \
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

/* See linear_portable.c: sixteen values are four vectors. */
INLINE uint32_t largest_magnitude(const float *x) {
    uint32x4_t most = {0};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vld1q_f32(x + 4 * i)) & 0x7fffffff);
    return vmaxvq_u32(most);
}

INLINE int32_t code_half(const float *x, float by, int8_t *codes) {
    int16x4_t words[4];
    if (by == 0) {
        memset(codes, 0, 16);
        return 0;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) /* to nearest, ties to even */
        words[i] = vmovn_s32(vcvtnq_s32_f32(vld1q_f32(x + 4 * i) * by));
    int16x8_t low = vcombine_s16(words[0], words[1]), high = vcombine_s16(words[2], words[3]);
    vst1q_s8(codes, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    return -vaddvq_s16(low + high);
}

#include "linear_prompt.h"
#include "linear_quantise.h"

#define ENTRY_FLOAT(NAME, ID, WEIGHTS, BYTES) dot_##NAME,
#define ENTRY_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) dot_##NAME,
static const golem_group_fn dot[] = {GOLEM_FLOAT_TYPES(ENTRY_FLOAT)
                                         GOLEM_CODE_TYPES(ENTRY_CODES)};

const golem_linear_isa golem_linear_neon = {"neon", dot,  quantise_row,
                                            NULL,   quantise_prompt, prompts};
#endif
