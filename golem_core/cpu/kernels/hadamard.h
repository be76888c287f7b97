/* hadamard: blocks of a row by a Hadamard matrix, in steps of 2 or of 4 whose strides grow.
 *
 * Only sums and one multiplication by 1 / sqrt(block) are made, element by element in one order, so
 * every instruction set gives the same bits. */
#ifndef GOLEM_HADAMARD_H
#define GOLEM_HADAMARD_H

#include "attend_tile.h"
#include "units.h"

enum { TURNED = LANES * LANES };   /* elements that are turned, so that small strides are vectors */

/* One step of a block, element by element. */
static void step_elements(float *x, int block, int step, int stride) {
    for (int i = 0; i < block; i++) {
        if (i / stride % step) continue;
        float *p = x + i;
        if (step == 2) {
            float a = p[0], b = p[stride];
            p[0] = a + b, p[stride] = a - b;
        } else {
            float a = p[0], b = p[stride], c = p[2 * stride], d = p[3 * stride];
            float ab = a + b, cd = c + d, less = a - b, other = c - d;
            p[0] = ab + other, p[stride] = ab - other;
            p[2 * stride] = less + cd, p[3 * stride] = cd - less;
        }
    }
}

/* The same where the stride is `lines` vectors. x: block / LANES vectors. */
static inline void step_vectors(vf *x, int vectors, int step, int lines) {
    for (int i = 0; i < vectors; i++) {
        if (i / lines % step) continue;
        vf *p = x + i;
        if (step == 2) {
            vf a = p[0], b = p[lines];
            p[0] = vadd(a, b), p[lines] = vsub(a, b);
        } else {
            vf a = p[0], b = p[lines], c = p[2 * lines], d = p[3 * lines];
            vf ab = vadd(a, b), cd = vadd(c, d), less = vsub(a, b), other = vsub(c, d);
            p[0] = vadd(ab, other), p[lines] = vsub(ab, other);
            p[2 * lines] = vadd(less, cd), p[3 * lines] = vsub(cd, less);
        }
    }
}

static void rotate_block(float *x, int block, int step) {
    if (block % TURNED) {
        for (int stride = 1; stride < block; stride *= step) step_elements(x, block, step, stride);
        return;
    }
    vf a[LANES], b[LANES], c[4];
    for (int at = 0; at < block; at += TURNED) {
        for (int i = 0; i < LANES; i++) a[i] = vload(x + at + i * LANES);
        turn16(a, b);
        for (int lines = 1; lines < LANES; lines *= step) step_vectors(b, LANES, step, lines);
        turn16(b, a);
        for (int lines = 1; lines < LANES; lines *= step) step_vectors(a, LANES, step, lines);
        for (int i = 0; i < LANES; i++) vstore(x + at + i * LANES, a[i]);
    }
    for (int stride = TURNED; stride < block; stride *= step)
        for (int i = 0; i < block; i += LANES) {
            if (i / stride % step) continue;
            for (int k = 0; k < step; k++) c[k] = vload(x + i + k * stride);
            step_vectors(c, step, step, 1);
            for (int k = 0; k < step; k++) vstore(x + i + k * stride, c[k]);
        }
}

/* in: x, signs or none. i: block, step, inverse */
static void rows_hadamard(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const float *signs = (const float *)base_of(&r->in[1], w);
    int block = r->i[0], step = r->i[1], inverse = r->i[2];
    vf scale = vset((float)(1.0 / sqrt((double)block)));
    FOR_UNITS(r, from, to, row, span) {
        const float *x = unit_at(bx, &r->in[0], row, span);
        float *y = unit_at(bo, &r->out[0], row, span);
        FOR_LANES(i, r->width, count) {
            vf v = vmul(vread(x + i, count), scale);
            if (signs && !inverse) v = vmul(v, vread(signs + i, count));
            vwrite(y + i, v, count);
        }
        for (int i = 0; i < r->width; i += block) rotate_block(y + i, block, step);
        if (signs && inverse)
            FOR_LANES(i, r->width, count)
                vwrite(y + i, vmul(vread(y + i, count), vread(signs + i, count)), count);
    }
}

#endif
