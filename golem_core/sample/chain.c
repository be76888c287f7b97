/* The chain: biases, the samplers in their order, the draw. */

#include "chain.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of so many logits one may be changed where it is: changing more costs what a copy does. */
enum { CHANGED_AT_MOST = 64 };

bool workspace_init(Workspace *w, int vocab) {
    *w = (Workspace){.vocab = vocab};
    w->row = calloc(vocab, sizeof *w->row);
    w->maxima = calloc(maxima_of(vocab) + 1, sizeof *w->maxima);
    w->list = calloc(vocab, sizeof *w->list);
    w->spare = calloc(vocab, sizeof *w->spare);
    w->keys = calloc(vocab, sizeof *w->keys);
    w->spare_keys = calloc(vocab, sizeof *w->spare_keys);
    w->floats = calloc(vocab, sizeof *w->floats);
    w->repeats = calloc(vocab, sizeof *w->repeats);
    w->change_room = vocab / CHANGED_AT_MOST + 1;
    w->changes = calloc(w->change_room, sizeof *w->changes);
    return w->changes && w->row && w->maxima && w->list && w->spare && w->keys &&
           w->spare_keys && w->floats && w->repeats;
}

void workspace_free(Workspace *w) {
    free(w->row);
    free(w->maxima);
    free(w->allowed);
    free(w->list);
    free(w->spare);
    free(w->keys);
    free(w->spare_keys);
    free(w->floats);
    free(w->repeats);
    free(w->overlap);
    free(w->changes);
}

void chain_free(Chain *chain) {
    free(chain->steps);
    free(chain->bias_ids);
    free(chain->biases);
    free(chain->history);
    free(chain->counts);
    free(chain->probs_ids);
    free(chain->probs_values);
}

static void add_biases(Workspace *w, const Chain *chain) {
    for (int i = 0; i < chain->bias_count; i++) {
        float logit = w->logits[chain->bias_ids[i]] + chain->biases[i];
        change(w, chain->bias_ids[i], logit > FLT_MAX ? FLT_MAX : logit);
    }
}

static bool step(Workspace *w, Chain *chain, Step which) {
    if (w->unsorted_yet && which != STEP_TOP_K) sort_list(w);
    switch (which) {
        case STEP_PENALTIES: penalties(w, chain); break;
        case STEP_DRY: return dry(w, chain);
        case STEP_TOP_N_SIGMA: top_n_sigma(w, chain->top_n_sigma); break;
        case STEP_TOP_K:
            if (chain->top_k > 0) keep_best(w, chain->top_k);
            break;
        case STEP_TYP_P: typical(w, chain->typical_p, chain->min_keep); break;
        case STEP_TOP_P: top_p(w, chain->top_p, chain->min_keep); break;
        case STEP_MIN_P: min_p(w, chain->min_p, chain->min_keep); break;
        case STEP_XTC: xtc(w, chain); break;
        case STEP_TEMPERATURE:
            if (chain->dynatemp_range > 0.0f && !chain->mirostat) {
                dynamic_temperature(w, chain->temperature, chain->dynatemp_range,
                                    chain->dynatemp_exponent);
            } else {
                temperature(w, chain->temperature);
            }
            break;
        case STEP_ADAPTIVE_P: break; /* it is the draw */
    }
    return true;
}

/* The position of the drawn candidate, or PICK_NO_MEMORY. */
static int run(Workspace *w, Chain *chain) {
    if (chain->mirostat) {
        step(w, chain, STEP_TEMPERATURE);
        return draw_mirostat(w, chain);
    }
    for (int i = 0; i < chain->step_count; i++)
        if (!step(w, chain, chain->steps[i])) return PICK_NO_MEMORY;
    if (w->unsorted_yet) sort_list(w);
    return chain->adaptive ? draw_adaptive(w, chain)
                           : draw_plain(w, &chain->draw_rng, chain->probs_after);
}

/* The best token after biases and penalties: what the chain ends in at temperature 0. */
static int best_token(Workspace *w, Chain *chain) {
    for (int i = 0; i < chain->step_count; i++)
        if (chain->steps[i] <= STEP_DRY && !step(w, chain, chain->steps[i])) return PICK_NO_MEMORY;
    return row_best(w, w->logits);
}

/* A token from the current logits, biases added; or PICK_NO_MEMORY. */
static int choose(Workspace *w, Chain *chain) {
    if (chain->greedy) return best_token(w, chain);
    int position = run(w, chain);
    if (position < 0) return position;
    if (chain->probs && chain->probs_after) report_left(chain, w, position);
    return w->listed ? w->list[position].id : position;
}

static void start(Workspace *w, const Chain *chain, const float *logits) {
    w->logits = logits;
    w->listed = w->unsorted_yet = false;
    add_biases(w, chain);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* A token that the constraint allows. */
static int choose_allowed(Workspace *w, Chain *chain, const float *logits) {
    if (!w->allowed) w->allowed = malloc(w->vocab * sizeof *w->allowed);
    if (!w->allowed) return PICK_NO_MEMORY;
    memcpy(w->allowed, logits, w->vocab * sizeof *logits);
    double began = seconds();
    int left = chain->constraint->narrow(chain->constraint->self, w->allowed, w->vocab);
    chain->constraint_seconds += seconds() - began;
    if (left <= 0) return left ? PICK_GAVE_UP + left : PICK_DEAD_END;
    w->scanned = NULL;
    w->writable = w->allowed;
    start(w, chain, w->allowed);
    bool left_over = w->logits[row_best(w, w->logits)] == -INFINITY;
    int token = left_over ? PICK_DEAD_END : choose(w, chain);
    put_back(w);
    return token;
}

int chain_pick(Chain *chain, Workspace *w, const float *logits, float *writable,
               const float *peaks) {
    w->writable = writable;
    w->peaks = peaks;
    bool sound = scan_row(w, logits);
    w->peaks = NULL; /* from here on `maxima` are kept up to date */
    if (!sound) return PICK_NOT_FINITE;
    const float sum = chain->adaptive_sum, weight = chain->adaptive_weight;
    start(w, chain, logits);
    int token = choose(w, chain);
    put_back(w);
    if (token < 0) return token;
    /* All of a row that is not banned is -inf: nothing was chosen, something was only left over. */
    if (logits[token] == -INFINITY && logits[row_best(w, logits)] == -INFINITY)
        return PICK_NOT_FINITE;
    const Constraint *constraint = chain->constraint;
    if (constraint) {
        double began = seconds();
        int allowed = constraint->allows(constraint->self, token);
        chain->constraint_seconds += seconds() - began;
        if (!allowed) {
            chain->redrawn++;
            chain->adaptive_sum = sum; /* only a token that is kept counts */
            chain->adaptive_weight = weight;
            token = choose_allowed(w, chain, logits);
            if (token < 0) return token;
        }
        began = seconds();
        int taken = allowed < 0 ? allowed : constraint->accept(constraint->self, token);
        chain->constraint_seconds += seconds() - began;
        if (taken <= 0) return taken ? PICK_GAVE_UP + taken : PICK_DEAD_END;
    }
    if (chain->probs && !chain->probs_after) report_raw(chain, w, logits, token);
    return chain_accept(chain, token) ? token : PICK_NO_MEMORY;
}
