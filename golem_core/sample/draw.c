/* The draw itself: plain, mirostat's two versions, or towards a target probability. */

#include <math.h>

#include "chain.h"

int draw_plain(Workspace *w, Rng *rng, bool set_p) {
    if (set_p) list_all(w);
    const int n = w->listed ? w->size : w->vocab;
    const float *p = exps(w);
    double sum = 0.0;
    for (int i = 0; i < n; i++) sum += p[i];
    double target = sum * rng_double(rng), run = 0.0; /* a single candidate takes numbers too */
    int drawn = 0;
    for (; drawn < n; drawn++) {
        run += p[drawn];
        if (run >= target && p[drawn] > 0.0f) break;
    }
    if (set_p)
        for (int i = 0; i < n; i++) w->list[i].p = sum > 0.0 ? (float)(p[i] / sum) : p[i];
    return drawn < n ? drawn : 0;
}

/* std::discrete_distribution over the p of the candidates: a single one takes no number. */
static int draw_discrete(Workspace *w, Rng *rng) {
    if (w->size < 2) return 0;
    double sum = 0.0, run = 0.0;
    for (int i = 0; i < w->size; i++) sum += w->list[i].p;
    double u = rng_double(rng);
    for (int i = 0; i < w->size - 1; i++) {
        run += w->list[i].p / sum;
        if (run >= u) return i;
    }
    return w->size - 1;
}

/* Mirostat 1 estimates the exponent of a Zipf law from this many of the best. */
enum { ZIPF = 100 };

static void cut_by_zipf(Workspace *w, const Chain *chain) {
    float products = 0.0f, squares = 0.0f;
    for (int i = 0; i < ZIPF - 1 && i < w->size - 1; i++) {
        float t = logf((float)(i + 2) / (float)(i + 1));
        float b = logf(w->list[i].p / w->list[i + 1].p);
        products += t * b;
        squares += t * t;
    }
    float s = products / squares;
    float above = s - 1.0f;
    float k = powf(above * powf(2.0f, chain->mirostat_mu) / (1.0f - powf(chain->vocab, -above)),
                   1.0f / s);
    /* Not a number, or past an int: one candidate, as the x86 conversion has it. */
    int keep = k >= 1.0f && k < 0x1p31f ? (int)k : 1;
    if (keep < w->size) w->size = keep;
}

static void cut_by_surprise(Workspace *w, const Chain *chain) {
    int keep = 0;
    while (keep < w->size && !(-log2f(w->list[keep].p) > chain->mirostat_mu)) keep++;
    w->size = keep > 0 ? keep : 1;
}

int draw_mirostat(Workspace *w, Chain *chain) {
    softmax(w, true);
    if (chain->mirostat == 1) {
        cut_by_zipf(w, chain);
    } else {
        cut_by_surprise(w, chain);
    }
    softmax(w, true);
    int drawn = draw_discrete(w, &chain->draw_rng);
    float surprise = -log2f(w->list[drawn].p);
    chain->mirostat_mu -= chain->mirostat_eta * (surprise - chain->mirostat_tau);
    return drawn;
}

static float between_0_and_1(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }

int draw_adaptive(Workspace *w, Chain *chain) {
    const float width = 0.3f, peak = 5.0f, sharpness = 10.0f;
    softmax(w, false);
    if (chain->adaptive_target < 0.0f) return draw_discrete(w, &chain->draw_rng);
    float target = between_0_and_1(chain->adaptive_target);
    if (chain->adaptive_weight != 0.0f)
        target = 2.0f * target - chain->adaptive_sum / chain->adaptive_weight;
    target = between_0_and_1(target);
    for (int i = 0; i < w->size; i++) {
        Candidate *c = &w->list[i];
        w->spare[i].p = c->p;
        if (c->logit == -INFINITY) continue;
        float distance = fabsf((c->p - target) * (1.0f / width));
        c->logit = peak - sharpness * distance * distance / (1.0f + distance);
    }
    w->sorted = false;
    softmax(w, false);
    int drawn = draw_discrete(w, &chain->draw_rng);
    chain->adaptive_sum = w->spare[drawn].p + chain->adaptive_decay * chain->adaptive_sum;
    chain->adaptive_weight = 1.0f + chain->adaptive_decay * chain->adaptive_weight;
    return drawn;
}
