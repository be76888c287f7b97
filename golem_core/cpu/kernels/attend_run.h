/* The attend record: its units, and who takes them. */
#ifndef GOLEM_ATTEND_RUN_H
#define GOLEM_ATTEND_RUN_H

#include "attend_drawn.h"
#include "attend_pairs.h"
#include "attend_tile.h"

/* The next sequence of the record after number *at; 0 when there is none. */
static int next_sequence(const attention *a, int *at, sequence *s) {
    const golem_record *r = a->r;
    if (r->i[9]) {
        if (*at >= a->w->pass->run_count) return 0;
        *s = sequence_of_run(a, a->w->pass->runs + 5 * (int64_t)*at);
    } else if (r->in[4].slot != GOLEM_NONE) {
        const int32_t *offset = (const int32_t *)base_of(&r->in[4], a->w);
        if (*at >= a->w->pass->extents[r->i[10]]) return 0;
        int64_t end = offset[*at + 1] < a->rows ? offset[*at + 1] : a->rows;
        *s = (sequence){.first = offset[*at] < 0 ? 0 : offset[*at]};
        s->count = end > s->first ? end - s->first : 0;
        s->last = s->count - 1;
    } else {
        int64_t size = r->i[7] ? r->i[7] : a->rows;
        if (*at * size >= a->rows) return 0;
        *s = (sequence){.first = *at * size};
        s->count = s->first + size < a->rows ? size : a->rows - s->first;
        s->last = s->count - 1;
    }
    ++*at;
    return 1;
}

static inline int64_t take(golem_worker *w) {
    return atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
}

/* How a worker has come through the units of a record: the one it has taken, those before the
 * rows that follow, and the results of chunks so far. */
typedef struct {
    int64_t unit, before, place;
} progress;

/* A drawn row. Where there are too few rows and key heads for all workers (split), the chunks of
 * its keys are units of their own. */
static void run_drawn_row(const attention *a, const sequence *s, int64_t row, int split,
                          progress *g) {
    int64_t low, high, chunks = 1, size = result_floats(a->share, a->dv);
    float *parts = (float *)base_of(&a->r->out[2], a->w);
    interval(a, s, row, &low, &high);
    if (split && high >= low) chunks = high / CHUNK - low / CHUNK + 1;
    for (; g->unit < g->before + chunks * a->kv; g->unit = take(a->w)) {
        int head = (int)((g->unit - g->before) / chunks);
        int64_t chunk = (g->unit - g->before) % chunks;
        if (chunks == 1) attend_column(a, s, row, head);
        else
            attend_part(a, s, row, head, chunk, chunks, parts + (g->place + head * chunks) * size,
                        a->w->pass->finished + (row * a->kv + head) * 16);
    }
    g->before += chunks * a->kv;
    g->place += chunks > 1 ? chunks * a->kv : 0;
}

/* Whether the chunks of so many drawn rows are shared out one by one. */
static int splits(const attention *a, int64_t rows) {
    return rows * a->kv < GOLEM_SPLIT * a->w->pass->threads;
}

/* The drawn runs, which come first. */
static void run_drawn(const attention *a, int *at, progress *g) {
    const golem_pass *p = a->w->pass;
    int split = splits(a, p->drawn * (int64_t)a->r->ring.rate);
    sequence s;
    while (*at < p->run_count && p->runs[5 * (int64_t)*at + 4] == 0 && next_sequence(a, at, &s))
        for (int64_t row = s.first; row < s.first + s.count; row++)
            run_drawn_row(a, &s, row, split, g);
}

/* A tile of columns by the kernel that is right for the record. */
static void attend_columns(const attention *a, const sequence *s, int64_t from, int columns,
                           int head) {
#if defined(GOLEM_AVX512)
    if (a->r->i[11] & GOLEM_ROUNDED && !a->rels && multiplies_pairs()) {
        attend_pairs(a, s, from, columns, head);
        return;
    }
#endif
    attend_tile(a, s, from, columns, head);
}

/* Rows that were picked of all columns: each by itself, as its column's role has it. */
static void run_picked(const attention *a, progress *g) {
    const golem_pass *p = a->w->pass;
    int64_t drawn = p->drawn * (int64_t)a->r->ring.rate;
    for (int64_t row = 0; row < a->rows; row++) {
        sequence s = sequence_of_picked(a, row);
        if (a->at[row] < drawn && !a->rels) {
            run_drawn_row(a, &s, row, splits(a, a->rows), g);
            continue;
        }
        for (; g->unit < g->before + a->kv; g->unit = take(a->w))
            attend_columns(a, &s, row, 1, (int)(g->unit - g->before));
        g->before += a->kv;
    }
}

/* Tiles of a sequence's columns, one of each key head. */
static int64_t tiles_of(const attention *a, const sequence *s, int64_t *columns) {
    *columns = tile_columns(a->share, a->kv, s->count, a->w->pass->threads);
    return (s->count + *columns - 1) / *columns * a->kv;
}

/* Tile `unit` of the sequences from number `at` on. */
static void run_tile(const attention *a, int at, int64_t unit) {
    sequence s;
    int64_t columns, here = 0;
    do {
        unit -= here;
        if (!next_sequence(a, &at, &s)) return;
        here = tiles_of(a, &s, &columns);
    } while (unit >= here);
    int64_t first = s.first + unit / a->kv * columns, left = s.first + s.count - first;
    attend_columns(a, &s, first, (int)(left < columns ? left : columns), (int)(unit % a->kv));
}

/* The sequences from number `begin` on. Most columns of its share a worker has to itself. The later
 * a column the more keys it sees: the last share is the most work, and where a worker helps with
 * another's the greatest pieces should be over. So a share is worked off from its end. */
static void run_tiles(const attention *a, int begin) {
    golem_worker *w = a->w;
    sequence s;
    int64_t columns, tiles = 0;
    for (int at = begin; next_sequence(a, &at, &s);) tiles += tiles_of(a, &s, &columns);
    int64_t rows = a->rows - w->pass->drawn_rows[a->r->extent];
    FOR_SHARES(turns, w, shares_of(w->pass, rows)) {
        int64_t from = tiles * turns.share / turns.shares;
        int64_t end = tiles * (turns.share + 1) / turns.shares;
        for (int64_t unit; (unit = end - 1 - golem_take(w)) >= from;) run_tile(a, begin, unit);
    }
}

static void run_attend(const golem_record *r, golem_worker *w) {
    attention a = attention_of(r, w);
    progress g = {.unit = take(w)};
    if (a.at) {
        run_picked(&a, &g);
        return;
    }
    int at = 0;
    if (r->i[9] && !a.rels) run_drawn(&a, &at, &g);
    run_tiles(&a, at);
}

static int64_t attend_scratch(int d, int dv, int share, int rels) {
    tile_scratch tile;
    drawn_scratch drawn;
    int64_t a = tile_layout(&tile, 0, d, dv, share, rels);
    int64_t b = drawn_layout(&drawn, 0, d, dv, share);
    return a > b ? a : b;
}

/* Bytes of a chunk's result. */
static int64_t attend_part_bytes(int dv, int share) { return result_floats(share, dv) * 4; }

#endif
