#define _GNU_SOURCE
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A word that threads wait to change: spin first, then sleep. */
typedef struct {
    _Alignas(64) atomic_uint value;
    atomic_uint sleepers;
} gate;

typedef struct {
    _Alignas(64) atomic_int number;
} seen_cpu;

enum { LOOK_AROUND = 256 };   /* turns of waiting after which a worker looks for company */

struct golem_pool {
    gate start;    /* generation of the work; changes when there is some */
    gate met;      /* generation of the barrier */
    gate done;     /* generation of finished work, for the caller */
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int working;
    int threads, spin, owner, stop;
    seen_cpu *cpu;   /* where each worker was last seen running */
    int *core;       /* core of each of the cpus processors */
    int cpus;
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

static void note_cpu(golem_pool *pool, int worker) {
    atomic_store_explicit(&pool->cpu[worker].number, sched_getcpu(), memory_order_relaxed);
}

/* Whether no worker was seen on a processor (or, with whole_core, on another of its core). */
static int is_free(const golem_pool *pool, int cpu, int whole_core) {
    for (int i = 0; i < pool->threads; i++) {
        int other = atomic_load_explicit(&pool->cpu[i].number, memory_order_relaxed);
        int known = other >= 0 && other < pool->cpus && cpu < pool->cpus;
        if (other == cpu || (whole_core && known && pool->core[other] == pool->core[cpu])) return 0;
    }
    return 1;
}

static int free_cpu(const golem_pool *pool, const cpu_set_t *allowed, int whole_core) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && is_free(pool, cpu, whole_core)) return cpu;
    return -1;
}

/* Waking a thread may put it on the processor of its waker, where the two take turns at every
 * barrier although another processor is free or busy with less. So who waits for a worker that was
 * last seen on this very processor moves to a core where no worker was seen. It stays free to be
 * moved again. */
static void spread(golem_pool *pool, int worker) {
    int mine = sched_getcpu(), crowded = 0;
    cpu_set_t allowed, target;
    for (int i = 0; i < pool->threads; i++)
        crowded |= i != worker
                   && atomic_load_explicit(&pool->cpu[i].number, memory_order_relaxed) == mine;
    if (!crowded || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    int cpu = free_cpu(pool, &allowed, 1);
    if (cpu < 0) cpu = free_cpu(pool, &allowed, 0);
    if (cpu < 0) return;
    CPU_ZERO(&target);
    CPU_SET(cpu, &target);
    if (!sched_setaffinity(0, sizeof target, &target))
        sched_setaffinity(0, sizeof allowed, &allowed);
    note_cpu(pool, worker);
}

static void gate_wait(golem_pool *pool, gate *g, unsigned seen, int worker) {
    for (int i = 0; i < pool->spin; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != seen) return;
        if (i == LOOK_AROUND) spread(pool, worker);
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
        gate_wait(pool, &pool->start, seen, mine.worker);
        if (pool->stop) return NULL;
        note_cpu(pool, mine.worker);
        pool->work(pool->context, mine.worker);
        if (atomic_fetch_sub(&pool->working, 1) == 1) gate_open(&pool->done);
    }
}

golem_pool *golem_pool_new(int threads, int spin, const int *core, int cpus) {
    golem_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (!pool) return NULL;
    *pool = (golem_pool){.threads = 1, .spin = spin, .owner = (int)getpid()};
    pool->ids = calloc((size_t)threads, sizeof *pool->ids);
    pool->cpu = aligned_alloc(64, (size_t)threads * sizeof *pool->cpu);
    pool->core = malloc((size_t)cpus * sizeof *core + 1);
    if (!pool->ids || !pool->cpu || !pool->core) {
        golem_pool_free(pool);
        return NULL;
    }
    memcpy(pool->core, core, (size_t)cpus * sizeof *core);
    pool->cpus = cpus;
    for (int i = 0; i < threads; i++) pool->cpu[i] = (seen_cpu){-1};
    for (int i = 1; i < threads; i++) {
        seat *argument = malloc(sizeof *argument);
        if (argument) *argument = (seat){pool, i};
        if (!argument || pthread_create(&pool->ids[i], NULL, serve, argument)) {
            free(argument);
            golem_pool_free(pool);
            return NULL;
        }
        pool->threads++;
    }
    return pool;
}

void golem_pool_run(golem_pool *pool, void (*work)(void *, int), void *context) {
    unsigned finished = atomic_load(&pool->done.value);
    pool->work = work;
    pool->context = context;
    note_cpu(pool, 0);
    if (pool->threads > 1) {
        atomic_store(&pool->working, pool->threads - 1);
        gate_open(&pool->start);
    }
    work(context, 0);
    if (pool->threads > 1) gate_wait(pool, &pool->done, finished, 0);
}

/* Fetches a stretch for as long as nobody opens the gate. False when somebody did. */
static int fetch(const gate *g, unsigned seen, golem_stretch next) {
    enum { LINE = 64, AT_ONCE = 4 };
    for (const char *p = next.from; p < (const char *)next.to; p += AT_ONCE * LINE) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != seen) return 0;
        for (int i = 0; i < AT_ONCE; i++) __builtin_prefetch(p + i * LINE, 0, 2);
    }
    return 1;
}

void golem_pool_barrier(golem_pool *pool, int worker, golem_stretch next) {
    if (pool->threads == 1) return;
    note_cpu(pool, worker);
    unsigned seen = atomic_load_explicit(&pool->met.value, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == pool->threads) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        gate_open(&pool->met);
    } else if (fetch(&pool->met, seen, next)) {
        gate_wait(pool, &pool->met, seen, worker);
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
    free(pool->cpu);
    free(pool->core);
    free(pool);
}
