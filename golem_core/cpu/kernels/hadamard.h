/* hadamard: blocks of a row by a Hadamard matrix, in steps of 2 or of 4 whose strides grow.
 *
 * Only sums and one multiplication by 1 / sqrt(block) are made, element by element in one order, so
 * every instruction set gives the same bits. */
#ifndef GOLEM_HADAMARD_H
#define GOLEM_HADAMARD_H

#include "attend_tile.h"
#include "units.h"

enum { TURNED = LANES * LANES };   /* elements that are turned, so that small strides are vectors */

#define HINLINE static inline __attribute__((always_inline))

/* One step over pairs, or fours, whose elements lie `stride` apart. step is a constant. */
HINLINE void step_elements(float *x, int block, const int step, int stride) {
    for (int at = 0; at < block; at += step * stride)
        for (float *p = x + at; p < x + at + stride; p++) {
            float a = p[0], b = p[stride], ab = a + b, less = a - b;
            if (step == 2) {
                p[0] = ab, p[stride] = less;
                continue;
            }
            float c = p[2 * stride], d = p[3 * stride], cd = c + d, other = c - d;
            p[0] = ab + other, p[stride] = ab - other;
            p[2 * stride] = less + cd, p[3 * stride] = cd - less;
        }
}

/* The same of vectors; `lines` of them are a stride. */
HINLINE void step_vectors(vf *x, const int vectors, const int step, const int lines) {
    for (int at = 0; at < vectors; at += step * lines)
        for (vf *p = x + at; p < x + at + lines; p++) {
            vf a = p[0], b = p[lines], ab = vadd(a, b), less = vsub(a, b);
            if (step == 2) {
                p[0] = ab, p[lines] = less;
                continue;
            }
            vf c = p[2 * lines], d = p[3 * lines], cd = vadd(c, d), other = vsub(c, d);
            p[0] = vadd(ab, other), p[lines] = vsub(ab, other);
            p[2 * lines] = vadd(less, cd), p[3 * lines] = vsub(cd, less);
        }
}

/* All strides below 16 of sixteen vectors. */
HINLINE void step_sixteen(vf *x, const int step) {
    step_vectors(x, LANES, step, 1);
    if (step == 2) step_vectors(x, LANES, step, 2);
    step_vectors(x, LANES, step, 4);
    if (step == 2) step_vectors(x, LANES, step, 8);
}

HINLINE void rotate_block(float *x, int block, const int step) {
    if (block % TURNED) {
        for (int stride = 1; stride < block; stride *= step) step_elements(x, block, step, stride);
        return;
    }
    for (int at = 0; at < block; at += TURNED) {
        vf a[LANES], b[LANES];
        for (int i = 0; i < LANES; i++) a[i] = vload(x + at + i * LANES);
        turn16(a, b);
        step_sixteen(b, step);
        turn16(b, a);
        step_sixteen(a, step);
        for (int i = 0; i < LANES; i++) vstore(x + at + i * LANES, a[i]);
    }
    for (int stride = TURNED; stride < block; stride *= step)
        for (int at = 0; at < block; at += step * stride)
            for (int i = at; i < at + stride; i += LANES) {
                vf c[4];
                for (int k = 0; k < step; k++) c[k] = vload(x + i + k * stride);
                step_vectors(c, step, step, 1);
                for (int k = 0; k < step; k++) vstore(x + i + k * stride, c[k]);
            }
}

static void rotate_by_2(float *x, int block) { rotate_block(x, block, 2); }
static void rotate_by_4(float *x, int block) { rotate_block(x, block, 4); }

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
        for (int i = 0; i < r->width; i += block)
            (step == 2 ? rotate_by_2 : rotate_by_4)(y + i, block);
        if (signs && inverse)
            FOR_LANES(i, r->width, count)
                vwrite(y + i, vmul(vread(y + i, count), vread(signs + i, count)), count);
    }
}

#undef HINLINE
#endif
