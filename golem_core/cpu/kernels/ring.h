/* Lines of a ring: one head's key or value as it is kept, in floats of three widths or in blocks
 * of 32 values with a scale.
 *
 * Where a ring is kept in blocks, keys and values are turned by an orthonormal Walsh-Hadamard
 * matrix first, which spreads outliers over their neighbours; queries are turned likewise, and the
 * result turned back. Products and sums of the turned vectors are those of the plain ones. */
#ifndef GOLEM_RING_H
#define GOLEM_RING_H

#include <math.h>

#include "../record.h"
#include "simd.h"

enum { RING_F16, RING_F32, RING_BF16, RING_Q8_0, RING_Q4_0 };   /* golem_core/state/kinds.py */
enum { RING_BLOCK = 32, Q8_LINE = 34, Q4_LINE = 18 };           /* values, bytes of a block */

static inline int64_t ring_line_bytes(int type, int width) {
    switch (type) {
    case RING_F32: return 4 * (int64_t)width;
    case RING_Q8_0: return (int64_t)width / RING_BLOCK * Q8_LINE;
    case RING_Q4_0: return (int64_t)width / RING_BLOCK * Q4_LINE;
    default: return 2 * (int64_t)width;
    }
}

/* Where the line of an index is, in a ring's keys or values; the rest of its block's follow. */
static inline char *ring_line(const golem_ring *ring, char *all, int64_t bytes, int slot, int head,
                              int64_t index) {
    int64_t place = index % ring->capacity;
    return all + slot * ring->slot_bytes + place / GOLEM_PLACES * ring->block_bytes +
           (head * (int64_t)GOLEM_PLACES + place % GOLEM_PLACES) * bytes;
}

/* x times the Walsh-Hadamard matrix of n / sqrt(n), for every n values; its own inverse */
static inline void ring_turn(float *x, int width, int n) {
    float by = 1.0f / sqrtf((float)n);
    for (int i = 0; i < width; i++) x[i] *= by;
    for (float *block = x; block + n <= x + width; block += n)
        for (int step = 1; step < n; step *= 2)
            for (int i = 0; i < n; i += 2 * step)
                for (int j = i; j < i + step; j++) {
                    float u = block[j], v = block[j + step];
                    block[j] = u + v;
                    block[j + step] = u - v;
                }
}

static inline uint16_t ring_half(float x) {
    uint16_t t[LANES];
    vstore_half(t, vset(x));
    return t[0];
}

static inline uint16_t ring_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16) | 64;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* d = largest / 127, q = x / d to the nearest */
static inline void ring_put_q8(const float *x, uint8_t *y) {
    float most = 0;
    for (int i = 0; i < RING_BLOCK; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float d = most / 127.0f, by = d > 0 ? 1.0f / d : 0.0f;
    uint16_t half = ring_half(d);
    memcpy(y, &half, 2);
    int8_t *q = (int8_t *)(y + 2);
    for (int i = 0; i < RING_BLOCK; i++) q[i] = (int8_t)rintf(x[i] * by);
}

/* d = the value furthest from 0, over -8; q = x / d + 8, of values i and i + 16 in one byte */
static inline void ring_put_q4(const float *x, uint8_t *y) {
    float far = 0;
    for (int i = 0; i < RING_BLOCK; i++) far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    float d = far / -8.0f, by = d != 0 ? 1.0f / d : 0.0f;
    uint16_t half = ring_half(d);
    memcpy(y, &half, 2);
    for (int i = 0; i < RING_BLOCK / 2; i++) {
        int low = (int)(x[i] * by + 8.5f), high = (int)(x[i + RING_BLOCK / 2] * by + 8.5f);
        y[2 + i] = (uint8_t)((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
    }
}

/* A line is written. */
static inline void ring_put(int type, const float *x, int width, char *line) {
    switch (type) {
    case RING_F32: memcpy(line, x, (size_t)width * 4); break;
    case RING_BF16:
        for (int i = 0; i < width; i++) ((uint16_t *)line)[i] = ring_bf16(x[i]);
        break;
    case RING_Q8_0:
        for (int i = 0; i < width; i += RING_BLOCK, line += Q8_LINE)
            ring_put_q8(x + i, (uint8_t *)line);
        break;
    case RING_Q4_0:
        for (int i = 0; i < width; i += RING_BLOCK, line += Q4_LINE)
            ring_put_q4(x + i, (uint8_t *)line);
        break;
    default: {
        uint16_t *y = (uint16_t *)line;
        int i = 0;
        for (; i + LANES <= width; i += LANES) vstore_half(y + i, vload(x + i));
        if (i < width) {
            uint16_t t[LANES];
            vstore_half(t, vload_n(x + i, width - i));
            memcpy(y + i, t, (size_t)(width - i) * 2);
        }
    }
    }
}

static inline vf vread_half(const uint16_t *p, int count) {
    if (count == LANES) return vload_half(p);
    uint16_t t[LANES] = {0};
    memcpy(t, p, (size_t)count * 2);
    return vload_half(t);
}

/* Elements i .. i + count - 1 of a line, the other lanes 0; i is a multiple of LANES. */
static inline __attribute__((always_inline)) vf ring_read(const int type, const void *line, int i,
                                                          int count) {
    const char *block = line;
    uint16_t scale;
    switch (type) {
    case RING_F32: return vread((const float *)line + i, count);
    case RING_BF16: {
        if (count == LANES) return vload_bf16((const uint16_t *)line + i);
        uint16_t t[LANES] = {0};
        memcpy(t, (const uint16_t *)line + i, (size_t)count * 2);
        return vload_bf16(t);
    }
    case RING_Q8_0:
        block += i / RING_BLOCK * Q8_LINE;
        memcpy(&scale, block, 2);
        return vmul(vset_half(scale), vload_i8((const int8_t *)block + 2 + i % RING_BLOCK));
    case RING_Q4_0:
        block += i / RING_BLOCK * Q4_LINE;
        memcpy(&scale, block, 2);
#if defined(GOLEM_AVX512)
        return vscaled_nibbles(vset_half(scale), (const uint8_t *)block + 2, i % RING_BLOCK > 0);
#else
        return vmul(vset_half(scale),
                    vload_nibbles((const uint8_t *)block + 2, i % RING_BLOCK > 0));
#endif
    default: return vread_half((const uint16_t *)line + i, count);
    }
}

/* DO(type) with the type as a constant. */
#define FOR_RING_TYPE(type, DO)          \
    switch (type) {                      \
    case RING_F32: DO(RING_F32); break;  \
    case RING_BF16: DO(RING_BF16); break; \
    case RING_Q8_0: DO(RING_Q8_0); break; \
    case RING_Q4_0: DO(RING_Q4_0); break; \
    default: DO(RING_F16);               \
    }

#endif
