/* delta_rule: the recurrence of a gated delta net.
 *
 * A row of the matrix is one value index, and its past depends on no other row, so rows are taken a
 * few at a time through a block of columns: they stay in registers, or in the first-level cache,
 * while the block's keys and queries pass by. What is computed for a column is the same whether the
 * matrix was just loaded or stayed: a prompt cut anywhere, or drawn column by column, has the same
 * bits, and nothing needs to be cut at a border. */
#ifndef GOLEM_DELTA_H
#define GOLEM_DELTA_H

#include "units.h"

#if defined(GOLEM_AVX512)
enum { DELTA_ROWS = 3 };      /* rows of eight vectors that fit into the registers */
#else
enum { DELTA_ROWS = 1 };
#endif
enum { DELTA_PIECE = 64 };    /* rows of a unit */
enum { DELTA_COLUMNS = 16 };  /* columns of a block: their keys and queries stay in L1 */
/* Rows asked for before they are needed where the matrix comes from memory. A row of arithmetic is
 * long for what a processor looks ahead by itself: a drawn column takes a third of the time with
 * it. */
enum { DELTA_AHEAD = 16 };

enum { DELTA_KEYS, DELTA_HEADS, DELTA_K, DELTA_V, DELTA_GROUPED };

/* What a unit needs of a block of columns, close together. wide: of a key, in whole vectors. */
typedef struct {
    float *key, *query;       /* (DELTA_COLUMNS, wide) */
    float *value, *made;      /* (DELTA_COLUMNS, DELTA_PIECE) */
    float decay[DELTA_COLUMNS], beta[DELTA_COLUMNS];
    int first;                /* of the run: the matrix is not in a cache yet */
} delta_block;

/* Rows of the matrix through `columns` columns. m: the first row; a row has `size` floats,
 * `vectors` vectors, the last of them with `tail` lanes. at: the first row's place in value and
 * made. */
static inline __attribute__((always_inline)) void delta_rows(
    const delta_block *t, float *m, int size, int at, int columns, float scale, int fresh,
    const int rows, const int vectors, const int tail) {
    vf x[rows][vectors];
    if (t->first && !fresh)
        for (int i = 0; i < rows * size; i += LANES)
            __builtin_prefetch(m + DELTA_AHEAD * size + i, 0);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            x[r][v] = fresh ? vzero()
                            : vread(m + r * size + v * LANES, v + 1 < vectors ? LANES : tail);
    for (int c = 0; c < columns; c++) {
        const float *key = t->key + c * vectors * LANES, *query = t->query + c * vectors * LANES;
        const float *value = t->value + c * DELTA_PIECE + at;
        vf decay = vset(t->decay[c]), d[rows];
        for (int r = 0; r < rows; r++) {
            vf seen[2] = {vzero(), vzero()};      /* two sums: half as long a wait */
            for (int v = 0; v < vectors; v++) {
                x[r][v] = vmul(x[r][v], decay);
                seen[v % 2] = vfma(x[r][v], vload(key + v * LANES), seen[v % 2]);
            }
            d[r] = vset((value[r] - vsum(vadd(seen[0], seen[1]))) * t->beta[c]);
        }
        for (int r = 0; r < rows; r++) {
            vf out[2] = {vzero(), vzero()};
            for (int v = 0; v < vectors; v++) {
                x[r][v] = vfma(d[r], vload(key + v * LANES), x[r][v]);
                out[v % 2] = vfma(x[r][v], vload(query + v * LANES), out[v % 2]);
            }
            t->made[c * DELTA_PIECE + at + r] = vsum(vadd(out[0], out[1])) * scale;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            vwrite(m + r * size + v * LANES, x[r][v], v + 1 < vectors ? LANES : tail);
}

/* rows of the matrix from m on, through a block */
static void delta_piece(const delta_block *t, float *m, int size, int rows, int columns,
                        float scale, int fresh) {
    int vectors = (size + LANES - 1) / LANES, tail = size - (vectors - 1) * LANES, r = 0;
#define DELTA(ROWS, VECTORS, TAIL)                                                              \
    delta_rows(t, m + (int64_t)r * size, size, r, columns, scale, fresh, ROWS, VECTORS, TAIL)
    if (size == 8 * LANES) {
        for (; r + DELTA_ROWS <= rows; r += DELTA_ROWS) DELTA(DELTA_ROWS, 8, LANES);
        for (; r < rows; r++) DELTA(1, 8, LANES);
    } else if (size == 4 * LANES) {
        for (; r < rows; r++) DELTA(1, 4, LANES);
    } else {
        for (; r < rows; r++) DELTA(1, vectors, tail);
    }
#undef DELTA
}

/* Asks for what a row of the next block will need while this one is worked on. */
static inline void expect_row(const float *from, int size) {
    for (int i = 0; i < size; i += LANES) __builtin_prefetch(from + i);
}

static inline void take_row(float *to, const float *from, int size) {
    FOR_LANES(i, size, count) vstore(to + i, vread(from + i, count));
}

/* in: q, k (rows, keys, size), v (rows, heads, values), decay, beta (rows, heads). f: scale.
 * i: key heads, value heads, size, values, whether the value heads of a key head lie together */
static void run_delta_rule(const golem_record *r, golem_worker *w) {
    const golem_pass *p = w->pass;
    int heads = r->i[DELTA_HEADS], size = r->i[DELTA_K], values = r->i[DELTA_V];
    int wide = (size + LANES - 1) / LANES * LANES;
    int64_t pieces = (values + DELTA_PIECE - 1) / DELTA_PIECE;
    int64_t units = pieces * heads * p->run_count;
    char *in[5], *out = base_of(&r->out[0], w);
    for (int i = 0; i < 5; i++) in[i] = base_of(&r->in[i], w);
    float *room = (float *)w->scratch;
    delta_block t = {.key = room, .query = room + DELTA_COLUMNS * wide};
    t.value = t.query + DELTA_COLUMNS * wide;
    t.made = t.value + DELTA_COLUMNS * DELTA_PIECE;
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
        if (unit >= units) return;
        const int32_t *run = p->runs + 5 * (unit / (pieces * heads));
        int head = (int)(unit / pieces % heads), first = (int)(unit % pieces) * DELTA_PIECE;
        int keys = r->i[DELTA_KEYS];
        int from = r->i[DELTA_GROUPED] ? head / (heads / keys) : head % keys;
        int rows = values - first < DELTA_PIECE ? values - first : DELTA_PIECE;
        float *m = r->state.base + run[0] * r->state.floats +
                   ((int64_t)head * values + first) * size;
        for (int done = 0; done < run[2]; done += DELTA_COLUMNS) {
            int columns = run[2] - done < DELTA_COLUMNS ? run[2] - done : DELTA_COLUMNS;
            for (int c = 0; c < columns; c++) {
                int64_t row = run[1] + done + c;
                take_row(t.query + c * wide, unit_at(in[0], &r->in[0], row, from), size);
                take_row(t.key + c * wide, unit_at(in[1], &r->in[1], row, from), size);
                memcpy(t.value + c * DELTA_PIECE, unit_at(in[2], &r->in[2], row, head) + first,
                       (size_t)rows * 4);
                t.decay[c] = *unit_at(in[3], &r->in[3], row, head);
                t.beta[c] = *unit_at(in[4], &r->in[4], row, head);
                row += DELTA_COLUMNS;
                if (row >= run[1] + run[2]) continue;
                expect_row(unit_at(in[0], &r->in[0], row, from), size);
                expect_row(unit_at(in[1], &r->in[1], row, from), size);
                expect_row(unit_at(in[2], &r->in[2], row, head) + first, rows);
            }
            FOR_LANES(c, columns, count)
                vwrite(t.decay + c, vexp(vread(t.decay + c, count)), count);
            t.first = done == 0;
            delta_piece(&t, m, size, rows, columns, r->f[0], run[3] == 0 && done == 0);
            for (int c = 0; c < columns; c++)
                memcpy(unit_at(out, &r->out[0], run[1] + done + c, head) + first,
                       t.made + c * DELTA_PIECE, (size_t)rows * 4);
        }
    }
}

#endif
