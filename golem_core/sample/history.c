/* What was said before: repetition penalties and DRY ("don't repeat yourself"). Both look at the
 * last accepted tokens, the prompt's included, and touch few logits. */

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"

/* A logit stays below +inf whatever a request adds to it, or softmax would have no answer. */
static float held_in(float logit) {
    if (logit != logit) return -INFINITY;
    return logit > FLT_MAX ? FLT_MAX : logit;
}

/* The row's own copy, made when many logits are about to change. Unlisted rows only. */
float *changeable(Workspace *w) {
    w->scanned = NULL;
    if (w->logits != w->row) {
        memcpy(w->row, w->logits, w->vocab * sizeof *w->row);
        w->logits = w->row;
    }
    return w->row;
}

/* Sets one of few logits: in the model's own row where that is allowed, because a copy of a large
 * vocabulary's, and looking for its best ones anew, costs more than all else. */
void change(Workspace *w, int id, float logit) {
    if (w->logits != w->writable || w->change_count == w->change_room) {
        changeable(w)[id] = logit;
        return;
    }
    float before = w->writable[id];
    w->changes[w->change_count++] = (Change){id, before};
    w->writable[id] = logit;
    repair_maxima(w, id, before, logit);
}

/* Makes the model's row what it was. */
void put_back(Workspace *w) {
    while (w->change_count) {
        Change was = w->changes[--w->change_count];
        float now = w->writable[was.id];
        w->writable[was.id] = was.logit;
        repair_maxima(w, was.id, now, was.logit);
    }
}

bool chain_accept(Chain *chain, int32_t token) {
    if (!chain->penalises && !chain->dries) return true;
    if (chain->history_size == chain->history_room) {
        int room = chain->history_room * 2 + 256;
        int32_t *grown = realloc(chain->history, room * sizeof *grown);
        if (!grown) return false;
        chain->history = grown;
        chain->history_room = room;
    }
    chain->history[chain->history_size++] = token;
    if (!chain->penalises) return true;
    chain->counts[token]++;
    int left = chain->history_size - chain->penalty_last_n - 1;
    if (left >= 0) chain->counts[chain->history[left]]--;
    return true;
}

static float penalised(const Chain *chain, float logit, int count) {
    float repeat = chain->repeat_penalty;
    logit = logit <= 0.0f ? logit * repeat : logit / repeat;
    return held_in(logit - (count * chain->frequency_penalty + chain->presence_penalty));
}

void penalties(Workspace *w, Chain *chain) {
    if (!chain->penalises) return;
    int32_t *counts = chain->counts;
    if (w->listed) {
        for (int i = 0; i < w->size; i++) {
            Candidate *c = &w->list[i];
            if (counts[c->id]) c->logit = penalised(chain, c->logit, counts[c->id]);
        }
        w->sorted = false;
        return;
    }
    int end = chain->history_size;
    int start = end > chain->penalty_last_n ? end - chain->penalty_last_n : 0;
    for (int i = start; i < end; i++) { /* a negative count marks a token that was done */
        int32_t id = chain->history[i];
        if (counts[id] <= 0) continue;
        change(w, id, penalised(chain, w->logits[id], counts[id]));
        counts[id] = -counts[id];
    }
    for (int i = start; i < end; i++) counts[chain->history[i]] = abs(counts[chain->history[i]]);
}

/* Tokens back to where the newest breaker ended: no repeat may reach past it. `newest` points at
 * the last token, n tokens may be read backwards. */
static int repeat_limit(const DryHeads *heads, const int32_t *newest, int n) {
    for (int back = 0; back < n; back++) {
        int longest = -1;
        int32_t token = newest[-back];
        for (int e = heads->first[token]; e < heads->first[token + 1]; e++) {
            int length = heads->start[e + 1] - heads->start[e];
            const int32_t *tail = heads->tails + heads->start[e];
            if (length <= longest || length > back) continue;
            if (memcmp(tail, newest - back + 1, length * sizeof *tail) == 0) longest = length;
        }
        if (longest >= 0) return back - longest;
    }
    return n;
}

/* overlap[d], d = 1 … n-1: how many tokens before and at d back equal the newest ones (the Z
 * algorithm over the reversed text). */
static void overlaps(const int32_t *newest, int n, int32_t *overlap) {
    int left = 0, right = 0; /* the box [left, right) that reaches furthest back */
    for (int d = 1; d < n; d++) {
        int length = 0;
        if (d < right) length = overlap[d - left] < right - d ? overlap[d - left] : right - d;
        if (d + length >= right) {
            while (d + length < n && newest[-length] == newest[-(d + length)]) length++;
            left = d;
            right = d + length;
        }
        overlap[d] = length;
    }
}

static bool ends_repeats(const DryHeads *heads, int32_t token) {
    for (int e = heads->first[token]; e < heads->first[token + 1]; e++)
        if (heads->start[e] == heads->start[e + 1]) return true;
    return false;
}

bool dry(Workspace *w, Chain *chain) {
    int allowed = chain->dry_allowed_length;
    int n = chain->history_size < chain->dry_last_n ? chain->history_size : chain->dry_last_n;
    if (!chain->dries || n <= allowed) return true;
    const int32_t *newest = chain->history + chain->history_size - 1;
    int limit = repeat_limit(&chain->heads, newest, n);
    if (limit < allowed) return true;
    if (w->overlap_room < n) {
        int32_t *grown = realloc(w->overlap, n * sizeof *grown);
        if (!grown) return false;
        w->overlap = grown;
        w->overlap_room = n;
    }
    overlaps(newest, n, w->overlap);

    int longest = 0; /* exponents are bound where base^exponent would leave float32 */
    if (chain->dry_base > 1.000001f) longest = (int)(88.7228391f / logf(chain->dry_base));
    /* Repeats are stored one too high, so that 0 means "none". */
    for (int d = 1; d < n; d++) {
        int length = w->overlap[d] < limit ? w->overlap[d] : limit;
        int32_t next = newest[1 - d];
        if (length >= allowed && length + 1 > w->repeats[next]) w->repeats[next] = length + 1;
    }
    for (int i = 0; w->listed ? i < w->size : i < n - 1; i++) {
        int32_t id = w->listed ? w->list[i].id : newest[-i];
        if (!w->repeats[id]) continue;
        float logit = w->listed ? w->list[i].logit : w->logits[id];
        int exponent = w->repeats[id] - 1 - allowed;
        if (!w->listed) w->repeats[id] = 0;
        if (ends_repeats(&chain->heads, id)) continue;
        if (longest > 0 && exponent > longest) exponent = longest;
        float penalty = (float)(chain->dry_multiplier * pow(chain->dry_base, exponent));
        logit = held_in(logit - penalty);
        if (w->listed) w->list[i].logit = logit;
        else change(w, id, logit);
    }
    for (int d = 1; d < n; d++) w->repeats[newest[1 - d]] = 0;
    if (w->listed) w->sorted = false;
    return true;
}
