/* A sampler: the settings, history and generators of one answer, and the scratch memory that all
 * answers of a thread share. Python sees it through _sampler.pyx.
 *
 * V is the size of the vocabulary throughout. Arithmetic is float32 wherever llama-server's is,
 * in its order, so that a seed draws the same tokens. Ties go to the lower position, which is the
 * lower id until typical sampling has reordered the candidates.
 */
#ifndef GOLEM_SAMPLE_CHAIN_H
#define GOLEM_SAMPLE_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "constraint.h"
#include "rng.h"

/* Compiled for several instruction sets, of which the machine's best runs: what walks over all of a
 * row. Only comparisons: sums would come out differently. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

typedef struct {
    int32_t id;
    float logit;
    float p; /* of the last softmax */
} Candidate;

/* A logit before it was changed. */
typedef struct {
    int32_t id;
    float logit;
} Change;

/* Scratch memory of one draw. Candidates stay implicit (place i of `logits` is token i) until a
 * step needs them listed. */
typedef struct {
    int vocab;
    const float *logits; /* (V) current logits: the model's row, or `row` once one has changed */
    float *row;          /* (V) */
    float *allowed;      /* (V) the row without what a grammar refuses, or NULL until then */
    Candidate *list;     /* (V) candidates, the first `size` are alive */
    Candidate *spare;    /* (V) */
    int size;
    bool listed;
    bool sorted;      /* best first */
    bool unsorted_yet; /* the unlisted row is to be sorted, unless the next step takes its best */
    const float *scanned; /* (V) the row that `maxima` describe, or NULL */
    float *maxima;        /* (maxima_of(V)) the best of each group, see row.c */
    float *writable;      /* (V) the row, where few logits may be changed in it, or NULL */
    const float *peaks;   /* (maxima_of(V)) those of the model's row, NaN where it is not sound, or
                           * NULL */
    Change *changes;      /* (change_room) what was changed in `writable`, to be put back */
    int change_count, change_room;
    uint64_t *keys;   /* (V) sort keys */
    uint64_t *spare_keys; /* (V) */
    float *floats;        /* (V) exps */
    int32_t *repeats; /* (V) all 0 between draws: repeat that drawing a token would continue */
    int32_t *overlap; /* (overlap_room) DRY: match lengths at each distance */
    int overlap_room;
} Workspace;

/* Tokens that end a repetition for DRY. Token t heads the entries first[t] … first[t+1]-1; entry
 * e asks that the tokens after t be tails[start[e]] … tails[start[e+1]-1]. */
typedef struct {
    const int32_t *first; /* (V+1) */
    const int32_t *start; /* (entries+1) */
    const int32_t *tails;
} DryHeads;

typedef enum {
    STEP_PENALTIES,
    STEP_DRY,
    STEP_TOP_N_SIGMA,
    STEP_TOP_K,
    STEP_TYP_P,
    STEP_TOP_P,
    STEP_MIN_P,
    STEP_XTC,
    STEP_TEMPERATURE,
    STEP_ADAPTIVE_P,
} Step;

typedef struct {
    int vocab;
    int32_t *steps; /* (step_count) of Step, in the order they run */
    int step_count;
    int32_t *bias_ids; /* (bias_count) a token may come twice: biases add up */
    float *biases;
    int bias_count;

    float temperature, dynatemp_range, dynatemp_exponent;
    int top_k, min_keep;
    float top_p, min_p, typical_p, top_n_sigma;
    float xtc_probability, xtc_threshold;

    bool penalises;
    int penalty_last_n;
    float repeat_penalty, frequency_penalty, presence_penalty;
    bool dries;
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;
    DryHeads heads;
    int32_t *history; /* (history_size) accepted tokens, the prompt's first; kept for the two
                       * above */
    int history_size, history_room;
    int32_t *counts; /* (V) occurrences among the last penalty_last_n, or NULL */

    int mirostat; /* 0, 1 or 2 */
    float mirostat_tau, mirostat_eta, mirostat_mu;
    bool adaptive; /* adaptive_p takes the place of the plain draw */
    float adaptive_target, adaptive_decay, adaptive_sum, adaptive_weight;

    const Constraint *constraint; /* what the answer is held to, or NULL */
    double constraint_seconds;    /* spent in it, over all draws */
    int redrawn;                  /* tokens it refused, which were drawn again */

    bool greedy; /* the best logit wins whatever the filters do */
    Rng draw_rng, xtc_rng;

    int probs; /* best tokens to report with each draw, 0 = none */
    bool probs_after; /* of what the chain left, not of the raw logits */
    int32_t *probs_ids; /* (probs_size) */
    float *probs_values;
    int probs_size;
    float probs_drawn;
} Chain;

/* PICK_DEAD_END: nothing that the constraint allows can be drawn. Below PICK_GAVE_UP: the
 * constraint itself could not say, its own negative number is added. */
enum { PICK_NOT_FINITE = -1, PICK_NO_MEMORY = -2, PICK_DEAD_END = -3, PICK_GAVE_UP = -4 };

bool workspace_init(Workspace *w, int vocab);
void workspace_free(Workspace *w);

void chain_free(Chain *chain);

/* Draws a token from logits (V) and accepts it; or PICK_NOT_FINITE when one is NaN or +inf or all
 * are -inf, PICK_NO_MEMORY, PICK_DEAD_END, or below PICK_GAVE_UP. writable: `logits` again where it
 * may be changed meanwhile (it is as before when this returns), else NULL. peaks: of this row, or
 * NULL.
 *
 * A token that the constraint refuses is drawn again from the tokens it allows, through the whole
 * chain and with new random numbers, as llama-server does. */
int chain_pick(Chain *chain, Workspace *w, const float *logits, float *writable,
               const float *peaks);

/* Log-probabilities of raw logits (V): of `token`, and of the `n` best, best first, in ids and
 * values. False when the row is not sound. */
bool row_probs(Workspace *w, const float *logits, int token, int n, int32_t *ids, float *values,
               float *of_token);
/* Takes a token into the windows of the penalties and DRY. False when memory is out. */
bool chain_accept(Chain *chain, int32_t token);

/* order.c: sorting. Higher logits first, the lower position on ties. */
void list_all(Workspace *w);
void keep_best(Workspace *w, int k);
void sort_list(Workspace *w);
/* The k-th best of n floats, or -INFINITY when they are fewer. Uses the keys. */
float best_value(Workspace *w, const float *values, int n, int k);
/* The positions of the k best listed candidates in keys[0 … k-1] (low 32 bits), best first.
 * enough: a logit that k or more are known to reach, or -INFINITY. */
void best_positions(Workspace *w, int k, float enough);
void sort_keys(uint64_t *keys, uint64_t *spare, int n);
void logit_keys(Workspace *w); /* of the listed candidates, unsorted */
/* Cuts the keys of the list to the nearest ones that hold `share` of all p, give or take rounding,
 * and are at least `least`; sorts them and returns how many. w->floats: the distances (>= 0) of the
 * candidates, which rise with the keys; they may be equal where keys are not. */
int sort_share(Workspace *w, float share, int least);
/* The candidates of the first k keys become the list, in their order. */
void gather(Workspace *w, int k);
uint32_t ascending_bits(float x);

/* filters.c */
float *exps(Workspace *w); /* exp(logit - the best one) of all candidates, in their order */
void softmax(Workspace *w, bool sort);
void top_n_sigma(Workspace *w, float n);
void typical(Workspace *w, float p, int min_keep);
void top_p(Workspace *w, float p, int min_keep);
void min_p(Workspace *w, float p, int min_keep);
void xtc(Workspace *w, Chain *chain);
void temperature(Workspace *w, float t);
void dynamic_temperature(Workspace *w, float t, float range, float exponent);

/* history.c */
float *changeable(Workspace *w);
void change(Workspace *w, int id, float logit);
void put_back(Workspace *w);
void penalties(Workspace *w, Chain *chain);
bool dry(Workspace *w, Chain *chain);

/* draw.c: the position of the drawn candidate. */
int draw_plain(Workspace *w, Rng *rng, bool set_p);
int draw_mirostat(Workspace *w, Chain *chain);
int draw_adaptive(Workspace *w, Chain *chain);

/* row.c */
enum { ROW_STEP = 16 }; /* logits that row_above looks at together */
enum { LANES = 64, CHUNK = 32 * LANES }; /* maxima of a chunk, its logits */
int maxima_of(int vocab);
bool scan_row(Workspace *w, const float *row);
void repair_maxima(Workspace *w, int id, float before, float logit);
int row_best(Workspace *w, const float *row);
float row_threshold(Workspace *w, int k);
int row_above(const float *row, int from, int n, float threshold);

/* exp.c: y[i] = exp(x[i] - shift), where no x is more than 88 above the shift. */
void exp_row(const float *x, float shift, float *y, int n);

void report_raw(Chain *chain, Workspace *w, const float *logits, int token);
void report_left(Chain *chain, Workspace *w, int position);

#endif
