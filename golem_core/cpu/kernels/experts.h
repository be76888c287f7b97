/* linear_by_expert: every chosen expert's rows are read once, for all the columns that chose it.
 *
 * The other way, column by column, reads an expert again for each of its columns, from the cache at
 * best. It is never the better one: on Zen 5 a chunk taken once for 2, 3, 4 and 8 columns needs
 * 0.70 to 0.75, 0.59 to 0.65, 0.50 to 0.56 and 0.37 to 0.44 of the time of taking it once for each
 * (Q4_0, Q4_K, Q8_0, Q6_K, MXFP4; with AVX2 0.62 to 0.78; python -m benchmarks.experts). So there
 * is nothing to choose. With one column both are the same, and its codes are not gathered.
 *
 * Each worker sorts the pass's (column, choice) pairs by expert for itself; the sort is short and
 * the same for all. A unit is a chunk of one chosen expert's groups. */
#ifndef GOLEM_EXPERTS_H
#define GOLEM_EXPERTS_H

#include "linear_run.h"

/* A row's column of codes becomes number c of n side by side. */
static void gather_codes(const golem_codes *codes, int64_t row, golem_q8 *to, int c, int n) {
    golem_code_column from = column_of(codes, row);
    int wide = row < codes->drawn ? 1 : codes->wide;
    for (int b = 0; b < codes->blocks; b++)
        for (int i = 0; i < wide; i++)
            to[((int64_t)b * n + c) * wide + i] = from.q[(int64_t)b * from.n + i];
}

/* The weights of a unit, counted from those of expert e on; NULL where no expert is left that has
 * columns, start[e] .. start[e + 1] - 1. */
static const uint8_t *expert_weights(const golem_segment *s, const int32_t *start, int experts,
                                     int e, int unit, int chunks, int chunk) {
    for (; e < experts; e++) {
        if (start[e + 1] == start[e]) continue;
        if (unit < chunks)
            return s->a.groups + e * s->a.expert_bytes + unit * chunk * s->a.group_bytes;
        unit -= chunks;
    }
    return NULL;
}

/* in: x (rows of `spread` columns each), its codes, experts (rows, k) i32.
 * i: k, experts, 1 where every pair has its own column of x, 0 where a row's pairs share one.
 * scratch: experts + 1 and rows * k ints, then COLUMNS gathered columns of codes (those of floats
 * are read where they lie), then what multiply needs */
static void run_experts(const golem_record *r, golem_worker *w) {
    const golem_segment *s = r->segment;
    int rows = (int)w->pass->extents[r->extent], k = r->i[0], experts = r->i[1];
    int pairs = rows * k, columns = r->i[2] ? pairs : rows;
    const int32_t *chosen = (const int32_t *)base_of(&r->in[2], w);
    int32_t *start = (int32_t *)w->scratch, *order = start + experts + 1;
    char *gathered = w->scratch + ((size_t)(experts + 1 + (int64_t)r->i[3] * k) * 4 + 63) / 64 * 64;
    golem_act act = act_of(r, w);
    int64_t drawn_rows = w->pass->drawn_rows[r->extent];
    int64_t drawn = drawn_rows * k;   /* pairs; an expert's come in order */
    golem_codes codes = codes_of(w, (void *)act.q, columns, r->i[2] ? drawn : drawn_rows, 1, s->in);

    memset(start, 0, (size_t)(experts + 1) * 4);
    for (int p = 0; p < pairs; p++) {
        int32_t e = chosen[(int64_t)(p / k) * r->in[2].row + (int64_t)(p % k) * r->in[2].step];
        if (e >= 0 && e < experts) start[e + 1]++;
    }
    for (int e = 0; e < experts; e++) start[e + 1] += start[e];
    for (int p = 0; p < pairs; p++) {
        int32_t e = chosen[(int64_t)(p / k) * r->in[2].row + (int64_t)(p % k) * r->in[2].step];
        if (e >= 0 && e < experts) order[start[e]++] = p;
    }
    for (int e = experts; e > 0; e--) start[e] = start[e - 1];
    start[0] = 0;

    char *scratch = w->scratch;
    w->scratch = gathered + r->i[4];
    int chunk = pairs > drawn && s->quantised >= 0 ? GOLEM_PROMPT_BLOCK / LANES : s->chunk;
    int chunks = (s->groups + chunk - 1) / chunk, seen = 0;
    int next = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
    for (int e = 0; e < experts; e++) {
        if (start[e + 1] == start[e]) continue;
        while (next < (seen + 1) * chunks) {
            int from = (next - seen * chunks) * chunk;
            int to = from + chunk < s->groups ? from + chunk : s->groups;
            next = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
            w->then = expert_weights(s, start, experts, e, next - seen * chunks, chunks, chunk);
            if (!w->then && w->following) {
                w->ahead = begin_linear(w->following, w);
                w->then = w->ahead.from;
            }
            for (int first = start[e], count; first < start[e + 1]; first += count) {
                int is_drawn = order[first] < drawn, left = start[e + 1] - first;
                int32_t column[COLUMNS];
                golem_act part = {.x = act.x, .x_stride = act.x_stride, .rows = column,
                                  .q = (const golem_q8 *)gathered};
                for (count = 0; count < left && count < COLUMNS; count++)
                    if ((order[first + count] < drawn) != is_drawn) break;
                for (int c = 0; c < count; c++) {
                    column[c] = r->i[2] ? order[first + c] : order[first + c] / k;
                    if (act.q && count > 1)
                        gather_codes(&codes, column[c], (golem_q8 *)gathered, c, count);
                }
                part.n = is_drawn ? count : count * codes.wide;
                if (act.q && count == 1) {   /* read where it lies */
                    golem_code_column only = column_of(&codes, column[0]);
                    part.q = only.q, part.n = only.n;
                }
                multiply(s, w, &part, 1, count, is_drawn ? count : 0, 0, count, from, to, e,
                         order + first, pairs, drawn);
            }
        }
        seen++;
    }
    w->then = NULL;
    w->scratch = scratch;
}

#endif
