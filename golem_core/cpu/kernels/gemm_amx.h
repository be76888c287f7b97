/* gemm of BF16 weights and columns by tiles: two panels of columns against two groups of weights.
 *
 * A panel holds one column after the other here, which are the rows of its tiles; weights lie as
 * AVX-512's pairs do. Registers 0 .. 3 hold sums of (panel, group), 4 and 5 columns, 6 and 7
 * weights. 32 elements are a tile; the rest of a row is filled up with zeros. */
#ifndef GOLEM_GEMM_AMX_H
#define GOLEM_GEMM_AMX_H

#include "tiles.h"

#define GEMM_TILES __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq," TILE_TARGET)))

enum { GEMM_LINES = 16 };   /* pairs of a tile's rows */

/* One step of 16 pairs; x: a column's to the next, bytes. */
GEMM_TILES static inline __attribute__((always_inline)) void gemm_step(
    const void *const *w, const void *const *x, ptrdiff_t line, const int groups,
    const int panels) {
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++) tile_load(4 + p, x[p], line);
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) tile_load(6 + g, w[g], 64);
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++)
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) tile_add_pairs(2 * p + g, 4 + p, 6 + g);
}

/* out[p][g]: (PANEL, 16) sums of panel p and group g. w[g]: (lines, 16) pairs, x: panels of
 * (PANEL, lines) pairs, one after the other. */
GEMM_TILES static inline __attribute__((always_inline)) void gemm_products(
    const float *const *w, const uint32_t *x, int lines, const int groups, const int panels,
    float (*out)[2][PANEL * LANES]) {
    const void *at[2] = {0}, *columns[2] = {0};
    int k = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        if (i / 2 < panels && i % 2 < groups) tile_zero(i);
    for (; k + GEMM_LINES <= lines; k += GEMM_LINES) {
        for (int g = 0; g < groups; g++) at[g] = w[g] + (int64_t)k * LANES;
        for (int p = 0; p < panels; p++) columns[p] = x + (int64_t)p * PANEL * lines + k;
        gemm_step(at, columns, (ptrdiff_t)lines * 4, groups, panels);
    }
    if (k < lines) {
        uint32_t weights[2][GEMM_LINES][LANES] = {0}, rest[2][PANEL][GEMM_LINES] = {0};
        for (int g = 0; g < groups; g++) {
            memcpy(weights[g], w[g] + (int64_t)k * LANES, (size_t)(lines - k) * 64);
            at[g] = weights[g];
        }
        for (int p = 0; p < panels; p++) {
            for (int c = 0; c < PANEL; c++)
                memcpy(rest[p][c], x + (int64_t)(p * PANEL + c) * lines + k,
                       (size_t)(lines - k) * 4);
            columns[p] = rest[p];
        }
        gemm_step(at, columns, 64, groups, panels);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        if (i / 2 < panels && i % 2 < groups) tile_store(i, out[i / 2][i % 2], 64);
}

/* See gemm_unit. */
GEMM_TILES static void gemm_unit_tiles(product_store *p, const uint32_t *x, int from, int to,
                                       int first, int columns, float *unpacked) {
    const golem_segment *s = p->s;
    int lines = gemm_lines(s->in, 1), gated = s->b.groups != NULL, made = 0;
    const float *w[2 * GEMM_GROUPS];
    for (int g = from; g < to; g++)
        for (int second = 0; second <= gated; second++, unpacked += lines * LANES)
            w[made++] = gemm_group(second ? &s->b : &s->a, g, s->in, 1, unpacked);
    float out[2][2][PANEL * LANES];
    tile_shapes shapes = {0};
    for (int i = 0; i < 8; i++) tile_shape(&shapes, i, i < 6 ? PANEL : GEMM_LINES, 64);
    tile_configure(&shapes);
    for (int c = 0; c < columns; c += 2 * PANEL, x += (int64_t)2 * PANEL * lines) {
        int panels = columns - c > PANEL ? 2 : 1;
        for (int i = 0; i < made; i += 2) {
            int groups = i + 1 < made ? 2 : 1;
            if (panels == 2 && groups == 2) gemm_products(w + i, x, lines, 2, 2, out);
            else if (panels == 2) gemm_products(w + i, x, lines, 1, 2, out);
            else if (groups == 2) gemm_products(w + i, x, lines, 2, 1, out);
            else gemm_products(w + i, x, lines, 1, 1, out);
            for (int q = 0; q < panels; q++) {
                int at = c + q * PANEL, count = columns - at < PANEL ? columns - at : PANEL;
                raw_products of = {out[q][0], gated ? out[q][1] : NULL, from + (gated ? i / 2 : i),
                                   gated ? 1 : groups, PANEL, first + at, count};
                finish_groups(p, &of);
            }
        }
    }
    tile_release();
}

#endif
