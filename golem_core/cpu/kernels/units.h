/* How a row kernel finds its operands: shared by the kernels below it. */
#ifndef GOLEM_UNITS_H
#define GOLEM_UNITS_H

#include "../record.h"
#include "functions.h"
#include "shares.h"
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

/* The codes of a record's rows, of which the first `drawn` are drawn and have `planes` columns
 * each: (blocks of 32, drawn · planes) records, then those of the prompt rows, `columns` of them
 * after the other: (blocks, columns) records, at last (blocks, rows that are left). Where a prompt
 * column has several records, `wide`, these lie side by side; but where they are `precise`, as
 * quantise_precise writes them, behind the first ones of all columns. */
typedef struct {
    golem_q8 *q;
    int64_t rows, drawn;
    int planes, blocks, precise, wide, columns;
} golem_codes;

static inline golem_codes codes_of(const golem_worker *w, void *q, int64_t rows, int64_t drawn,
                                   int planes, int width) {
    const golem_linear_isa *linear = w->pass->linear;
    int precise = planes == 2 && linear->quantise_precise;
    int wide = precise ? 2 : golem_prompt_records(linear);
    return (golem_codes){q, rows, drawn, planes, width / 32, precise, wide,
                         block_columns(w->pass, rows - drawn)};
}

/* Where a row's records are: q[b * n]. */
typedef struct {
    golem_q8 *q;
    int n;
} golem_code_column;

static inline golem_code_column column_of(const golem_codes *c, int64_t row) {
    if (row < c->drawn)
        return (golem_code_column){c->q + row * c->planes, (int)c->drawn * c->planes};
    int64_t at = (row - c->drawn) % c->columns, first = row - at, left = c->rows - first;
    int n = (int)(left < c->columns ? left : c->columns) * c->wide;
    int64_t before = c->drawn * c->planes + (first - c->drawn) * c->wide;
    return (golem_code_column){c->q + before * c->blocks + at * (c->precise ? 1 : c->wide), n};
}

/* Values of a row, from its block `from` on, as one column of codes. */
static inline void quantise_column(const golem_worker *w, const golem_codes *c, int64_t row,
                                   const float *x, int width, int from) {
    const golem_linear_isa *linear = w->pass->linear;
    golem_code_column to = column_of(c, row);
    void (*quantise)(const float *, int, golem_q8 *, int) =
        row < c->drawn ? linear->quantise_row
        : c->precise   ? linear->quantise_precise
                       : linear->quantise_prompt;
    quantise(x, width, to.q + (int64_t)from * to.n, to.n);
}

/* Lanes of a second operand: its own elements, or one repeated. */
static inline vf vread_step(const float *p, int i, int count, int step) {
    return step ? vread(p + i, count) : vset(*p);
}

#endif
