/* Group dot products in plain C: for machines without a faster set, and the meaning of the others.
 *
 * A part (32 columns of 16 rows) gives, for each row and column c, two integers
 *     sum[h] = sum of (value of the code) * q over its half h    exact, below 2^24: so as f32 too
 * and the row's sum grows, part after part in order, by
 *     acc = fma(fma(sum[1], d[1], sum[0] * d[0]), scale, acc)
 *     acc = fma(s, low, acc)                                      with minima: Q4_1 Q5_1 Q4_K Q5_K
 * or, where halves have scales of their own (Q2_K Q3_K Q6_K), for h = 0, then 1, by
 *     acc = fma(sum[h] * scale[h], d[h], acc)                     Q3_K Q6_K
 *     acc = fma(fma(minus[h], low[h], sum[h] * scale[h]), d[h], acc)    Q2_K
 * where scale and low are the row's f32 numbers (products of an f16 and a small integer are exact)
 * and d, s, minus the column's. Every instruction set does these steps and no others, so all give
 * the same bits. Without fma hardware fmaf is slow but right.
 *
 * F32, F16 and BF16: two sums, of even and of odd columns, in order, added at the end; here with
 * separate multiply and add where the compiler knows no fma, so that bits differ from other sets.
 */
#include <math.h>

#include "linear_layout.h"

#define INLINE static inline __attribute__((always_inline))

/* A part, decoded. */
struct part {
    int8_t w[GOLEM_GROUP][32];   /* values of the codes */
    float scale[GOLEM_GROUP][2]; /* [0] of the part, or [0] and [1] of its halves */
    float low[GOLEM_GROUP][2];
};

INLINE float half_at(const uint8_t *scales, int r) { return f32_of_f16(load_u16(scales + 2 * r)); }

INLINE int six(const uint8_t *words, int i, int r, int second) {
    uint32_t word = 0;
    if (i < 6)
        word = load_u32(words + 64 * (i >> 1) + 4 * r);
    else
        for (int k = 0; k < 3; k++) word |= (uint32_t)words[64 * k + 4 * r + 3] << (8 * k);
    return (word >> (12 * (i & 1) + 6 * second)) & 63;
}

/* Codes of a part as bytes, w[r][column]. */
INLINE void load_codes(const uint8_t *part, const int bits, uint8_t (*w)[32]) {
    const uint8_t *high = part + (bits >= 5 ? 256 : 128);
    for (int r = 0; r < GOLEM_GROUP; r++)
        for (int v = 0; v < 8; v++)
            for (int i = 0; i < 4; i++) {
                int at = 4 * r + i, code;
                if (bits == 8)
                    code = part[64 * v + at];
                else if (bits >= 4)
                    code = (part[64 * (v & 3) + at] >> (v & 4)) & 15;
                else if (bits >= 2)
                    code = (part[64 * (v >> 2) + at] >> (2 * (v & 3))) & 3;
                else
                    code = (part[at] >> v) & 1;
                if (bits == 5) code |= ((high[at] >> v) & 1) << 4;
                if (bits == 6) code |= ((high[64 * (v >> 2) + at] >> (2 * (v & 3))) & 3) << 4;
                if (bits == 3) code |= ((high[at] >> v) & 1) << 2;
                w[r][4 * v + i] = (uint8_t)code;
            }
}

INLINE int value_of(const enum type type, int code) {
    switch (type) {
    case T_Q4_0: return code - 8;
    case T_Q5_0: return code - 16;
    case T_Q8_0: return code - 128;
    case T_Q3_K: return code - 4;
    case T_Q6_K: return code - 32;
    case T_IQ4_NL:
    case T_IQ4_XS: return iq4_values[code];
    case T_MXFP4: return fp4_values[code];
    case T_Q1_0: return 2 * code - 1;
    case T_Q2_0:
    case T_PQ2_0:
    case T_PTQ1_0:
    case T_TQ1_0:
    case T_TQ2_0: return code - 1;
    default: return code;
    }
}

/* Part i of `parts` in the superblock, but for its codes. */
INLINE void load_scales(const enum type type, const uint8_t *super, int i, int parts,
                        struct part *o) {
    for (int r = 0; r < GOLEM_GROUP; r++) {
        float d = half_at(super, r), second = half_at(super + 32, r);
        const uint8_t *pair = super + 64 + 32 * i + 2 * r;
        switch (type) {
        case T_Q4_1:
        case T_Q5_1:
            o->scale[r][0] = d;
            o->low[r][0] = second;
            break;
        case T_Q4_K:
        case T_Q5_K:
            o->scale[r][0] = d * (float)six(super + 64, i, r, 0);
            o->low[r][0] = -(second * (float)six(super + 64, i, r, 1));
            break;
        case T_IQ4_XS: o->scale[r][0] = d * (float)(int8_t)super[64 + 16 * i + r]; break;
        case T_MXFP4: o->scale[r][0] = f32_of_e8(super[16 * i + r]); break;
        case T_Q2_K:
        case T_Q3_K:
        case T_Q6_K:
            for (int h = 0; h < 2; h++) {
                int weight = pair[h] & 15;
                if (type == T_Q3_K) weight = six(super + 64, i, r, h) - 32;
                if (type == T_Q6_K) weight = (int8_t)pair[h];
                o->scale[r][h] = d * (float)weight;
                o->low[r][h] = second * (float)(pair[h] >> 4);
            }
            break;
        default: o->scale[r][0] = 2 * i < parts ? d : second;
        }
    }
}

INLINE int dot16(const int8_t *w, const int8_t *q) {
    int sum = 0;
    for (int k = 0; k < 16; k++) sum += w[k] * q[k];
    return sum;
}

/* acc[r] += what part o and one column's block a give. */
INLINE void add_part(const enum type type, const struct part *o, const golem_q8 *a, float *acc) {
    const int halves = type == T_Q2_K || type == T_Q3_K || type == T_Q6_K;
    const int affine = type == T_Q4_1 || type == T_Q5_1 || type == T_Q4_K || type == T_Q5_K;
    for (int r = 0; r < GOLEM_GROUP; r++) {
        float first = (float)dot16(o->w[r], a->q), second = (float)dot16(o->w[r] + 16, a->q + 16);
        const float *scale = o->scale[r], *low = o->low[r];
        if (halves) {
            first *= scale[0], second *= scale[1];
            if (type == T_Q2_K) {
                first = fmaf((float)a->minus[0], low[0], first);
                second = fmaf((float)a->minus[1], low[1], second);
            }
            acc[r] = fmaf(second, a->d[1], fmaf(first, a->d[0], acc[r]));
        } else {
            acc[r] = fmaf(fmaf(second, a->d[1], first * a->d[0]), scale[0], acc[r]);
        }
        if (affine) acc[r] = fmaf(a->s, low[0], acc[r]);
    }
}

#define DOT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                           \
    static void dot_##NAME(const uint8_t *group, int in, const golem_act *a, int c0, int nc,      \
                           float *out) {                                                          \
        struct part part;                                                                         \
        memset(out, 0, sizeof(float) * GOLEM_GROUP * (size_t)nc);                                 \
        for (int b = 0; b < in / 32; b++) {                                                       \
            const uint8_t *super = group + (size_t)(b / (COLS / 32)) * SUPER_##NAME;              \
            int i = b % (COLS / 32);                                                              \
            load_codes(super + HEAD + i * PART_##NAME, BITS, (uint8_t(*)[32])part.w);             \
            for (int r = 0; r < GOLEM_GROUP; r++)                                                 \
                for (int k = 0; k < 32; k++)                                                      \
                    part.w[r][k] = (int8_t)value_of(T_##NAME, (uint8_t)part.w[r][k]);             \
            load_scales(T_##NAME, super, i, COLS / 32, &part);                                    \
            for (int c = 0; c < nc; c++)                                                          \
                add_part(T_##NAME, &part, a->q + (size_t)b * a->n + c0 + c,                       \
                         out + GOLEM_GROUP * c);                                                  \
        }                                                                                         \
    }
GOLEM_CODE_TYPES(DOT)

INLINE float weight_at(const enum type type, const uint8_t *group, size_t k) {
    switch (type) {
    case T_F16: return half_at(group, (int)k);
    case T_BF16: return float_of_bits((uint32_t)load_u16(group + 2 * k) << 16);
    default: return float_of_bits(load_u32(group + 4 * k));
    }
}

INLINE float multiply_add(float w, float x, float acc) {
#ifdef __FP_FAST_FMAF
    return fmaf(w, x, acc);
#else
    return acc + w * x;
#endif
}

enum { COLUMNS = 8 }; /* that share a decoded column of weights */

INLINE void dot_float(const enum type type, const int bytes, const uint8_t *group, int in,
                      const golem_act *a, int c0, int columns, float *out) {
    float acc[COLUMNS][2][GOLEM_GROUP] = {{{0}}}, w[GOLEM_GROUP];
    const float *x[COLUMNS];
    for (int c = 0; c < columns; c++) x[c] = golem_column(a, c0 + c);
    for (int k = 0; k < in; k++, group += GOLEM_GROUP * bytes) {
        for (int r = 0; r < GOLEM_GROUP; r++) w[r] = weight_at(type, group, r);
        for (int c = 0; c < columns; c++)
            for (int r = 0; r < GOLEM_GROUP; r++)
                acc[c][k & 1][r] = multiply_add(w[r], x[c][k], acc[c][k & 1][r]);
    }
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < GOLEM_GROUP; r++)
            out[GOLEM_GROUP * c + r] = acc[c][0][r] + acc[c][1][r];
}

#define DOT_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                       \
    static void dot_##NAME(const uint8_t *group, int in, const golem_act *a, int c0, int nc,      \
                           float *out) {                                                          \
        for (int c = 0; c < nc; c += COLUMNS)                                                     \
            dot_float(T_##NAME, BYTES, group, in, a, c0 + c, nc - c < COLUMNS ? nc - c : COLUMNS, \
                      out + GOLEM_GROUP * c);                                                     \
    }
GOLEM_FLOAT_TYPES(DOT_FLOAT)

/* Rounds |x| < 2^22 to nearest even: the sum's last bit is worth 1. */
INLINE int nearest(float x) {
    return (int)bits_of_float(x + 0x1.8p23f) - (int)bits_of_float(0x1.8p23f);
}

INLINE uint32_t largest_magnitude(const float *x) {
    uint32_t largest = 0;
    for (int k = 0; k < 16; k++) {
        uint32_t magnitude = bits_of_float(x[k]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* The codes of sixteen values times inverse; returns minus their sum. */
INLINE int32_t code_half(const float *x, float inverse, int8_t *codes) {
    int32_t minus = 0;
    for (int k = 0; k < 16; k++) {
        int code = inverse > 0 ? nearest(x[k] * inverse) : 0;
        codes[k] = (int8_t)code;
        minus -= code;
    }
    return minus;
}

#include "linear_quantise.h"
#define ENTRY_FLOAT(NAME, ID, WEIGHTS, BYTES) dot_##NAME,
#define ENTRY_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) dot_##NAME,
static const golem_group_fn dot[] = {GOLEM_FLOAT_TYPES(ENTRY_FLOAT)
                                         GOLEM_CODE_TYPES(ENTRY_CODES)};

#include "linear_prompt.h"

const golem_linear_isa golem_linear_portable = {"portable", dot,  quantise_row,
                                                NULL,       quantise_prompt, prompts};
