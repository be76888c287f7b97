/* The samplers between the penalties and the draw. Each leaves the candidates it keeps at the
 * front of the list. */

#include <float.h>
#include <math.h>
#include <string.h>

#include "chain.h"

static float best_logit(const Workspace *w) {
    float best = w->list[0].logit;
    if (!w->sorted)
        for (int i = 1; i < w->size; i++)
            if (w->list[i].logit > best) best = w->list[i].logit;
    return best;
}

float *exps(Workspace *w) {
    float best = w->listed ? best_logit(w) : w->logits[row_best(w, w->logits)];
    if (best == -INFINITY) best = 0.0f; /* everything is banned: all become 0 */
    if (!w->listed) {
        exp_row(w->logits, best, w->floats, w->vocab);
        return w->floats;
    }
    for (int i = 0; i < w->size; i++) w->floats[i] = w->list[i].logit;
    exp_row(w->floats, best, w->floats, w->size);
    return w->floats;
}

void softmax(Workspace *w, bool sort) {
    if (sort) sort_list(w);
    list_all(w);
    const float *p = exps(w);
    float sum = 0.0f;
    for (int i = 0; i < w->size; i++) sum += p[i];
    if (sum == 0.0f) sum = 1.0f;
    for (int i = 0; i < w->size; i++) w->list[i].p = p[i] / sum;
}

/* n standard deviations below the best of the logits that are not banned. */
static float sigma_floor(const float *logits, int size, float n) {
    float best = logits[0], sum = 0.0f, squares = 0.0f;
    int finite = 0;
    for (int i = 0; i < size; i++) {
        float logit = logits[i];
        if (logit == -INFINITY) continue;
        if (logit > best) best = logit;
        sum += logit;
        finite++;
    }
    float mean = finite ? sum / finite : 0.0f;
    for (int i = 0; i < size; i++) {
        double off = logits[i] - mean;
        if (logits[i] != -INFINITY) squares = (float)(squares + off * off);
    }
    return best - n * (finite ? sqrtf(squares / finite) : 0.0f);
}

void top_n_sigma(Workspace *w, float n) {
    if (n <= 0.0f || (w->listed ? w->size : w->vocab) <= 1) return;
    if (!w->listed) {
        float lowest = sigma_floor(w->logits, w->vocab, n), *row = changeable(w);
        for (int i = 0; i < w->vocab; i++) row[i] = row[i] < lowest ? -INFINITY : row[i];
        w->unsorted_yet = true;
        return;
    }
    for (int i = 0; i < w->size; i++) w->floats[i] = w->list[i].logit;
    float lowest = sigma_floor(w->floats, w->size, n);
    for (int i = 0; i < w->size; i++)
        if (w->list[i].logit < lowest) w->list[i].logit = -INFINITY;
    sort_list(w);
}

/* Puts the candidates in order of their distances, lower positions first among equals. */
static void distance_keys(Workspace *w) {
    for (int i = 0; i < w->size; i++)
        w->keys[i] = (uint64_t)ascending_bits(w->floats[i]) << 32 | (uint32_t)i;
}

/* How many of the first `n` keys it takes until their p sum up to more than p; 0 when more. */
static int typical_set(const Workspace *w, int n, float p, int min_keep) {
    float sum = 0.0f;
    for (int kept = 1; kept <= n; kept++) {
        sum += w->list[(uint32_t)w->keys[kept - 1]].p;
        if (sum > p && (min_keep == 0 || kept >= min_keep)) return kept;
    }
    return 0;
}

void typical(Workspace *w, float p, int min_keep) {
    if (p >= 1.0f) return;
    softmax(w, true);
    float entropy = 0.0f;
    for (int i = 0; i < w->size; i++) {
        float q = w->list[i].p;
        w->floats[i] = q > 0.0f ? -logf(q) : INFINITY;
        if (q > 0.0f) entropy += q * w->floats[i];
    }
    for (int i = 0; i < w->size; i++) w->floats[i] = fabsf(w->floats[i] - entropy);
    distance_keys(w);
    int kept = typical_set(w, sort_share(w, p, min_keep), p, min_keep);
    if (!kept) { /* rounded sums: rarely */
        distance_keys(w);
        sort_keys(w->keys, w->spare_keys, w->size);
        kept = typical_set(w, w->size, p, min_keep);
    }
    gather(w, kept ? kept : w->size);
    w->sorted = false;
}

/* How many of the best make up p; 0 when the first `n` do not. They are in order in the list, or
 * by position in the keys. */
static int nucleus(const Workspace *w, int n, float p, int min_keep) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        sum += w->list[w->sorted ? (uint32_t)i : (uint32_t)w->keys[i]].p;
        if (sum >= p && i + 1 >= min_keep) return i + 1;
    }
    return 0;
}

/* What top_p tries first, and from which size on it tries anything but sorting all. */
enum { FEW = 256, LARGE = 4 * FEW };

void top_p(Workspace *w, float p, int min_keep) {
    if (p >= 1.0f) return;
    float enough = w->listed ? -INFINITY : row_threshold(w, FEW);
    softmax(w, false);
    if (!w->sorted && w->size > LARGE) {
        best_positions(w, FEW, enough);
        int kept = nucleus(w, FEW, p, min_keep);
        if (!kept) {
            float best = best_logit(w);
            for (int i = 0; i < w->size; i++) w->floats[i] = best - w->list[i].logit;
            logit_keys(w);
            kept = nucleus(w, sort_share(w, p, min_keep), p, min_keep);
        }
        if (kept) {
            gather(w, kept);
            return;
        }
    }
    sort_list(w);
    int kept = nucleus(w, w->size, p, min_keep);
    if (kept) w->size = kept;
}

void min_p(Workspace *w, float p, int min_keep) {
    if (p <= 0.0f) return;
    list_all(w);
    float lowest = fmaxf(best_logit(w), -FLT_MAX) + logf(p);
    if (!w->sorted) {
        int enough = 0, kept = 0;
        for (int i = 0; i < w->size; i++) enough += w->list[i].logit >= lowest;
        if (enough && enough >= min_keep) {
            for (int i = 0; i < w->size; i++)
                if (w->list[i].logit >= lowest) w->list[kept++] = w->list[i];
            w->size = kept;
            return;
        }
        sort_list(w);
    }
    int kept = 1;
    while (kept < w->size && (w->list[kept].logit >= lowest || kept < min_keep)) kept++;
    w->size = kept;
}

void xtc(Workspace *w, Chain *chain) {
    if (chain->xtc_probability <= 0.0f || chain->xtc_threshold > 0.5f) return;
    list_all(w);
    if (w->size < 2 || rng_float(&chain->xtc_rng) > chain->xtc_probability) return;
    softmax(w, true);
    int last = 0;
    for (int i = 0; i < w->size && w->list[i].p >= chain->xtc_threshold; i++) last = i;
    if (last == 0 || w->size - last < chain->min_keep) return;
    w->size -= last;
    memmove(w->list, w->list + last, w->size * sizeof *w->list);
}

/* All but the first of the best candidates lose their chance; they stay in the list. */
static void only_best(Workspace *w) {
    int best = 0;
    for (int i = 1; i < w->size; i++)
        if (w->list[i].logit > w->list[best].logit) best = i;
    for (int i = 0; i < w->size; i++)
        if (i != best) w->list[i].logit = -INFINITY;
}

void temperature(Workspace *w, float t) {
    float best = w->listed ? best_logit(w) : w->logits[row_best(w, w->logits)];
    /* A temperature so low that logits overflow is no temperature. */
    if (t <= 0.0f || fabsf(best) / t > FLT_MAX) {
        list_all(w);
        only_best(w);
        return;
    }
    if (t == 1.0f) return;
    if (!w->listed) {
        float *row = changeable(w);
        for (int i = 0; i < w->vocab; i++) row[i] /= t;
        return;
    }
    for (int i = 0; i < w->size; i++) w->list[i].logit /= t;
}

void dynamic_temperature(Workspace *w, float t, float range, float exponent) {
    list_all(w);
    if (w->size <= 1) return;
    float low = fmaxf(0.0f, t - range), high = t + range;
    float most = -logf(1.0f / w->size);
    softmax(w, true);
    float entropy = 0.0f;
    for (int i = 0; i < w->size; i++)
        if (w->list[i].p > 0.0f) entropy -= w->list[i].p * logf(w->list[i].p);
    temperature(w, low + (high - low) * powf(entropy / most, exponent));
}
