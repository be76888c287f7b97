#define _GNU_SOURCE
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A word that threads wait to change: spin first, then sleep. */
typedef struct {
    _Alignas(64) atomic_uint value;
    atomic_uint sleepers;
} gate;

struct golem_pool {
    gate start;    /* generation of the work; changes when there is some */
    gate met;      /* generation of the barrier */
    gate done;     /* generation of finished work, for the caller */
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int working;
    int threads, spin, owner, stop;
    void (*work)(void *, int);
    void *context;
    pthread_t *ids;
};

typedef struct {
    golem_pool *pool;
    int worker;
} seat;

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_open(gate *g) {
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void gate_wait(gate *g, unsigned seen, int spin) {
    for (int i = 0; i < spin; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != seen) return;
        relax();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->value) == seen)
        syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void *serve(void *argument) {
    seat mine = *(seat *)argument;
    golem_pool *pool = mine.pool;
    free(argument);
    for (unsigned seen = 0;; seen++) {
        gate_wait(&pool->start, seen, pool->spin);
        if (pool->stop) return NULL;
        pool->work(pool->context, mine.worker);
        if (atomic_fetch_sub(&pool->working, 1) == 1) gate_open(&pool->done);
    }
}

golem_pool *golem_pool_new(int threads, int spin) {
    golem_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (!pool) return NULL;
    *pool = (golem_pool){.threads = 1, .spin = spin, .owner = (int)getpid()};
    pool->ids = calloc((size_t)threads, sizeof *pool->ids);
    for (int i = 1; pool->ids && i < threads; i++) {
        seat *argument = malloc(sizeof *argument);
        if (argument) *argument = (seat){pool, i};
        if (!argument || pthread_create(&pool->ids[i], NULL, serve, argument)) {
            free(argument);
            golem_pool_free(pool);
            return NULL;
        }
        pool->threads++;
    }
    if (!pool->ids) {
        free(pool);
        return NULL;
    }
    return pool;
}

void golem_pool_run(golem_pool *pool, void (*work)(void *, int), void *context) {
    unsigned finished = atomic_load(&pool->done.value);
    pool->work = work;
    pool->context = context;
    if (pool->threads > 1) {
        atomic_store(&pool->working, pool->threads - 1);
        gate_open(&pool->start);
    }
    work(context, 0);
    if (pool->threads > 1) gate_wait(&pool->done, finished, pool->spin);
}

void golem_pool_barrier(golem_pool *pool) {
    if (pool->threads == 1) return;
    unsigned seen = atomic_load_explicit(&pool->met.value, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == pool->threads) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        gate_open(&pool->met);
    } else {
        gate_wait(&pool->met, seen, pool->spin);
    }
}

int golem_pool_threads(const golem_pool *pool) { return pool->threads; }

int golem_pool_owner(const golem_pool *pool) { return pool->owner; }

void golem_pool_free(golem_pool *pool) {
    if (!pool) return;
    if (pool->owner == (int)getpid()) {
        pool->stop = 1;
        gate_open(&pool->start);
        for (int i = 1; i < pool->threads; i++) pthread_join(pool->ids[i], NULL);
    }
    free(pool->ids);
    free(pool);
}
