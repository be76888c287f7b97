/* Whether AMX can be used here: what processor and kernel say, leave to use it, and two products of
 * which the results are known. A virtual machine or an emulator may promise more than it keeps, so
 * the products are computed with a handler for the faults that would follow. */
#ifndef GOLEM_AMX_CHECK_H
#define GOLEM_AMX_CHECK_H

#include <cpuid.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tiles.h"

enum { XCOMP_PERMISSION = 0x1023, XTILE_DATA = 18 };   /* of arch_prctl */

/* Bits of XCR0: the states a kernel saves. 5 .. 7 are AVX-512's, 17 and 18 the tiles'. */
static uint64_t saved_states(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int admits_amx(void) {
    const uint32_t wanted = 1u << 22 | 1u << 24 | 1u << 25;   /* bf16, tiles, int8 */
    const uint64_t states = UINT64_C(7) << 5 | UINT64_C(3) << 17;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) return 0;   /* xgetbv exists */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return 0;
    if ((saved_states() & states) != states) return 0;
    return syscall(SYS_arch_prctl, XCOMP_PERMISSION, XTILE_DATA) == 0;
}

/* c (16, 16) = a (16, 16 of 4 bytes) · b, by tiles. */
__attribute__((target(TILE_TARGET), noinline)) static void multiply_tiles(const void *a,
                                                                           const void *b, void *c,
                                                                           int pairs) {
    tile_shapes s = {0};
    tile_shape(&s, 0, 16, 64), tile_shape(&s, 4, 16, 64), tile_shape(&s, 2, 16, 64);
    tile_configure(&s);
    tile_load(0, c, 64), tile_load(4, a, 64), tile_load(2, b, 64);
    if (pairs) tile_add_pairs(0, 4, 2);
    else tile_add_bytes(0, 4, 2);
    tile_store(0, c, 64);
    tile_release();
}

static uint16_t half_of(int x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
}

/* Small whole numbers, so that BF16 products and their sums are exact: x[i] of row m is at x +
 * m. */
static int computes_right(void) {
    _Alignas(64) int8_t x[16][64], y[16][64];
    _Alignas(64) uint16_t u[16][32], v[16][32];
    _Alignas(64) int32_t sums[16][16];
    _Alignas(64) float results[16][16];
    uint32_t seed = 1;
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 64; k++) {
            seed = seed * 1664525 + 1013904223;
            x[m][k] = (int8_t)(seed >> 24), y[m][k] = (int8_t)(seed >> 16);
            if (k < 32) u[m][k] = half_of(x[m][k]), v[m][k] = half_of(y[m][k] / 8);
        }
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) sums[m][n] = m - n, results[m][n] = (float)(m - n);
    multiply_tiles(x, y, sums, 0);
    multiply_tiles(u, v, results, 1);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            int bytes = m - n, pairs = m - n;
            for (int k = 0; k < 64; k++) bytes += x[m][k] * y[k / 4][4 * n + k % 4];
            for (int k = 0; k < 32; k++) pairs += x[m][k] * (y[k / 2][2 * n + k % 2] / 8);
            if (sums[m][n] != bytes || results[m][n] != (float)pairs) return 0;
        }
    return 1;
}

static sigjmp_buf back;
static _Thread_local volatile sig_atomic_t checking;

/* A fault of another thread meanwhile comes again, and ends the process as it would have. */
static void go_back(int number) {
    if (checking) siglongjmp(back, 1);
    signal(number, SIG_DFL);
}

int golem_amx_computes(void) {
    static const int faults[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    enum { FAULTS = sizeof faults / sizeof *faults };
    struct sigaction before[FAULTS], now = {.sa_handler = go_back};
    volatile int right = 0;
    sigemptyset(&now.sa_mask);
    for (int i = 0; i < FAULTS; i++) sigaction(faults[i], &now, &before[i]);
    checking = 1;
    if (!sigsetjmp(back, 1)) right = computes_right();
    checking = 0;
    for (int i = 0; i < FAULTS; i++) sigaction(faults[i], &before[i], NULL);
    return right;
}

static int amx_state;

static void find_state(void) {
    amx_state = !admits_amx()          ? GOLEM_AMX_NONE
                : golem_amx_computes() ? GOLEM_AMX_WORKS
                                       : GOLEM_AMX_WRONG;
}

int golem_amx_state(void) {
    static pthread_once_t once_found = PTHREAD_ONCE_INIT;
    pthread_once(&once_found, find_state);
    return amx_state;
}

#endif
