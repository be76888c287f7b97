/* Which worker takes which rows of a pass first.
 *
 * What a core has written lies in its own cache, and fetching it from there takes another core
 * several times as long. So prompt rows are cut into shares, the same of all records of a pass, and
 * a worker takes the units of one share first, then what others have left of theirs. Where there
 * are more workers than shares, several have the same one: each share reads a matrix from memory
 * again.
 *
 * Shares end where blocks of columns do, which are as even as can be. */
#ifndef GOLEM_SHARES_H
#define GOLEM_SHARES_H

#include "../record.h"

enum { SHARE_LEAST = 48 };   /* prompt rows of a share at least, about */

static inline int shares_of(const golem_pass *p, int64_t prompts) {
    int64_t most = prompts / SHARE_LEAST;
    int shares = p->threads < GOLEM_SHARES ? p->threads : GOLEM_SHARES;
    if (most < shares) shares = (int)most;
    return shares < 1 ? 1 : shares;
}

/* Prompt columns whose codes lie side by side: what a call of a prompt kernel takes. Tiles are
 * of 16. */
static inline int block_columns(const golem_pass *p, int64_t prompts) {
    int shares = shares_of(p, prompts), tile = golem_prompt_records(p->linear) > 1 ? 16 : 1;
    int most = GOLEM_PROMPT_COLUMNS / tile * tile;
    int64_t blocks = (prompts + most - 1) / most;
    blocks = (blocks + shares - 1) / shares * shares;
    return blocks ? (int)((prompts + blocks * tile - 1) / (blocks * tile)) * tile : 1;
}

/* The first row of a share; drawn rows, which come before all others, are the first one's. */
static inline int64_t share_start(const golem_pass *p, int64_t rows, int64_t drawn, int share) {
    int shares = shares_of(p, rows - drawn), width = block_columns(p, rows - drawn);
    int64_t blocks = (rows - drawn + width - 1) / width;
    if (share <= 0) return 0;
    return share < shares ? drawn + width * (blocks * share / shares) : rows;
}

/* A worker's way through the shares of a record. */
typedef struct {
    golem_worker *w;
    atomic_int *counters;   /* of the record; those of shares come after its own */
    int share, shares, left;
} share_turns;

static inline void turn_to(share_turns *t) { t->w->next = t->counters + 1 + t->share; }

static inline share_turns first_share(golem_worker *w, int shares) {
    share_turns t = {w, w->next, w->worker * shares / w->pass->threads, shares, shares};
    turn_to(&t);
    return t;
}

/* The last turn found nothing left: it does not count as work done before a pass pauses. */
static inline void next_share(share_turns *t) {
    t->w->taken--;
    t->share = (t->share + 1) % t->shares;
    if (--t->left) turn_to(t);
    else t->w->next = t->counters;
}

/* Runs what follows for every share, beginning with the worker's own. */
#define FOR_SHARES(turns, worker, shares)                                                         \
    for (share_turns turns = first_share(worker, shares); turns.left; next_share(&turns))

#endif
