/* What is asked of a whole row of logits: is it sound, which is best, how likely are the best. */

#include <float.h>
#include <math.h>
#include <string.h>

#include "chain.h"

/* The whole chunks of a row are looked at once and remembered by the best of each group: lane j of
 * a chunk, every 64th logit, makes up group j of it. What is left of the row has no groups. */
int maxima_of(int vocab) { return vocab / CHUNK * LANES; }

/* Writes the maxima of the whole chunks. False when a logit is NaN or +inf. */
WIDE static bool scan(const float *row, int n, float *maxima) {
    int bad = 0;
    const float *end = row + n;
    for (; row + CHUNK <= end; row += CHUNK, maxima += LANES) {
        float best[LANES];
        for (int j = 0; j < LANES; j++) best[j] = -INFINITY;
        for (int i = 0; i < CHUNK; i++) bad |= !(row[i] < INFINITY);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int j = 0; j < LANES; j++) best[j] = row[i + j] > best[j] ? row[i + j] : best[j];
        memcpy(maxima, best, sizeof best);
    }
    for (; row < end; row++) bad |= !(*row < INFINITY);
    return !bad;
}

/* False when a number is NaN or +inf. */
WIDE static bool sound(const float *x, int n) {
    int bad = 0;
    for (int i = 0; i < n; i++) bad |= !(x[i] < INFINITY);
    return !bad;
}

/* False when a logit of the row (V) is NaN or +inf. (All -inf shows in the best one.) */
bool scan_row(Workspace *w, const float *row) {
    w->scanned = row;
    if (!w->peaks) return scan(row, w->vocab, w->maxima);
    int groups = maxima_of(w->vocab), rest = groups / LANES * CHUNK;
    memcpy(w->maxima, w->peaks, groups * sizeof *w->maxima);
    return sound(w->maxima, groups) && sound(row + rest, w->vocab - rest);
}

/* After a logit of the writable row was changed. */
void repair_maxima(Workspace *w, int id, float before, float logit) {
    const float *row = w->writable;
    int group = id / CHUNK * LANES + id % LANES;
    if (w->scanned != row || group >= maxima_of(w->vocab)) return;
    float *best = &w->maxima[group];
    if (logit >= *best) {
        *best = logit;
    } else if (before == *best) {
        row += id / CHUNK * CHUNK + id % LANES;
        *best = -INFINITY;
        for (int i = 0; i < CHUNK; i += LANES)
            if (row[i] > *best) *best = row[i];
    }
}

/* The first of the best of a row (V). Sound rows only. */
int row_best(Workspace *w, const float *row) {
    if (w->scanned != row) scan_row(w, row);
    int groups = maxima_of(w->vocab), at = 0;
    float best = -INFINITY;
    for (int g = 0; g < groups; g++) {
        if (!(w->maxima[g] > best)) continue;
        best = w->maxima[g];
        at = g / LANES * CHUNK;
    }
    for (int i = groups / LANES * CHUNK; i < w->vocab; i++) {
        if (!(row[i] > best)) continue;
        best = row[i];
        at = i;
    }
    while (at < w->vocab - 1 && row[at] != best) at++;
    return at;
}

/* A logit that k or more of the current row reach: the k-th best of the maxima. At most k - 1
 * groups hold better ones, so few more than k come out, whatever order the row is in. */
float row_threshold(Workspace *w, int k) {
    if (w->scanned != w->logits) scan_row(w, w->logits);
    return best_value(w, w->maxima, maxima_of(w->vocab), k);
}

/* Where the next ROW_STEP logits start of which one is above the threshold, looking from `from` on
 * in such steps; past n - ROW_STEP where there are none. */
WIDE int row_above(const float *row, int from, int n, float threshold) {
    for (; from + ROW_STEP <= n; from += ROW_STEP) {
        int above = 0;
        for (int j = 0; j < ROW_STEP; j++) above |= row[from + j] > threshold;
        if (above) break;
    }
    return from;
}

static float log_of(float p) { return p > 0.0f ? logf(p) : -FLT_MAX; }

/* In float64: float32 would be off by 1e-4 over a vocabulary of 262144. Eight sums side by side. */
static double sum_of(const float *p, int n) {
    double sums[8] = {0.0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sums[j] += p[i + j];
    for (; i < n; i++) sums[0] += p[i];
    for (int j = 1; j < 8; j++) sums[0] += sums[j];
    return sums[0];
}

static float best_probs(Workspace *w, const float *logits, int token, int n, int32_t *ids,
                        float *values) {
    w->logits = logits;
    w->listed = false;
    keep_best(w, n);
    float best = w->list[0].logit;
    float *p = w->floats;
    exp_row(logits, best, p, w->vocab);
    double sum = sum_of(p, w->vocab);
    for (int i = 0; i < n; i++) {
        ids[i] = w->list[i].id;
        values[i] = log_of((float)(p[ids[i]] / sum));
    }
    return log_of((float)(p[token] / sum));
}

bool row_probs(Workspace *w, const float *logits, int token, int n, int32_t *ids, float *values,
               float *of_token) {
    if (!scan_row(w, logits) || isinf(logits[row_best(w, logits)])) return false;
    *of_token = best_probs(w, logits, token, n, ids, values);
    return true;
}

/* Log-probabilities of the raw logits (V): the best ones and the drawn token's. */
void report_raw(Chain *chain, Workspace *w, const float *logits, int token) {
    int n = chain->probs < w->vocab ? chain->probs : w->vocab;
    chain->probs_size = n;
    chain->probs_drawn =
        best_probs(w, logits, token, n, chain->probs_ids, chain->probs_values);
}

/* Probabilities of what the chain left: the best ones and the drawn candidate's. */
void report_left(Chain *chain, Workspace *w, int position) {
    chain->probs_drawn = w->list[position].p;
    for (int i = 0; i < w->size; i++)
        w->keys[i] = (uint64_t)~ascending_bits(w->list[i].p) << 32 | (uint32_t)i;
    sort_keys(w->keys, w->spare_keys, w->size);
    chain->probs_size = 0;
    for (int i = 0; i < w->size && i < chain->probs; i++) {
        const Candidate *c = &w->list[(uint32_t)w->keys[i]];
        if (c->p <= 0.0f) break;
        chain->probs_ids[i] = c->id;
        chain->probs_values[i] = c->p;
        chain->probs_size++;
    }
}
