/* Walks the records of a pass: every worker runs this loop over all of them. */
#include "kernels/shares.h"

#include <time.h>

enum { BLOCK_UNITS = 16 };   /* units of a chain's block at most: its locals stay in L1 */

typedef struct {
    const golem_record *records;
    int count;
    golem_pass *pass;
    char *scratch;
    int64_t scratch_bytes, local_bytes;
    int from;                /* the first record to run */
    double until;            /* when to stop, 0: never */
    atomic_int stopped_at;   /* record before which worker 0 saw that it is time, or -1 */
    atomic_int paused;       /* the record after one whose units were left for later, or -1 */
} walk;

static void run_block(const golem_record *head, golem_worker *w, int64_t from, int64_t to) {
    w->first = from;
    for (int i = 0; i < head->chain; i++)
        w->pass->isa->rows[head[i].kind](&head[i], w, from, to);
}

/* One block of a chain after the other. */
static void run_chain(const golem_record *head, golem_worker *w) {
    int64_t rows = w->pass->extents[head->extent], drawn = w->pass->drawn_rows[head->extent];
    int64_t block = rows * head->spans / (4 * w->pass->threads);
    if (block > BLOCK_UNITS) block = BLOCK_UNITS;
    if (block < 1) block = 1;
    FOR_SHARES(turns, w, shares_of(w->pass, rows - drawn)) {
        int64_t from = share_start(w->pass, rows, drawn, turns.share) * head->spans;
        int64_t end = share_start(w->pass, rows, drawn, turns.share + 1) * head->spans;
        for (;;) {
            int64_t at = from + golem_take(w) * block;
            if (at >= end) break;
            run_block(head, w, at, at + block < end ? at + block : end);
        }
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether the pass is to stop here: it was cancelled, or its time is over. */
static int time_to_stop(const walk *all) {
    const golem_pass *pass = all->pass;
    return (pass->cancel && atomic_load(pass->cancel)) || (all->until > 0 && now() > all->until);
}

int golem_pauses(golem_worker *w) {
    walk *all = w->walk;
    if (!time_to_stop(all)) return 0;
    atomic_store(&all->paused, w->record + 1);
    return 1;
}

static int replicates(const golem_pass *pass, const golem_record *record) {
    return record->flags & GOLEM_REPLICA && pass->extents[record->extent] <= GOLEM_REPLICATED;
}

/* Whether nothing in this pass is the record's work. */
static int is_skipped(const golem_pass *pass, const golem_record *record) {
    return record->flags & GOLEM_PROMPTS
        && pass->extents[record->extent] == pass->drawn_rows[record->extent];
}

/* Whether all workers meet before the record. */
static int meets(const golem_pass *pass, const golem_record *record) {
    return record->flags & GOLEM_BARRIER
        && !(replicates(pass, record) && record->flags & GOLEM_UNLESS_REPLICA);
}

/* Whether workers may leave record i before all of its units are taken: where they meet right after
 * it, so that nobody has begun what comes next. A pass goes on from there with the units taken so
 * far still counted; the first record's are counted anew with every run, so it has no such
 * place. */
static int may_pause(const walk *all, int i) {
    const golem_record *next = &all->records[i + 1];
    return i > 0 && i + 1 < all->count && !is_skipped(all->pass, next) && meets(all->pass, next);
}

static int reads_weights(const golem_record *r) {
    return r->kind == GOLEM_LINEAR || r->kind == GOLEM_EXPERTS;
}

/* The first product after record i whose weights are known before: chosen experts' are not. */
static const golem_record *product_after(const walk *all, int i) {
    while (++i < all->count) {
        const golem_record *r = &all->records[i];
        if (reads_weights(r) && !is_skipped(all->pass, r))
            return r->kind == GOLEM_LINEAR ? r : NULL;
    }
    return NULL;
}

static void walk_records(walk *all, golem_worker *w) {
    golem_pass *pass = all->pass;
    const int worker = w->worker, may_stop = pass->cancel || all->until > 0;
    for (int i = all->from; i < all->count;) {
        const golem_record *record = &all->records[i];
        int started = i;
        double before = pass->profile && !worker ? now() : 0;
        int64_t rows = pass->extents[record->extent];
        int replicated = replicates(pass, record);
        if (is_skipped(pass, record)) {
            i += record->chain;
            continue;
        }
        w->replica = replicated ? worker : 0;
        if (meets(pass, record)) {
            if (worker == 0 && i > all->from && may_stop && time_to_stop(all))
                atomic_store(&all->stopped_at, i);
            golem_pool_barrier(pass->pool, worker, w->ahead);
            if (may_stop && (atomic_load(&all->stopped_at) == i || atomic_load(&all->paused) == i))
                return;
        }
        w->next = pass->next + (int64_t)i * 16;
        if (record->chain) {
            w->pauses = 0;
            if (!replicated) run_chain(record, w);
            else if (rows) run_block(record, w, 0, rows);
            i += record->chain;
        } else {
            w->record = i;
            w->pauses = may_stop && may_pause(all, i);
            w->begins = !w->pauses && i != all->from;
            if (reads_weights(record)) {
                w->following = product_after(all, i);
                w->ahead = (golem_stretch){0};
            }
            w->taken = 0;
            pass->isa->run[record->kind](record, w);
            i++;
        }
        if (pass->profile && !worker) pass->profile[started] += now() - before;
    }
}

static void run_worker(void *context, int worker) {
    walk *all = context;
    char *mine = all->scratch + all->scratch_bytes * worker;
    golem_worker w = {.pass = all->pass, .worker = worker, .locals = mine,
                      .scratch = mine + all->local_bytes, .walk = all};
    walk_records(all, &w);
    atomic_fetch_add_explicit(&all->pass->weight_bytes, w.read, memory_order_relaxed);
}

int golem_run(const golem_record *records, int count, int from, double until, golem_pass *pass,
              char *scratch, int64_t scratch_bytes, int64_t local_bytes) {
    walk all = {records, count, pass, scratch, scratch_bytes, local_bytes, from, until, -1, -1};
    for (int i = from ? from + 1 : 0; i < count; i++)
        for (int share = 0; share <= GOLEM_SHARES; share++)
            atomic_store_explicit(pass->next + (int64_t)i * 16 + share, 0, memory_order_relaxed);
    golem_pool_run(pass->pool, run_worker, &all);
    int paused = atomic_load(&all.paused);
    return paused < 0 ? atomic_load(&all.stopped_at) : paused - 1;
}
