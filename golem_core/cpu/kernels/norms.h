/* rms_norm, layer_norm, softmax, quantise: each unit goes through the first-level cache. */
#ifndef GOLEM_NORMS_H
#define GOLEM_NORMS_H

#include "units.h"

static double sum_of(const float *x, int width) {
    vd total = vd_zero();
    FOR_LANES(i, width, count) total = vd_add(total, vd_of(vread(x + i, count)));
    return vd_sum(total);
}

static double sum_of_squares(const float *x, int width) {
    vd total = vd_zero();
    FOR_LANES(i, width, count) {
        vd y = vd_of(vread(x + i, count));
        total = vd_add(total, vd_mul(y, y));
    }
    return vd_sum(total);
}

/* in: x, weight. f: eps, floor */
static void rows_rms_norm(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const float *weight = (const float *)base_of(&r->in[1], w);
    FOR_UNITS(r, from, to, row, span) {
        const float *x = unit_at(bx, &r->in[0], row, span);
        float *y = unit_at(bo, &r->out[0], row, span);
        double root = sqrt(sum_of_squares(x, r->width) / r->width + (double)r->f[0]);
        vf inverse = vset((float)(1.0 / (root < (double)r->f[1] ? (double)r->f[1] : root)));
        FOR_LANES(i, r->width, count) {
            vf v = vmul(vread(x + i, count), inverse);
            if (weight) v = vmul(v, vread(weight + i, count));
            vwrite(y + i, v, count);
        }
    }
}

/* in: x, weight, bias. f: eps. The mean is taken off in f32, what that left of it in f64. */
static void rows_layer_norm(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const float *weight = (const float *)base_of(&r->in[1], w);
    const float *bias = (const float *)base_of(&r->in[2], w);
    FOR_UNITS(r, from, to, row, span) {
        const float *x = unit_at(bx, &r->in[0], row, span);
        float *y = unit_at(bo, &r->out[0], row, span);
        vf mean = vset((float)(sum_of(x, r->width) / r->width));
        FOR_LANES(i, r->width, count) vwrite(y + i, vsub(vread(x + i, count), mean), count);
        double rest = sum_of(y, r->width) / r->width;
        double variance = sum_of_squares(y, r->width) / r->width - rest * rest;
        vf left = vset((float)rest);
        vf inverse = vset((float)(1.0 / sqrt(variance + (double)r->f[0])));
        FOR_LANES(i, r->width, count) {
            vf v = vmul(vsub(vread(y + i, count), left), inverse);
            if (weight) v = vmul(v, vread(weight + i, count));
            if (bias) v = vadd(v, vread(bias + i, count));
            vwrite(y + i, v, count);
        }
    }
}

static float largest(const float *x, int width) {
    vf most = vset(-INFINITY);
    int i = 0;
    for (; i + LANES <= width; i += LANES) most = vmax(most, vload(x + i));
    float top = vmax_lane(most);
    for (; i < width; i++) top = top < x[i] ? x[i] : top;
    return top;
}

static void softmax_of(const float *x, float *y, int width) {
    vf top = vset(largest(x, width)), total = vzero();
    FOR_LANES(i, width, count) {
        vwrite(y + i, vexp(vsub(vread(x + i, count), top)), count);
        total = vadd(total, vread(y + i, count));
    }
    vf sum = vset(vsum(total));
    FOR_LANES(i, width, count) vwrite(y + i, vdiv(vread(y + i, count), sum), count);
}

static void rows_softmax(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    FOR_UNITS(r, from, to, row, span)
        softmax_of(unit_at(bx, &r->in[0], row, span), unit_at(bo, &r->out[0], row, span), r->width);
}

/* Blocks of 32 whose rest waits on the stack. */
enum { QUANTISED_AT_ONCE = 8 };

/* A drawn row as two columns of codes: itself, and what rounding it left. Their products add up to
 * one with activations of about 15 bits. */
static void quantise_twice(const golem_linear_isa *linear, const float *x, int width,
                           golem_q8 *codes, int n) {
    float rest[QUANTISED_AT_ONCE * GOLEM_ACT_BLOCK];
    for (int i = 0; i < width; i += QUANTISED_AT_ONCE * GOLEM_ACT_BLOCK) {
        int left = width - i, piece = QUANTISED_AT_ONCE * GOLEM_ACT_BLOCK;
        if (left < piece) piece = left;
        linear->quantise_row(x + i, piece, codes, n);
        for (int j = 0; j < piece; j++) {
            const golem_q8 *block = codes + (int64_t)(j / GOLEM_ACT_BLOCK) * n;
            const int k = j % GOLEM_ACT_BLOCK;
            rest[j] = x[i + j] - block->d[k / 16] * (float)block->q[k];
        }
        linear->quantise_row(rest, piece, codes + 1, n);
        codes += (int64_t)QUANTISED_AT_ONCE * n;
    }
}

/* in: x (rows, width). out: golem_codes. i: planes of a row, 1 or 2; whether only prompt rows
 * are to be quantised */
static void rows_quantise(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    const golem_linear_isa *linear = w->pass->linear;
    char *bx = base_of(&r->in[0], w);
    golem_codes codes = codes_of(w, base_of(&r->out[0], w), w->pass->extents[r->extent],
                                 w->pass->drawn_rows[r->extent], r->i[0], r->width);
    for (int64_t row = from; row < to; row++) {
        const float *x = unit_at(bx, &r->in[0], row, 0);
        if (row < codes.drawn && r->i[1]) continue;
        if (row < codes.drawn && codes.planes == 2) {
            golem_code_column column = column_of(&codes, row);
            quantise_twice(linear, x, r->width, column.q, column.n);
        } else {
            quantise_column(w, &codes, row, x, r->width, 0);
        }
    }
}

#endif
