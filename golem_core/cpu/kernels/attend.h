/* attend: which keys a column sees, where they lie, and how its work is shared out.
 *
 * Columns of the prompt role go through attend_tile.h, many columns of one sequence at once;
 * drawn ones through attend_drawn.h, each by itself and long contexts in chunks. Key blocks and
 * chunks lie at absolute indices, so a column's bits do not depend on who shares its pass. */
#ifndef GOLEM_ATTEND_H
#define GOLEM_ATTEND_H

#include "elementwise.h"
#include "ring.h"
#include "units.h"

enum { KEYS = GOLEM_PLACES };   /* keys of a block */
enum { CHUNK = 512 };      /* keys of a drawn column's chunk */

/* The parameters of one attend record. */
typedef struct {
    const golem_record *r;
    golem_worker *w;
    int heads, kv, share;         /* query heads, key heads, query heads of a key head */
    int d, dv;
    int back, ahead, step;        /* back < 0: all; ahead < 0: to the end */
    int rels;                     /* rows of rel, 0 without */
    float scale, cap;
    const float *rel;             /* (rels, heads, d) */
    const int32_t *until;
    const int32_t *at;            /* the column each row is of; NULL where all columns have rows */
    char *q, *k, *v, *out;        /* k and v: rows of this pass, where there is no ring */
    golem_codes codes;            /* of the results, or none */
    int64_t rows;
} attention;

/* Columns that attend to each other: rows first .. first + count - 1 with indices index ..; their
 * keys are base .. last. */
typedef struct {
    int64_t first, count, index, base, last;
    int slot;                     /* of the ring */
} sequence;

/* in: q, k, v, until, offsets, at. data: rel. f: scale, cap (0: none).
 * i: heads, key heads, d, dv, back, ahead, step, group (0: none), rels, has ring, extent of
 * offsets, GOLEM_TOGETHER and GOLEM_ROUNDED */
static attention attention_of(const golem_record *r, golem_worker *w) {
    attention a = {
        .r = r, .w = w, .heads = r->i[0], .kv = r->i[1], .share = r->i[0] / r->i[1], .d = r->i[2],
        .dv = r->i[3], .back = r->i[4], .ahead = r->i[5], .step = r->i[6], .rels = r->i[8],
        .scale = r->f[0], .cap = r->f[1], .rel = r->data[0],
        .until = (const int32_t *)base_of(&r->in[3], w),
        .at = (const int32_t *)base_of(&r->in[5], w), .q = base_of(&r->in[0], w),
        .k = base_of(&r->in[1], w), .v = base_of(&r->in[2], w), .out = base_of(&r->out[0], w),
        .rows = w->pass->extents[r->extent],
    };
    a.codes = codes_of(w, base_of(&r->out[1], w), a.rows, w->pass->drawn_rows[r->extent], 1,
                       a.heads * a.dv);
    return a;
}

static sequence sequence_of_run(const attention *a, const int32_t *run) {
    int64_t rate = a->r->ring.rate, capacity = a->r->ring.capacity;
    sequence s = {.first = run[1] * rate, .count = run[2] * rate, .index = run[3] * rate,
                  .slot = run[0]};
    s.last = s.index + s.count - 1;
    s.base = s.last + 1 > capacity ? s.last + 1 - capacity : 0;
    return s;
}

/* The sequence of one row whose query was picked: that of its column's run, with this row alone. */
static sequence sequence_of_picked(const attention *a, int64_t row) {
    const golem_pass *p = a->w->pass;
    int64_t rate = a->r->ring.rate, column = a->at[row] / rate;
    sequence s = sequence_of_run(a, p->runs + 5 * (int64_t)p->run[column]);
    s.first = row;
    s.count = 1;
    s.index = p->index[column] * rate + a->at[row] % rate;
    return s;
}

/* First and last key that row `row` of the sequence sees; first > last: none. */
static inline void interval(const attention *a, const sequence *s, int64_t row, int64_t *low,
                            int64_t *high) {
    int64_t i = s->index + row - s->first;
    *low = a->back < 0 ? 0 : (i / a->step + 1) * a->step - 1 - a->back;
    *high = a->until ? a->until[row] : a->ahead < 0 ? s->last : i + a->ahead;
    if (*low < s->base) *low = s->base;
    if (*high > s->last) *high = s->last;
}

/* One head's result: acc / total, stored, and a drawn column's quantised where a product reads
 * it. */
static inline void store_head(const attention *a, float *acc, float total, int64_t row, int head) {
    vf by = vset(total > 0 ? 1.0f / total : total == total ? 0.0f : total);
    for (int i = 0; i < a->dv; i += LANES) vstore(acc + i, vmul(vload(acc + i), by));
    if (a->r->ring.turn_v) ring_turn(acc, a->dv, a->r->ring.turn_v);
    if (a->out) {
        float *y = unit_at(a->out, &a->r->out[0], row, head);
        FOR_LANES(i, a->dv, count) vwrite(y + i, vload(acc + i), count);
    }
    if (a->codes.q && row < a->codes.drawn)
        quantise_column(a->w, &a->codes, row, acc, a->dv, head * (a->dv / 32));
}

static inline int padded(int width) { return (width + LANES - 1) / LANES * LANES; }

#endif
