/* The sets of kernels a build for this machine has, from the plainest to the best, and whether the
 * processor runs them. A set NAME is golem_isa_NAME (isa_NAME.c) and golem_linear_NAME. */
#ifndef GOLEM_SETS_H
#define GOLEM_SETS_H

#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<amxtileintrin.h>)
#define GOLEM_HAS_AMX   /* the compiler and, its age tells, the assembler */
#endif
#endif

#if defined(__x86_64__)
/* amx_emulated is amx with plain C for its instructions: for tests. */
#if defined(GOLEM_HAS_AMX)
#define GOLEM_SETS(X) X(portable) X(avx2) X(avx512) X(amx) X(amx_emulated)
#else
#define GOLEM_SETS(X) X(portable) X(avx2) X(avx512) X(amx_emulated)
#endif
#elif defined(__aarch64__)
#include <sys/auxv.h>
#define GOLEM_SETS(X) X(portable) X(neon)
#else
#define GOLEM_SETS(X) X(portable)
#endif

static inline int golem_runs_portable(void) { return 1; }

#if defined(__x86_64__)
static inline int golem_runs_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}
static inline int golem_runs_avx512(void) {
    return golem_runs_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
static inline int golem_runs_amx_emulated(void) {
    return golem_runs_avx512() && __builtin_cpu_supports("avx512bf16");
}

int golem_amx_state(void);   /* linear.h */
static inline int golem_runs_amx(void) {
    return golem_runs_amx_emulated() && golem_amx_state() == 2;
}
#elif defined(__aarch64__)
/* Every processor of this architecture has NEON; those from about 2018 on its dot products. */
static inline int golem_runs_neon(void) { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

#define GOLEM_SET_NAME(NAME) #NAME,
static const char *const golem_set_names[] = {GOLEM_SETS(GOLEM_SET_NAME)};
enum { GOLEM_SET_COUNT = sizeof golem_set_names / sizeof golem_set_names[0] };

static inline int golem_runs(int set) {
#define GOLEM_RUNS(NAME) golem_runs_##NAME,
    static int (*const runs[])(void) = {GOLEM_SETS(GOLEM_RUNS)};
    return runs[set]();
}

#endif
