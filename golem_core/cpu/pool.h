/* Threads that walk a pass together. One wake-up starts them all on the same function; inside it
 * they meet at barriers. They spin for some microseconds, then sleep on a futex: an idle pool
 * takes no processor time. */
#ifndef GOLEM_POOL_H
#define GOLEM_POOL_H

typedef struct golem_pool golem_pool;

/* threads >= 1, the caller of golem_pool_run included. spin: how often a waiter looks before it
 * sleeps; 0 where there are more threads than processors. core: the core that each of the cpus
 * processors belongs to. NULL when threads cannot be made. */
golem_pool *golem_pool_new(int threads, int spin, const int *core, int cpus);

/* Runs work(context, worker) once on every worker, 0 .. threads - 1, and returns when all have
 * returned. The caller is worker 0. */
void golem_pool_run(golem_pool *pool, void (*work)(void *context, int worker), void *context);

/* Memory that a worker is about to read in order. */
typedef struct {
    const void *from, *to;
} golem_stretch;

/* Returns when every worker of the running function has called it as often as this one. Who has to
 * wait fetches meanwhile what it will read next, from memory to its second cache. */
void golem_pool_barrier(golem_pool *pool, int worker, golem_stretch next);

int golem_pool_threads(const golem_pool *pool);

/* The process that made the pool: its threads exist in no other. */
int golem_pool_owner(const golem_pool *pool);

/* Stops and joins the threads. In another process than the owner's only the memory is freed. */
void golem_pool_free(golem_pool *pool);

#endif
