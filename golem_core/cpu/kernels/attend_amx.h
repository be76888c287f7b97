/* The products of attend_pairs.h by tiles: strips of 16 rows of queries or weights, against keys or
 * values as they lie there. Registers 0 .. 3 hold sums, 4 and 5 rows, 6 and 7 keys or values. */
#ifndef GOLEM_ATTEND_AMX_H
#define GOLEM_ATTEND_AMX_H

enum { TILE_LINES = 16, STRIP_ROWS = TILE_LINES };   /* rows of a tile; pairs of its rows */

PAIRS static void begin_pairs(void) {
    tile_shapes s = {0};
    for (int i = 0; i < 8; i++) tile_shape(&s, i, TILE_LINES, 64);
    tile_configure(&s);
}

PAIRS static void end_pairs(void) { tile_release(); }

/* Scores of a strip of rows, with all keys of the block. */
PAIRS static void score_pairs(const tile_scratch *t, int row, int d, int from, int to) {
    const int pairs = element_pairs(d);
    const float *queries = t->turned + (int64_t)row * pairs;
    (void)from, (void)to;
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) tile_zero(v);
    for (int k = 0; k < pairs; k += TILE_LINES) {
        tile_load(4, queries + k, (ptrdiff_t)pairs * 4);
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            tile_load(6 + v % 2, t->keys + k * KEYS + v * LANES, KEYS * 4);
            tile_add_pairs(v, 4, 6 + v % 2);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) tile_store(v, t->scores + row * KEYS + v * LANES, KEYS * 4);
}

/* `count` (1 .. 4) vectors of 16 rows of results, from vector v on. */
PAIRS_INLINE void add_tiles(const tile_scratch *t, float *acc, int v, int wide, const int count) {
    const ptrdiff_t line = (ptrdiff_t)wide * 4;
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        const float *values = t->values + v + i * LANES;
        tile_load(i, acc + v + i * LANES, line);
        tile_load(6, values, line);
        tile_load(7, values + TILE_LINES * wide, line);
        tile_add_pairs(i, 4, 6);
        tile_add_pairs(i, 5, 7);
    }
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) tile_store(i, acc + v + i * LANES, line);
}

/* Results. All keys of the block are multiplied: those outside of from .. to have no weight. */
PAIRS static void add_pairs(const tile_scratch *t, int row, int wide, int from, int to) {
    float *weights = t->scores + row * KEYS, *acc = t->acc + (int64_t)row * wide;
    (void)from, (void)to;
    tile_load(4, weights, KEYS * 4);
    tile_load(5, weights + KEYS / 4, KEYS * 4);
    int v = 0;
    for (; v + 4 * LANES <= wide; v += 4 * LANES) add_tiles(t, acc, v, wide, 4);
    for (; v < wide; v += LANES) add_tiles(t, acc, v, wide, 1);
}

#endif
