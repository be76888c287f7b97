/* Two groups of float weights at once with AVX-512: the products of encoders and of prompts.
 *
 * One group needs a load for every product, to broadcast an activation, and a core loads no more
 * vectors a cycle than it multiplies. Here a broadcast serves two groups and the weights of a pair
 * serve six columns: 24 sums stay in registers, and multiplying alone is the limit. Weights come in
 * pieces that stay in the first cache while all columns meet them; between pieces the sums wait in
 * memory. They are those of one group, even and odd columns of the weights apart, so the bits are
 * too.
 */
#ifndef GOLEM_LINEAR_AVX512_FLOATS_H
#define GOLEM_LINEAR_AVX512_FLOATS_H

enum { FLOAT_TILE = 6 };        /* columns side by side in registers */
enum { FLOAT_PIECE = 32768 };   /* bytes of two groups that meet all columns at a time */
enum { FLOAT_COLUMNS = 64 };    /* columns whose sums may wait */

/* Adds elements 0 .. in - 1 of two groups, met by the values from `from` on of the columns x, to
 * the sums of even and odd elements: even[group], odd[group], from zero when `fresh`; when `last`,
 * even gets both. `in` is even unless last. */
INLINE void float_tile(const enum type type, const int bytes, const uint8_t *first,
                       const uint8_t *second, int in, const float *const *columns_of, int from,
                       const int columns, const int fresh, const int last, float *const *even,
                       float *const *odd) {
    const int line = GOLEM_GROUP * bytes;
    __m512 sum[2][2][FLOAT_TILE];   /* of group, of even and odd */
    const float *x[FLOAT_TILE];
#pragma GCC unroll 6
    for (int c = 0; c < columns; c++) x[c] = columns_of[c] + from;
#pragma GCC unroll 6
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            sum[g][0][c] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(even[g] + GOLEM_GROUP * c);
            sum[g][1][c] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(odd[g] + GOLEM_GROUP * c);
        }
    int k = 0;
    for (; k + 2 <= in; k += 2, first += 2 * line, second += 2 * line) {
#pragma GCC unroll 2
        for (int o = 0; o < 2; o++) {
            __m512 a = load_weights(type, first + o * line);
            __m512 b = load_weights(type, second + o * line);
#pragma GCC unroll 6
            for (int c = 0; c < columns; c++) {
                __m512 v = _mm512_set1_ps(x[c][k + o]);
                KEEP(v); /* in a register: loaded once */
                sum[0][o][c] = _mm512_fmadd_ps(a, v, sum[0][o][c]);
                sum[1][o][c] = _mm512_fmadd_ps(b, v, sum[1][o][c]);
            }
        }
    }
    if (k < in) {
        __m512 a = load_weights(type, first), b = load_weights(type, second);
#pragma GCC unroll 6
        for (int c = 0; c < columns; c++) {
            __m512 v = _mm512_set1_ps(x[c][k]);
            sum[0][0][c] = _mm512_fmadd_ps(a, v, sum[0][0][c]);
            sum[1][0][c] = _mm512_fmadd_ps(b, v, sum[1][0][c]);
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            __m512 y = sum[g][0][c];
            if (last) y = _mm512_add_ps(y, sum[g][1][c]);
            else _mm512_storeu_ps(odd[g] + GOLEM_GROUP * c, sum[g][1][c]);
            _mm512_storeu_ps(even[g] + GOLEM_GROUP * c, y);
        }
}

/* Up to FLOAT_COLUMNS columns times two groups. */
INLINE void float_pair(const enum type type, const int bytes, const uint8_t *first,
                       const uint8_t *second, int in, const golem_act *act, int c0, int nc,
                       float *out_first, float *out_second) {
    const int line = GOLEM_GROUP * bytes, piece = FLOAT_PIECE / (2 * line);
    float odds[2][FLOAT_COLUMNS * GOLEM_GROUP];
    const float *x[FLOAT_COLUMNS];
    for (int c = 0; c < nc; c++) x[c] = golem_column(act, c0 + c);
    for (int k = 0; k == 0 || k < in; k += piece) {
        int size = in - k < piece ? in - k : piece, fresh = k == 0, last = k + size == in;
        const uint8_t *a = first + (size_t)k * line, *b = second + (size_t)k * line;
        for (int c = 0, step; c < nc; c += step) {
            float *even[2] = {out_first + GOLEM_GROUP * c, out_second + GOLEM_GROUP * c};
            float *odd[2] = {odds[0] + GOLEM_GROUP * c, odds[1] + GOLEM_GROUP * c};
            step = nc - c >= 6 ? 6 : nc - c >= 3 ? 3 : 1;
#define TILES(N)                                                                                 \
    (fresh && last ? float_tile(type, bytes, a, b, size, x + c, k, N, 1, 1, even, odd)           \
     : fresh       ? float_tile(type, bytes, a, b, size, x + c, k, N, 1, 0, even, odd)           \
     : last        ? float_tile(type, bytes, a, b, size, x + c, k, N, 0, 1, even, odd)           \
                   : float_tile(type, bytes, a, b, size, x + c, k, N, 0, 0, even, odd))
            switch (step) {
            case 6: TILES(6); break;
            case 3: TILES(3); break;
            default: TILES(1);
            }
#undef TILES
        }
    }
}

#define PAIR_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                      \
    __attribute__((target(TARGET))) static void pair_##NAME(                                      \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        if (!second) {                                                                            \
            dot_##NAME(first, in, a, c0, nc, out_first);                                          \
            return;                                                                               \
        }                                                                                         \
        for (int c = 0; c < nc; c += FLOAT_COLUMNS)                                               \
            float_pair(T_##NAME, BYTES, first, second, in, a, c0 + c,                             \
                       nc - c < FLOAT_COLUMNS ? nc - c : FLOAT_COLUMNS,                           \
                       out_first + GOLEM_GROUP * c, out_second + GOLEM_GROUP * c);                \
    }
GOLEM_FLOAT_TYPES(PAIR_FLOAT)

#endif
