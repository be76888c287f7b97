/* What is asked of a whole row of logits: is it sound, which is best, how likely are the best. */

#include <float.h>
#include <math.h>
#include <string.h>

#include "chain.h"

enum { LANES = 64 };  /* compared side by side */

/* False when a logit is NaN or +inf. (All -inf shows in the best one.) */
WIDE bool row_finite(const float *row, int n) {
    const uint32_t *bits = (const uint32_t *)row;
    uint32_t bad = 0;
    for (int i = 0; i < n; i++)
        bad |= (bits[i] & 0x7fffffffu) >= 0x7f800000u && bits[i] != 0xff800000u;
    return !bad;
}

/* The first of the best. Sound rows only. */
WIDE int row_best(const float *row, int n) {
    float lanes[LANES];
    for (int j = 0; j < LANES; j++) lanes[j] = -INFINITY;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] = row[i + j] > lanes[j] ? row[i + j] : lanes[j];
    float best = -INFINITY;
    for (int j = 0; j < LANES; j++) best = lanes[j] > best ? lanes[j] : best;
    for (; i < n; i++) best = row[i] > best ? row[i] : best;
    for (i = 0; i + LANES <= n; i += LANES) {
        int found = 0;
        for (int j = 0; j < LANES; j++) found |= row[i + j] == best;
        if (found) break;
    }
    while (row[i] != best) i++;
    return i;
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

static float best_probs(Workspace *w, const float *logits, int token, int n, int32_t *ids,
                        float *values) {
    w->logits = logits;
    w->listed = false;
    keep_best(w, n);
    float best = w->list[0].logit;
    double sum = 0.0; /* float32 would be off by 1e-4 over a vocabulary of 262144 */
    for (int i = 0; i < w->vocab; i++) sum += expf(logits[i] - best);
    for (int i = 0; i < n; i++) {
        ids[i] = w->list[i].id;
        values[i] = log_of((float)(expf(w->list[i].logit - best) / sum));
    }
    return log_of((float)(expf(logits[token] - best) / sum));
}

bool row_probs(Workspace *w, const float *logits, int token, int n, int32_t *ids, float *values,
               float *of_token) {
    if (!row_finite(logits, w->vocab) || isinf(logits[row_best(logits, w->vocab)])) return false;
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
