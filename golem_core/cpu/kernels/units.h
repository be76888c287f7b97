/* How a row kernel finds its operands: shared by the kernels below it. */
#ifndef GOLEM_UNITS_H
#define GOLEM_UNITS_H

#include "../record.h"
#include "functions.h"
#include "simd.h"

static inline char *base_of(const golem_operand *o, const golem_worker *w) {
    return o->slot == GOLEM_NONE ? 0 : golem_base(o, w);
}

static inline float *unit_at(char *base, const golem_operand *o, int64_t row, int64_t span) {
    return (float *)base + row * o->row + span * o->span;
}

/* Unit u is span `span` of row `row`. */
#define FOR_UNITS(record, from, to, row, span)                                     \
    for (int64_t u_ = (from), row = u_ / (record)->spans, span = u_ % (record)->spans; \
         u_ < (to); u_++, span + 1 < (record)->spans ? span++ : (span = 0, row++))

/* Columns of codes before those of a row: a drawn row has `planes`, a prompt's has one. */
static inline int64_t columns_before(int64_t row, int64_t drawn, int planes) {
    return row < drawn ? row * planes : row + drawn * (planes - 1);
}

/* Values of a drawn or prompt row as one column of codes. */
static inline void quantise_column(const golem_worker *w, int prompt, const float *x, int width,
                                   golem_q8 *codes, int n) {
    const golem_linear_isa *linear = w->pass->isa->linear;
    (prompt ? linear->quantise_prompt : linear->quantise_row)(x, width, codes, n);
}

/* Lanes of a second operand: its own elements, or one repeated. */
static inline vf vread_step(const float *p, int i, int count, int step) {
    return step ? vread(p + i, count) : vset(*p);
}

#endif
