/* Taking memory from the system: all workers at once, and what it cost. */
#ifndef GOLEM_PAGES_H
#define GOLEM_PAGES_H

#include <stdint.h>

#include "pool.h"

/* Writes the first byte of each of count pages. -> seconds of processors that took, all
 * together. */
double golem_touch(golem_pool *pool, uint8_t *pages, int64_t count, int64_t size);

/* Moves what lies in small pages to one huge one. 0: the system did not. */
int golem_collapse(void *page, int64_t size);

#endif
