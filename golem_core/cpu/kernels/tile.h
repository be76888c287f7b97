/* Small products of f32 matrices, kept in registers: c = a · b or c += a · b.
 *
 * Every element is summed in order of the inner index by fused multiply-adds, whatever block it
 * falls into, so results do not depend on how many rows are computed at once. */
#ifndef GOLEM_TILE_H
#define GOLEM_TILE_H

#include "simd.h"

#if defined(GOLEM_AVX512)
enum { BLOCK_ROWS = 4, BLOCK_VECTORS = 4 };   /* two loads a cycle feed two multiply-adds */
#elif defined(GOLEM_AVX2)
enum { BLOCK_ROWS = 3, BLOCK_VECTORS = 2 };
#elif defined(GOLEM_NEON)
enum { BLOCK_ROWS = 4, BLOCK_VECTORS = 1 };   /* a vector is four registers */
#else
enum { BLOCK_ROWS = 1, BLOCK_VECTORS = 1 };
#endif

/* a: element e of row i at a[i][e * step]. b: (depth, line), c: rows of `row` floats. */
static inline __attribute__((always_inline)) void tile_block(
    const float *const *a, int64_t step, const float *b, int64_t line, float *c, int64_t row,
    int depth, const int rows, const int vectors, const int keep) {
    vf acc[BLOCK_ROWS][BLOCK_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            acc[i][v] = keep ? vload(c + i * row + v * LANES) : vzero();
    for (int e = 0; e < depth; e++) {
        vf x[BLOCK_VECTORS];
        for (int v = 0; v < vectors; v++) x[v] = vload(b + e * line + v * LANES);
        for (int i = 0; i < rows; i++) {
            vf f = vset(a[i][e * step]);
            for (int v = 0; v < vectors; v++) acc[i][v] = vfma(f, x[v], acc[i][v]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) vstore(c + i * row + v * LANES, acc[i][v]);
}

/* c (rows, width) = a (rows, depth) · b (depth, width), added to c where keep is set. width is a
 * multiple of LANES; element e of row i of a is at a[i][e * step]. */
static void tile_multiply(const float *const *a, int64_t step, const float *b, int64_t line,
                          float *c, int64_t row, int rows, int depth, int width, int keep) {
    for (int i = 0; i < rows; i += BLOCK_ROWS) {
        int some = rows - i < BLOCK_ROWS ? rows - i : BLOCK_ROWS, v = 0;
#define TILE(ROWS, VECTORS)                                                                      \
    (keep ? tile_block(a + i, step, b + v, line, c + i * row + v, row, depth, ROWS, VECTORS, 1)  \
          : tile_block(a + i, step, b + v, line, c + i * row + v, row, depth, ROWS, VECTORS, 0))
        for (; v + BLOCK_VECTORS * LANES <= width; v += BLOCK_VECTORS * LANES) switch (some) {
            case 1: TILE(1, BLOCK_VECTORS); break;
#if defined(GOLEM_AVX2) || defined(GOLEM_AVX512) || defined(GOLEM_NEON)
            case 2: TILE(2, BLOCK_VECTORS); break;
            case 3: TILE(3, BLOCK_VECTORS); break;
#endif
#if defined(GOLEM_AVX512) || defined(GOLEM_NEON)
            case 4: TILE(4, BLOCK_VECTORS); break;
#endif
            }
        for (; v < width; v += LANES) switch (some) {
            case 1: TILE(1, 1); break;
#if defined(GOLEM_AVX2) || defined(GOLEM_AVX512) || defined(GOLEM_NEON)
            case 2: TILE(2, 1); break;
            case 3: TILE(3, 1); break;
#endif
#if defined(GOLEM_AVX512) || defined(GOLEM_NEON)
            case 4: TILE(4, 1); break;
#endif
            }
#undef TILE
    }
}

#endif
