/* Selections and sums over short axes: route, top_k, combine, reduce, pool. */
#ifndef GOLEM_CHOOSE_H
#define GOLEM_CHOOSE_H

#include "norms.h"
#include "units.h"

/* The k largest of x in descending order, ties to the lower index: an insertion into a short
 * sorted list, since nearly every element is below its last. NaN never wins over a number. */
static void largest_k(const float *x, int width, int k, float *value, int32_t *id) {
    int held = 0;
    for (int i = 0; i < width; i++) {
        float v = x[i] == x[i] ? x[i] : -INFINITY;
        if (held == k && !(v > value[k - 1])) continue;
        int at = held < k ? held++ : k - 1;
        for (; at > 0 && v > value[at - 1]; at--) {
            value[at] = value[at - 1];
            id[at] = id[at - 1];
        }
        value[at] = v;
        id[at] = i;
    }
    for (int j = 0; j < k; j++) value[j] = x[id[j]];
}

/* in: x. out: values, ids. i: k */
static void rows_top_k(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bv = base_of(&r->out[0], w), *bi = base_of(&r->out[1], w);
    for (int64_t row = from; row < to; row++)
        largest_k(unit_at(bx, &r->in[0], row, 0), r->width, r->i[0],
                  unit_at(bv, &r->out[0], row, 0), (int32_t *)unit_at(bi, &r->out[1], row, 0));
}

/* in: logits, expert_scale. out: experts i32, weights. i: k, normalise. f: scale. scratch: a row */
static void rows_route(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *be = base_of(&r->out[0], w), *bw = base_of(&r->out[1], w);
    const float *extra = (const float *)base_of(&r->in[1], w);
    float *p = (float *)w->scratch;
    int k = r->i[0];
    for (int64_t row = from; row < to; row++) {
        int32_t *expert = (int32_t *)unit_at(be, &r->out[0], row, 0);
        float *weight = unit_at(bw, &r->out[1], row, 0), total = 0;
        softmax_of(unit_at(bx, &r->in[0], row, 0), p, r->width);
        largest_k(p, r->width, k, weight, expert);
        for (int j = 0; j < k; j++) total += weight[j];
        total = total < 0x1p-14f ? 0x1p-14f : total;
        for (int j = 0; j < k; j++) {
            float v = r->i[1] ? weight[j] / total : weight[j];
            v *= r->f[0];
            weight[j] = extra ? v * extra[expert[j]] : v;
        }
    }
}

/* in: y (rows, k, width), weights (rows, k). i: k */
static void rows_combine(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *by = base_of(&r->in[0], w), *bw = base_of(&r->in[1], w), *bo = base_of(&r->out[0], w);
    for (int64_t row = from; row < to; row++) {
        const float *weight = unit_at(bw, &r->in[1], row, 0);
        float *out = unit_at(bo, &r->out[0], row, 0);
        FOR_LANES(i, r->width, count) {
            vf total = vmul(vset(weight[0]), vread(unit_at(by, &r->in[0], row, 0) + i, count));
            for (int j = 1; j < r->i[0]; j++) {
                vf y = vread(unit_at(by, &r->in[0], row, j) + i, count);
                total = vadd(total, vmul(vset(weight[j * r->in[1].step]), y));
            }
            vwrite(out + i, total, count);
        }
    }
}

/* in: x (rows, k, width), weights (k,). i: k, mean */
static void rows_reduce(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const float *weight = (const float *)base_of(&r->in[1], w);
    for (int64_t row = from; row < to; row++) {
        float *out = unit_at(bo, &r->out[0], row, 0);
        FOR_LANES(i, r->width, count) {
            vf total = vzero();
            for (int j = 0; j < r->i[0]; j++) {
                vf x = vread(unit_at(bx, &r->in[0], row, j) + i, count);
                total = vadd(total, weight ? vmul(x, vset(weight[j])) : x);
            }
            vwrite(out + i, r->i[1] ? vdiv(total, vset((float)r->i[0])) : total, count);
        }
    }
}

/* in: x (n, width), offsets (rows + 1,) i32. i: extent of n. The mean of each text's rows */
static void rows_pool(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const int32_t *offset = (const int32_t *)base_of(&r->in[1], w);
    int64_t there = w->pass->extents[r->i[0]];
    for (int64_t row = from; row < to; row++) {
        int64_t first = offset[row] < 0 ? 0 : offset[row];
        int64_t last = offset[row + 1] < there ? offset[row + 1] : there;
        float *out = unit_at(bo, &r->out[0], row, 0);
        vf size = vset((float)(last > first ? last - first : 1));
        FOR_LANES(i, r->width, count) {
            vf total = vzero();
            for (int64_t c = first; c < last; c++)
                total = vadd(total, vread(unit_at(bx, &r->in[0], c, 0) + i, count));
            vwrite(out + i, vdiv(total, size), count);
        }
    }
}

#endif
