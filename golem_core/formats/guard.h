#ifndef GOLEM_GUARD_H
#define GOLEM_GUARD_H

#include <stddef.h>

/* A mapped file: a page of it that is gone reads as zeros, and golem_guard_lost tells. */
typedef struct golem_guard golem_guard;

/* Watches a map from now on; NULL when there is no memory or no handler can be installed. */
golem_guard *golem_guard_watch(const void *start, size_t bytes);

/* Whether a read of the map met a page that the file no longer has. */
int golem_guard_lost(const golem_guard *guard);

/* Ends the watch; to be called before the map goes. */
void golem_guard_forget(golem_guard *guard);

#endif
