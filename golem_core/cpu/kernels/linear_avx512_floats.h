/* Two groups of float weights at once with AVX-512: the products of encoders and of prompts.
 *
 * One group needs a load for every product, to broadcast an activation, and a core loads no more
 * vectors a cycle than it multiplies. Here a broadcast serves two groups and the weights of a pair
 * serve six columns: 24 sums stay in registers, and multiplying alone is the limit. The sums are
 * those of one group, even and odd columns of the weights apart, so the bits are too.
 */
#ifndef GOLEM_LINEAR_AVX512_FLOATS_H
#define GOLEM_LINEAR_AVX512_FLOATS_H

enum { FLOAT_TILE = 6 };   /* columns side by side in registers */

/* The next `columns` columns, whose values are x, times two groups. */
INLINE void float_tile(const enum type type, const int bytes, const uint8_t *first,
                       const uint8_t *second, int in, const float *x, ptrdiff_t stride,
                       const int columns, float *out_first, float *out_second) {
    const int line = GOLEM_GROUP * bytes;
    __m512 sum[2][2][FLOAT_TILE];   /* of group, of even and odd */
#pragma GCC unroll 6
    for (int c = 0; c < columns; c++)
        sum[0][0][c] = sum[0][1][c] = sum[1][0][c] = sum[1][1][c] = _mm512_setzero_ps();
    int k = 0;
    for (; k + 2 <= in; k += 2, first += 2 * line, second += 2 * line, x += 2) {
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; odd++) {
            __m512 a = load_weights(type, first + odd * line);
            __m512 b = load_weights(type, second + odd * line);
#pragma GCC unroll 6
            for (int c = 0; c < columns; c++) {
                __m512 v = _mm512_set1_ps(x[c * stride + odd]);
                KEEP(v); /* in a register: loaded once */
                sum[0][odd][c] = _mm512_fmadd_ps(a, v, sum[0][odd][c]);
                sum[1][odd][c] = _mm512_fmadd_ps(b, v, sum[1][odd][c]);
            }
        }
    }
    if (k < in) {
        __m512 a = load_weights(type, first), b = load_weights(type, second);
#pragma GCC unroll 6
        for (int c = 0; c < columns; c++) {
            __m512 v = _mm512_set1_ps(x[c * stride]);
            sum[0][0][c] = _mm512_fmadd_ps(a, v, sum[0][0][c]);
            sum[1][0][c] = _mm512_fmadd_ps(b, v, sum[1][0][c]);
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < columns; c++) {
        _mm512_storeu_ps(out_first + GOLEM_GROUP * c, _mm512_add_ps(sum[0][0][c], sum[0][1][c]));
        _mm512_storeu_ps(out_second + GOLEM_GROUP * c, _mm512_add_ps(sum[1][0][c], sum[1][1][c]));
    }
}

#define PAIR_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                      \
    __attribute__((target(TARGET))) static void pair_##NAME(                                      \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        const float *x = a->x + c0 * a->x_stride;                                                 \
        while (nc > 0) {                                                                          \
            int step = nc >= 6 ? 6 : nc >= 3 ? 3 : 1;                                             \
            switch (step) {                                                                       \
            case 6: PAIR_CASE(NAME, BYTES, 6);                                                    \
            case 3: PAIR_CASE(NAME, BYTES, 3);                                                    \
            default: PAIR_CASE(NAME, BYTES, 1);                                                   \
            }                                                                                     \
            x += step * a->x_stride, nc -= step;                                                  \
            out_first += GOLEM_GROUP * step, out_second += GOLEM_GROUP * step;                    \
        }                                                                                         \
    }
#define PAIR_CASE(NAME, BYTES, N)                                                                 \
    float_tile(T_##NAME, BYTES, first, second, in, x, a->x_stride, N, out_first, out_second);     \
    break
GOLEM_FLOAT_TYPES(PAIR_FLOAT)

#endif
