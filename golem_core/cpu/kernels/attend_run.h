/* The attend record: its units, and who takes them. */
#ifndef GOLEM_ATTEND_RUN_H
#define GOLEM_ATTEND_RUN_H

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
        *s = (sequence){.first = offset[*at], .count = offset[*at + 1] - offset[*at]};
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

static void run_attend(const golem_record *r, golem_worker *w) {
    attention a = attention_of(r, w);
    sequence s;
    int64_t columns = tile_columns(a.share), before = 0;
    int64_t unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
    for (int at = 0; next_sequence(&a, &at, &s);) {
        int64_t units = (s.count + columns - 1) / columns * a.kv;
        while (unit < before + units) {
            int64_t tile = (unit - before) / a.kv, first = s.first + tile * columns;
            int64_t left = s.first + s.count - first;
            attend_tile(&a, &s, first, (int)(left < columns ? left : columns),
                        (int)((unit - before) % a.kv));
            unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
        }
        before += units;
    }
}

static int64_t attend_scratch(int d, int dv, int share, int rels) {
    tile_scratch t;
    return tile_layout(&t, 0, d, dv, share, rels);
}

#endif
