/* peaks: the best logits of a row by groups, for whoever looks for the best of all. */
#ifndef GOLEM_PEAKS_H
#define GOLEM_PEAKS_H

#include "units.h"

/* As golem_core/graph/ops/elementwise.py has them. */
enum { PEAK_LANES = 64, PEAK_CHUNK = 32 * PEAK_LANES };

/* in: a chunk of logits a unit. Lane j of it, every 64th logit, has peak j. */
static void rows_peaks(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    FOR_UNITS(r, from, to, row, span) {
        const float *x = unit_at(bx, &r->in[0], row, span);
        float *y = unit_at(bo, &r->out[0], row, span), best[PEAK_LANES];
        int bad[PEAK_LANES] = {0};
        for (int j = 0; j < PEAK_LANES; j++) best[j] = -INFINITY;
        for (int i = 0; i < PEAK_CHUNK; i += PEAK_LANES)
            for (int j = 0; j < PEAK_LANES; j++) {
                best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
                bad[j] |= !(x[i + j] < INFINITY);
            }
        for (int j = 0; j < PEAK_LANES; j++) y[j] = bad[j] ? NAN : best[j];
    }
}

#endif
