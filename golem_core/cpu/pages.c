#define _GNU_SOURCE
#include "pages.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25   /* since Linux 6.1 */
#endif

typedef struct {
    uint8_t *pages;
    int64_t count, size;
    atomic_llong next, nanoseconds;
} touching;

static int64_t nanoseconds_here(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void work(void *context, int worker) {
    touching *t = context;
    int64_t begun = nanoseconds_here();
    (void)worker;
    for (int64_t i; (i = atomic_fetch_add(&t->next, 1)) < t->count;)
        *(volatile uint8_t *)(t->pages + i * t->size) = 0;
    atomic_fetch_add(&t->nanoseconds, nanoseconds_here() - begun);
}

double golem_touch(golem_pool *pool, uint8_t *pages, int64_t count, int64_t size) {
    touching t = {.pages = pages, .count = count, .size = size};
    golem_pool_run(pool, work, &t);
    return 1e-9 * (double)atomic_load(&t.nanoseconds);
}

int golem_collapse(void *page, int64_t size) {
    return madvise(page, (size_t)size, MADV_COLLAPSE) == 0;
}
