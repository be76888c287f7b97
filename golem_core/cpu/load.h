/* Repacking weights at load, on all workers. */
#ifndef GOLEM_LOAD_H
#define GOLEM_LOAD_H

#include <stdint.h>

#include "pool.h"

/* A stack of matrices (experts, out, in) in the file's blocks, and where its groups go. */
typedef struct {
    const uint8_t *source;
    int64_t row_bytes, expert_bytes;   /* from one row, one expert to the next */
    uint8_t *groups;
    int64_t group_bytes;
    int32_t type, experts, out, in;
    int32_t release;     /* source lies on a read-only file map: its pages may leave memory */
} golem_load;

void golem_load_all(golem_pool *pool, const golem_load *loads, int count);

#endif
