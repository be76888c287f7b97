/* unary, gate, add, mul, fma, clamp, softcap: one expression each over sixteen lanes. */
#ifndef GOLEM_ELEMENTWISE_H
#define GOLEM_ELEMENTWISE_H

#include "units.h"

#define ELEMENTWISE(NAME, EXPRESSION)                                                          \
    static void NAME(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {       \
        char *bx = base_of(&r->in[0], w), *by = base_of(&r->in[1], w);                         \
        char *bz = base_of(&r->in[2], w), *bo = base_of(&r->out[0], w);                        \
        FOR_UNITS(r, from, to, row, span) {                                                    \
            const float *px = unit_at(bx, &r->in[0], row, span);                               \
            const float *py = by ? unit_at(by, &r->in[1], row, span) : px;                     \
            const float *pz = bz ? unit_at(bz, &r->in[2], row, span) : px;                     \
            float *po = unit_at(bo, &r->out[0], row, span);                                    \
            (void)py, (void)pz;                                                                \
            FOR_LANES(i, r->width, count) {                                                    \
                vf x = vread(px + i, count);                                                   \
                vwrite(po + i, EXPRESSION, count);                                             \
            }                                                                                  \
        }                                                                                      \
    }

#define SECOND vread_step(py, i, count, r->in[1].step)
#define THIRD vread_step(pz, i, count, r->in[2].step)

static inline vf vclamp(vf x, float low, float high) {
    return vmin(vset(high), vmax(vset(low), x));
}

static inline vf vsoftcap(vf x, float cap) { return vmul(vset(cap), vtanh(vdiv(x, vset(cap)))); }

ELEMENTWISE(rows_unary, vunary(r->i[0], x))
ELEMENTWISE(rows_gate, vmul(vunary(r->i[0], x), SECOND))
ELEMENTWISE(rows_add, vadd(x, SECOND))
ELEMENTWISE(rows_mul, vmul(x, SECOND))
ELEMENTWISE(rows_fma, vadd(vmul(x, SECOND), THIRD))
ELEMENTWISE(rows_clamp, vclamp(x, r->f[0], r->f[1]))
ELEMENTWISE(rows_softcap, vsoftcap(x, r->f[0]))

#undef SECOND
#undef THIRD

#endif
