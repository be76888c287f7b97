#define _GNU_SOURCE
#include "load.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/linear.h"

enum { PIECE = 16 };   /* groups a worker takes at once */

typedef struct {
    const golem_load *loads;
    int count;
    atomic_llong next;
} queue;

static int64_t groups_of(const golem_load *l) {
    return (int64_t)l->experts * ((l->out + GOLEM_GROUP - 1) / GOLEM_GROUP);
}

static void repack_group(const golem_load *l, int64_t group) {
    int64_t each = (l->out + GOLEM_GROUP - 1) / GOLEM_GROUP, expert = group / each;
    int64_t row = group % each * GOLEM_GROUP;
    int rows = l->out - row < GOLEM_GROUP ? (int)(l->out - row) : GOLEM_GROUP;
    const uint8_t *from = l->source + expert * l->expert_bytes + row * l->row_bytes;
    golem_types[l->type].repack(from, (size_t)l->row_bytes, rows, l->in,
                                l->groups + group * l->group_bytes);
}

static void work(void *context, int worker) {
    queue *q = context;
    int64_t before = 0, piece = atomic_fetch_add(&q->next, 1);
    (void)worker;
    for (int i = 0; i < q->count; i++) {
        int64_t groups = groups_of(&q->loads[i]), pieces = (groups + PIECE - 1) / PIECE;
        while (piece < before + pieces) {
            int64_t from = (piece - before) * PIECE;
            for (int64_t g = from; g < from + PIECE && g < groups; g++)
                repack_group(&q->loads[i], g);
            piece = atomic_fetch_add(&q->next, 1);
        }
        before += pieces;
    }
}

/* Lets the pages that lie wholly inside of an expert go; the file still has them. */
static void release(const golem_load *l) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), size = (uintptr_t)(l->out * l->row_bytes);
    int whole = l->expert_bytes == (int64_t)size;
    for (int e = 0; e < (whole ? 1 : l->experts); e++) {
        uintptr_t from = (uintptr_t)l->source + (uintptr_t)(e * l->expert_bytes);
        uintptr_t to = (from + (whole ? size * (uintptr_t)l->experts : size)) / page * page;
        from = (from + page - 1) / page * page;
        if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

void golem_load_all(golem_pool *pool, const golem_load *loads, int count) {
    queue q = {loads, count, 0};
    golem_pool_run(pool, work, &q);
    for (int i = 0; i < count; i++)
        if (loads[i].release) release(&loads[i]);
}
