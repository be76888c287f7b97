/* linear: products of repacked matrices with the columns of a pass, and what follows in the store.
 *
 * A unit is a chunk of groups of one segment. Its weights are read from memory once, for the first
 * block of columns, and from cache for the others. A sum over a row is never split between units,
 * so a result's bits depend on nothing but its row and its column. */
#ifndef GOLEM_PRODUCTS_H
#define GOLEM_PRODUCTS_H

#include "elementwise.h"
#include "units.h"

enum { COLUMNS = 16 };      /* columns a kernel call takes */
enum { STAGED = 64 };       /* groups of a chunk at most, where its results are quantised */

static inline vf scaled(const golem_matrix *m, vf x, int row, int count) {
    if (m->scales) x = vmul(x, m->scales == 1 ? vset(m->scale[0]) : vread(m->scale + row, count));
    return m->bias ? vadd(x, vread(m->bias + row, count)) : x;
}

static inline vf finished(const golem_segment *s, const golem_worker *w, char *const *operand,
                          vf x, int64_t column, int row, int count) {
    (void)w;
    for (int i = 0; i < s->finishes; i++) {
        const golem_finish *f = &s->finish[i];
        vf y = vzero();
        if (operand[i]) {
            const float *p = (const float *)operand[i] + column * f->operand.row;
            y = vread_step(p + row * f->operand.step, 0, count, f->operand.step);
        }
        switch (f->kind) {
        case GOLEM_ADD: x = vadd(x, y); break;
        case GOLEM_MUL: x = vmul(x, y); break;
        case GOLEM_UNARY: x = vunary(f->unary, x); break;
        case GOLEM_CLAMP: x = vclamp(x, f->a, f->b); break;
        default: x = vsoftcap(x, f->a);
        }
    }
    return x;
}

/* The results of one group, raw (columns, 16) -> rows row .. of columns first .. at out. */
static void finish_group(const golem_segment *s, const golem_worker *w, char *const *operand,
                         const float *a, const float *b, int row, int64_t first, int columns,
                         float *out, int64_t stride) {
    int count = s->out - row < LANES ? s->out - row : LANES;
    for (int c = 0; c < columns; c++) {
        vf x = scaled(&s->a, vload(a + c * LANES), row, count);
        if (s->b.groups)
            x = vmul(vunary(s->gate, x), scaled(&s->b, vload(b + c * LANES), row, count));
        x = finished(s, w, operand, x, first + c, row, count);
        vwrite(out + c * stride, x, count);
    }
}

/* Groups from .. to of a segment over all columns of act. expert selects the matrices; pairs lists
 * the rows results go to (NULL: the columns themselves). */
static void multiply(const golem_segment *s, golem_worker *w, const golem_act *act, int columns,
                     int from, int to, int64_t expert, const int32_t *pairs) {
    const golem_isa *isa = w->pass->isa;
    float a[COLUMNS * LANES], b[COLUMNS * LANES];
    char *operand[GOLEM_FINISHES], *store = base_of(&s->store, w);
    golem_q8 *codes = s->quantised >= 0 ? (golem_q8 *)w->pass->base[s->quantised] : NULL;
    float *stage = (float *)w->scratch;
    int width = (to - from) * LANES;
    const uint8_t *ga = s->a.groups + expert * s->a.expert_bytes;
    const uint8_t *gb = s->b.groups + expert * s->b.expert_bytes;
    for (int i = 0; i < s->finishes; i++) operand[i] = base_of(&s->finish[i].operand, w);
    for (int first = 0; first < columns; first += COLUMNS) {
        int count = columns - first < COLUMNS ? columns - first : COLUMNS;
        for (int g = from; g < to; g++) {
            isa->linear->dot[s->a.type](ga + g * s->a.group_bytes, s->in, act, first, count, a);
            if (s->b.groups)
                isa->linear->dot[s->b.type](gb + g * s->b.group_bytes, s->in, act, first, count, b);
            if (codes)
                finish_group(s, w, operand, a, b, g * LANES, first, count,
                             stage + (g - from) * LANES, width);
            else if (pairs)
                for (int c = 0; c < count; c++)
                    finish_group(s, w, operand, a + c * LANES, b + c * LANES, g * LANES,
                                 pairs[first + c], 1,
                                 (float *)store + pairs[first + c] * s->store.row + g * LANES, 0);
            else
                finish_group(s, w, operand, a, b, g * LANES, first, count,
                             (float *)store + first * s->store.row + g * LANES, s->store.row);
        }
        if (!codes) continue;
        for (int c = 0; c < count; c++) {
            const float *line = stage + (int64_t)c * width;
            isa->linear->quantise_row(line, width,
                                      codes + (int64_t)from / 2 * act->n + first + c, act->n);
            if (store)
                memcpy((float *)store + (first + c) * s->store.row + from * LANES, line,
                       (size_t)width * 4);
        }
    }
}

static inline golem_act act_of(const golem_record *r, const golem_worker *w, int n) {
    return (golem_act){.x = (const float *)base_of(&r->in[0], w), .x_stride = r->in[0].row,
                       .q = (const golem_q8 *)base_of(&r->in[1], w), .n = n};
}

/* in: x (rows, in) f32, the same as (in / 32, rows) golem_q8; segments read one or the other */
static void run_linear(const golem_record *r, golem_worker *w) {
    int columns = (int)w->pass->extents[r->extent];
    golem_act act = act_of(r, w, columns);
    if (columns == 0) return;
    for (;;) {
        int unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
        if (unit >= r->units) return;
        const golem_segment *s = r->segment + r->segments - 1;
        while (s->first_unit > unit) s--;
        int from = (unit - s->first_unit) * s->chunk;
        int to = from + s->chunk < s->groups ? from + s->chunk : s->groups;
        multiply(s, w, &act, columns, from, to, 0, NULL);
    }
}

#endif
