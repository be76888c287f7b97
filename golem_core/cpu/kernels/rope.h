/* Rotary positions, and keys and values into their ring. */
#ifndef GOLEM_ROPE_KERNELS_H
#define GOLEM_ROPE_KERNELS_H

#include "ring.h"
#include "units.h"

/* in: positions (rows, axes) i32. data: freq f32, axis i32. f: scale. width: 2 * pairs */
static void rows_rope_table(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bp = base_of(&r->in[0], w), *bo = base_of(&r->out[0], w);
    const float *freq = r->data[0];
    const int32_t *axis = r->data[1];
    for (int64_t row = from; row < to; row++) {
        const int32_t *position = (const int32_t *)unit_at(bp, &r->in[0], row, 0);
        float *y = unit_at(bo, &r->out[0], row, 0);
        for (int i = 0; i < r->width / 2; i++) {
            float angle = (float)position[axis[i] * r->in[0].step] * freq[i];
            y[2 * i] = cosf(angle) * r->f[0];
            y[2 * i + 1] = sinf(angle) * r->f[0];
        }
    }
}

/* One part of a head: pairs (first[i * step], second[i * step]) turned by table (pairs, 2). */
static void turn_halves(const float *x, float *y, const float *table, int pairs) {
    int i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        vf c, s, a = vload(x + i), b = vload(x + pairs + i);
        vload_pairs(table + 2 * i, &c, &s);
        vstore(y + i, vsub(vmul(a, c), vmul(b, s)));
        vstore(y + pairs + i, vadd(vmul(a, s), vmul(b, c)));
    }
    for (; i < pairs; i++) {
        float c = table[2 * i], s = table[2 * i + 1], a = x[i], b = x[pairs + i];
        y[i] = a * c - b * s;
        y[pairs + i] = a * s + b * c;
    }
}

static void turn_adjacent(const float *x, float *y, const float *table, int pairs) {
    int i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        vf c, s, a, b;
        vload_pairs(x + 2 * i, &a, &b);
        vload_pairs(table + 2 * i, &c, &s);
        vstore_pairs(y + 2 * i, vsub(vmul(a, c), vmul(b, s)), vadd(vmul(a, s), vmul(b, c)));
    }
    for (; i < pairs; i++) {
        float c = table[2 * i], s = table[2 * i + 1], a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c - b * s;
        y[2 * i + 1] = a * s + b * c;
    }
}

/* in: x (rows, heads, width), table (rows, pairs, 2). i: adjacent, parts, pairs */
static void rows_rope(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w), *bt = base_of(&r->in[1], w), *bo = base_of(&r->out[0], w);
    int parts = r->i[1], pairs = r->i[2] / parts, width = r->width / parts;
    FOR_UNITS(r, from, to, row, span) {
        const float *x = unit_at(bx, &r->in[0], row, span);
        const float *table = unit_at(bt, &r->in[1], row, 0);
        float *y = unit_at(bo, &r->out[0], row, span);
        for (int part = 0; part < parts; part++) {
            (r->i[0] ? turn_adjacent : turn_halves)(x, y, table + 2 * part * pairs, pairs);
            for (int i = 2 * pairs; i < width; i++) y[i] = x[i];
            x += width;
            y += width;
        }
    }
}

/* in: keys or values (rows, heads, width) into the ring's. i: 0 keys, 1 values */
static void rows_store(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w);
    const golem_ring *ring = &r->ring;
    char *all = r->i[0] ? ring->v : ring->k;
    int type = r->i[0] ? ring->type_v : ring->type_k, turn = r->i[0] ? ring->turn_v : ring->turn_k;
    int64_t bytes = ring_line_bytes(type, r->width);
    float turned[turn ? r->width : 1];
    FOR_UNITS(r, from, to, row, head) {
        const float *x = unit_at(bx, &r->in[0], row, head);
        int64_t column = row / ring->rate;
        int64_t index = (int64_t)w->pass->index[column] * ring->rate + row % ring->rate;
        if (turn) {
            memcpy(turned, x, (size_t)r->width * 4);
            ring_turn(turned, r->width, turn);
            x = turned;
        }
        ring_put(type, x, r->width,
                 ring_line(ring, all, bytes, w->pass->slot[column], (int)head, index));
    }
}

#endif
