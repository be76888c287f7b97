/* What no product can exceed, measured beside it in benchmarks: a plain read of memory, and
 * products of bytes that need nothing else. */
#include "linear_read.h"

#include <string.h>

static uint64_t read_plain(const uint8_t *data, size_t size) {
    uint64_t sum[8] = {0};
    size_t at = 0;
    for (; at + 64 <= size; at += 64)
        for (int i = 0; i < 8; i++) {
            uint64_t word;
            memcpy(&word, data + at + 8 * i, 8);
            sum[i] += word;
        }
    for (; at < size; at++) sum[0] += data[at];
    for (int i = 1; i < 8; i++) sum[0] += sum[i];
    return sum[0];
}

#if defined(__x86_64__)
#include <immintrin.h>

enum { AHEAD = 4096 }; /* bytes; 2 to 8 KiB read equally fast on Zen 5 */

__attribute__((target("avx512f"))) static uint64_t read_512(const uint8_t *data, size_t size) {
    __m512i sum[4];
    for (int i = 0; i < 4; i++) sum[i] = _mm512_setzero_si512();
    size_t at = 0;
    for (; at + 256 <= size; at += 256)
        for (int i = 0; i < 4; i++) {
            _mm_prefetch((const char *)data + at + AHEAD + 64 * i, _MM_HINT_T0);
            sum[i] = _mm512_add_epi64(sum[i], _mm512_loadu_si512(data + at + 64 * i));
        }
    sum[0] = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm512_reduce_add_epi64(sum[0]) + read_plain(data + at, size - at);
}

__attribute__((target("avx2"))) static uint64_t read_256(const uint8_t *data, size_t size) {
    __m256i sum[4];
    for (int i = 0; i < 4; i++) sum[i] = _mm256_setzero_si256();
    size_t at = 0;
    for (; at + 128 <= size; at += 128)
        for (int i = 0; i < 4; i++) {
            if (i % 2 == 0) _mm_prefetch((const char *)data + at + AHEAD + 32 * i, _MM_HINT_T0);
            const __m256i *p = (const __m256i *)(data + at + 32 * i);
            sum[i] = _mm256_add_epi64(sum[i], _mm256_loadu_si256(p));
        }
    uint64_t words[4];
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    _mm256_storeu_si256((__m256i *)words, sum[0]);
    return words[0] + words[1] + words[2] + words[3] + read_plain(data + at, size - at);
}

/* Twelve sums, so that none waits for its last product. */
__attribute__((target("avx512f,avx512vnni"))) static void multiply_512(int64_t times) {
    __m512i sum[12], w = _mm512_set1_epi8(3), q = _mm512_set1_epi8(-5);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) sum[i] = w;
    for (int64_t n = 0; n < times; n++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum[i]) : "v"(w), "v"(q));
}
#endif

int64_t golem_multiply(int64_t times) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni")) {
        multiply_512(times);
        return times * 12 * 64;
    }
#endif
    return 0;
}

uint64_t golem_read(const uint8_t *data, size_t size) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return read_512(data, size);
    if (__builtin_cpu_supports("avx2")) return read_256(data, size);
#endif
    return read_plain(data, size);
}
