/* Rows of tables and of activations: rows, overlay, pick, copy. */
#ifndef GOLEM_TABLES_H
#define GOLEM_TABLES_H

#include "units.h"

/* in: ids (rows, k) i32, weights (rows, k). data: k tables. i: k. f: scale. scratch: a row. An id
 * outside of its table, which no checked input holds, reads as zeros. */
static void rows_rows(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bi = base_of(&r->in[0], w), *bw = base_of(&r->in[1], w), *bo = base_of(&r->out[0], w);
    const golem_table *table = r->data[0];
    float *line = (float *)w->scratch;
    int k = r->i[0];
    for (int64_t row = from; row < to; row++) {
        const int32_t *id = (const int32_t *)unit_at(bi, &r->in[0], row, 0);
        float *y = unit_at(bo, &r->out[0], row, 0);
        for (int j = 0; j < k; j++) {
            const golem_table *t = &table[j];
            int64_t at = id[j * r->in[0].step];
            float *to_here = j ? line : y;
            if (at < 0 || at >= t->count) memset(to_here, 0, (size_t)r->width * 4);
            else golem_types[t->type].dequant_row(t->rows + at * t->row_bytes, r->width, to_here);
            vf by = vset(bw ? unit_at(bw, &r->in[1], row, 0)[j * r->in[1].step] : 1.0f);
            FOR_LANES(i, r->width, count) {
                vf v = vmul(by, vread(to_here + i, count));
                vwrite(y + i, j ? vadd(vread(y + i, count), v) : v, count);
            }
        }
        FOR_LANES(i, r->width, count)
            vwrite(y + i, vmul(vread(y + i, count), vset(r->f[0])), count);
    }
}

/* in: x, embeddings (e, width), place (rows,) i32. i: extent of e */
static void rows_overlay(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *be = base_of(&r->in[1], w), *bp = base_of(&r->in[2], w);
    char *bo = base_of(&r->out[0], w);
    int64_t media = w->pass->extents[r->i[0]];
    FOR_UNITS(r, from, to, row, span) {
        int64_t at = *(const int32_t *)unit_at(bp, &r->in[2], row, 0);
        const float *x = at >= 0 && at < media ? unit_at(be, &r->in[1], at, span)
                                               : unit_at(bx, &r->in[0], row, span);
        memcpy(unit_at(bo, &r->out[0], row, span), x, (size_t)r->width * 4);
    }
}

/* in: x, at (rows,) i32. i: extent of x's rows */
static void rows_pick(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *ba = base_of(&r->in[1], w), *bo = base_of(&r->out[0], w);
    int64_t there = w->pass->extents[r->i[0]];
    FOR_UNITS(r, from, to, row, span) {
        int64_t at = *(const int32_t *)unit_at(ba, &r->in[1], row, 0);
        float *y = unit_at(bo, &r->out[0], row, span);
        if (at < 0 || at >= there) memset(y, 0, (size_t)r->width * 4);
        else memcpy(y, unit_at(bx, &r->in[0], at, span), (size_t)r->width * 4);
    }
}

/* Rows of three inner axes. i: extents [0..2], strides of in [3..5] and of out [6..8] */
static void rows_copy(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const int32_t *size = r->i, *in = r->i + 3, *out = r->i + 6;
    for (int64_t row = from; row < to; row++) {
        const uint32_t *x = (const uint32_t *)unit_at(bx, &r->in[0], row, 0);
        uint32_t *y = (uint32_t *)unit_at(bo, &r->out[0], row, 0);
        for (int a = 0; a < size[0]; a++)
            for (int b = 0; b < size[1]; b++) {
                const uint32_t *p = x + (int64_t)a * in[0] + (int64_t)b * in[1];
                uint32_t *q = y + (int64_t)a * out[0] + (int64_t)b * out[1];
                if (in[2] == 1 && out[2] == 1) memcpy(q, p, (size_t)size[2] * 4);
                else
                    for (int c = 0; c < size[2]; c++)
                        q[(int64_t)c * out[2]] = p[(int64_t)c * in[2]];
            }
    }
}

#endif
