/* Keeps the process alive when a mapped file is cut short: the system answers a read behind the new
 * end with SIGBUS, which would end the process. The handler puts zeros where the file was and notes
 * it. A handler may run in any thread, even amid C code without the GIL, so all it does is walk a
 * list that never shrinks and call the system. */
#define _GNU_SOURCE
#include "guard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct golem_guard {
    _Atomic uintptr_t start;   /* 0: watches nothing and may be used again */
    _Atomic uintptr_t end;
    atomic_int lost;
    struct golem_guard *next;
};

static _Atomic(golem_guard *) guards;
static struct sigaction before;   /* who was told of SIGBUS until now */
static uintptr_t page;

static void on_fault(int number, siginfo_t *info, void *context) {
    static atomic_int foreign;
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    if (info->si_code > 0)
        for (golem_guard *g = atomic_load(&guards); g; g = g->next) {
            uintptr_t start = atomic_load(&g->start), end = atomic_load(&g->end);
            if (!start || at < start || at >= end) continue;
            /* A file that was cut has no later page either. Nobody writes to these. */
            void *first = (void *)(at & ~(page - 1));
            if (mmap(first, end - (uintptr_t)first, PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
                break;
            atomic_store(&g->lost, 1);
            return;
        }
    /* Not a map of ours: whoever was here before is told when the instruction runs again, and the
     * process ends when he does not change anything either. */
    if (atomic_fetch_add(&foreign, 1)) signal(number, SIG_DFL);
    else sigaction(number, &before, NULL);
    if (info->si_code <= 0) raise(number);
}

static int install(void) {
    struct sigaction now, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(SIGBUS, NULL, &now)) return 0;
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault) return 1;
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    before = now;
    sigemptyset(&ours.sa_mask);
    return !sigaction(SIGBUS, &ours, NULL);
}

golem_guard *golem_guard_watch(const void *start, size_t bytes) {
    if (!install()) return NULL;
    golem_guard *g = atomic_load(&guards);
    while (g && atomic_load(&g->start)) g = g->next;
    if (!g) {
        g = calloc(1, sizeof *g);
        if (!g) return NULL;
        g->next = atomic_load(&guards);
        atomic_store(&guards, g);
    }
    atomic_store(&g->lost, 0);
    atomic_store(&g->end, (uintptr_t)start + bytes);
    atomic_store(&g->start, (uintptr_t)start);
    return g;
}

int golem_guard_lost(const golem_guard *guard) { return atomic_load(&guard->lost); }

void golem_guard_forget(golem_guard *guard) { atomic_store(&guard->start, 0); }
