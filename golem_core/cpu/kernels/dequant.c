/* Rows as a file has them -> f32: embeddings are looked up with this, and nothing else is.
 *
 * The order of the roundings is the numpy dequantiser's (golem_core/formats), bit for bit.
 */
#include "linear_file.h"
#include "repack.h"

#define INLINE static inline __attribute__((always_inline))

/* values_TYPE(block, part, codes, y): 32 values of part `part` of a block. */
#define VALUES(NAME) \
    INLINE void values_##NAME(const uint8_t *block, int part, const uint8_t *codes, float *y)

INLINE void scaled(float d, const uint8_t *codes, int count, int offset, float *y) {
    for (int j = 0; j < count; j++) y[j] = d * (float)(codes[j] - offset);
}

INLINE void affine(float d, float m, const uint8_t *codes, int count, float *y) {
    for (int j = 0; j < count; j++) y[j] = d * (float)codes[j] + m;
}

INLINE void tabled(float d, const int8_t *table, const uint8_t *codes, float *y) {
    for (int j = 0; j < 32; j++) y[j] = d * (float)table[codes[j]];
}

INLINE float half_at(const uint8_t *block, int at) { return f32_of_f16(load_u16(block + at)); }

/* d * (code - OFFSET), d the f16 at byte AT */
#define VALUES_SCALED(NAME, AT, OFFSET) \
    VALUES(NAME) { (void)part; scaled(half_at(block, AT), codes, 32, OFFSET, y); }

VALUES_SCALED(Q4_0, 0, 8)
VALUES_SCALED(Q5_0, 0, 16)
VALUES_SCALED(Q8_0, 0, 128)
VALUES_SCALED(Q2_0, 0, 1)
VALUES_SCALED(PQ2_0, 0, 1)
VALUES_SCALED(PTQ1_0, 26, 1)
VALUES_SCALED(TQ1_0, 52, 1)
VALUES_SCALED(TQ2_0, 64, 1)

VALUES(Q1_0) {
    (void)part;
    float d = half_at(block, 0);
    for (int j = 0; j < 32; j++) y[j] = d * (float)(2 * codes[j] - 1);
}

VALUES(Q4_1) {
    (void)part;
    affine(half_at(block, 0), half_at(block, 2), codes, 32, y);
}

VALUES(Q5_1) { values_Q4_1(block, part, codes, y); }

VALUES(IQ4_NL) {
    (void)part;
    tabled(half_at(block, 0), iq4_values, codes, y);
}

VALUES(IQ4_XS) {
    tabled(half_at(block, 0) * (float)iq4_scale(block, part), iq4_values, codes, y);
}

VALUES(MXFP4) {
    (void)part;
    tabled(f32_of_e8(block[0]), fp4_values, codes, y);
}

VALUES(Q2_K) {
    float d = half_at(block, 80), dmin = half_at(block, 82);
    for (int h = 0; h < 2; h++) {
        int both = block[2 * part + h];
        affine(d * (float)(both & 15), -(dmin * (float)(both >> 4)), codes + 16 * h, 16,
               y + 16 * h);
    }
}

VALUES(Q3_K) {
    float d = half_at(block, 108);
    for (int h = 0; h < 2; h++)
        scaled(d * (float)(q3_scale(block + 96, 2 * part + h) - 32), codes + 16 * h, 16, 4,
               y + 16 * h);
}

VALUES(Q4_K) {
    affine(half_at(block, 0) * (float)k_scale(block + 4, part),
           -(half_at(block, 2) * (float)k_minimum(block + 4, part)), codes, 32, y);
}

VALUES(Q5_K) { values_Q4_K(block, part, codes, y); }

VALUES(Q6_K) {
    float d = half_at(block, 208);
    for (int h = 0; h < 2; h++)
        scaled(d * (float)(int8_t)block[192 + 2 * part + h], codes + 16 * h, 16, 32, y + 16 * h);
}

#define DEQUANT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                 \
    void dequant_##NAME(const uint8_t *src, int in, float *dst) {           \
        for (int b = 0; b < in / 32; b++, dst += 32) {                      \
            const uint8_t *block = src + (size_t)(b / (WEIGHTS / 32)) * BYTES; \
            uint8_t codes[32];                                              \
            codes_##NAME(block, b % (WEIGHTS / 32), codes);                 \
            values_##NAME(block, b % (WEIGHTS / 32), codes, dst);           \
        }                                                                   \
    }
GOLEM_CODE_TYPES(DEQUANT)

void dequant_F32(const uint8_t *src, int in, float *dst) { memcpy(dst, src, (size_t)in * 4); }

void dequant_F16(const uint8_t *src, int in, float *dst) {
    for (int k = 0; k < in; k++) dst[k] = half_at(src, 2 * k);
}

void dequant_BF16(const uint8_t *src, int in, float *dst) {
    for (int k = 0; k < in; k++) dst[k] = float_of_bits((uint32_t)load_u16(src + 2 * k) << 16);
}
