/* A hash table from 64-bit keys to numbers that are not negative. */
#ifndef GOLEM_GRAMMAR_MAP_H
#define GOLEM_GRAMMAR_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t *keys;
    int32_t *values;
    uint32_t size, room; /* room is a power of two */
} Map;

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x * 0xd6e8feb86659fd93u;
}

static inline bool map_init(Map *m, uint32_t room) {
    m->size = 0;
    m->room = room;
    m->keys = calloc(room, sizeof *m->keys);
    m->values = malloc(room * sizeof *m->values);
    return m->keys && m->values;
}

static inline void map_free(Map *m) {
    free(m->keys);
    free(m->values);
}

static inline void map_clear(Map *m) {
    if (m->size) memset(m->keys, 0, m->room * sizeof *m->keys);
    m->size = 0;
}

/* Keys are stored plus one: 0 is a free place. */
static inline uint32_t map_place(const Map *m, uint64_t key) {
    uint32_t i = (uint32_t)(mix(key) >> 20) & (m->room - 1);
    while (m->keys[i] && m->keys[i] != key + 1) i = (i + 1) & (m->room - 1);
    return i;
}

static inline int32_t map_get(const Map *m, uint64_t key) {
    uint32_t i = map_place(m, key);
    return m->keys[i] ? m->values[i] : -1;
}

static inline bool map_put(Map *m, uint64_t key, int32_t value) {
    if (m->size * 2 >= m->room) {
        Map larger;
        if (!map_init(&larger, m->room * 2)) {
            map_free(&larger);
            return false;
        }
        for (uint32_t i = 0; i < m->room; i++)
            if (m->keys[i]) {
                uint32_t to = map_place(&larger, m->keys[i] - 1);
                larger.keys[to] = m->keys[i];
                larger.values[to] = m->values[i];
            }
        larger.size = m->size;
        map_free(m);
        *m = larger;
    }
    uint32_t i = map_place(m, key);
    m->size += !m->keys[i];
    m->keys[i] = key + 1;
    m->values[i] = value;
    return true;
}

static inline uint64_t pair(int32_t a, int32_t b) {
    return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}

#endif
