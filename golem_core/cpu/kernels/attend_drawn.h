/* Attention of one drawn column: every key and value is read once, as it lies in the ring, for all
 * the query heads that share it.
 *
 * Chunks of 512 keys are computed by themselves and merged in order of their index, whoever
 * computed them, so a column's bits depend neither on the threads nor on the other columns. */
#ifndef GOLEM_ATTEND_DRAWN_H
#define GOLEM_ATTEND_DRAWN_H

#include "attend.h"

enum { HELD = 16 };           /* vectors of keys in registers */
#if defined(GOLEM_AVX512)
enum { MOST_VECTORS = 8 };    /* of values at once */
#define KEYS_HELD(VECTORS) (HELD / (VECTORS))
#else
enum { MOST_VECTORS = 4 };
#define KEYS_HELD(VECTORS) 1
#endif

/* What a chunk gives for each of the share query heads: its largest score, the sum of its weights
 * and the weighted sum of its values. */
typedef struct {
    float *most, *total;   /* (share,) */
    float *acc;            /* (share, padded dv) */
} chunk_result;

static inline int64_t result_floats(int share, int dv) {
    return 2 * (int64_t)padded(share) + (int64_t)share * padded(dv);
}

static inline chunk_result result_at(float *base, int share) {
    return (chunk_result){base, base + padded(share), base + 2 * padded(share)};
}

typedef struct {
    float *query;          /* (share, padded d) */
    float *part;           /* (share, LANES, LANES): a key's products, one lane an element mod 16 */
    float *scores;         /* (share, CHUNK) */
    float *result;         /* of the chunk that runs */
    float *whole;          /* of the chunks so far */
} drawn_scratch;

static int64_t drawn_layout(drawn_scratch *t, char *base, int d, int dv, int share) {
    int64_t at = 0;
#define TAKE(member, floats) \
    (t->member = (float *)(base + at), at += ((int64_t)(floats) * 4 + 63) / 64 * 64)
    TAKE(query, share * padded(d));
    TAKE(part, share * LANES * LANES);
    TAKE(scores, share * CHUNK);
    TAKE(result, result_floats(share, dv));
    TAKE(whole, result_floats(share, dv));
#undef TAKE
    return at;
}

/* Lane j of the result is the sum of x[j]. */
static inline vf vsum16(const float *x) {
#if defined(GOLEM_AVX512)
    __m512 t[8], u[4];
    for (int i = 0; i < 8; i++) {
        __m512 a = _mm512_loadu_ps(x + 32 * i), b = _mm512_loadu_ps(x + 32 * i + 16);
        t[i] = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    for (int i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(t[2 * i]), b = _mm512_castps_pd(t[2 * i + 1]);
        u[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    __m512 v = _mm512_add_ps(_mm512_shuffle_f32x4(u[0], u[1], 0x88),
                             _mm512_shuffle_f32x4(u[0], u[1], 0xdd));
    __m512 w = _mm512_add_ps(_mm512_shuffle_f32x4(u[2], u[3], 0x88),
                             _mm512_shuffle_f32x4(u[2], u[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(v, w, 0x88), _mm512_shuffle_f32x4(v, w, 0xdd));
#else
    float sums[LANES];
    for (int i = 0; i < LANES; i++) sums[i] = vsum(vload(x + LANES * i));
    return vload(sums);
#endif
}

/* Keys and values are read in pieces of so many lines, while the next piece is on its way to the
 * first-level cache: 8 to 16 KiB, or a block. The lines of a block are too few for the processor
 * to see where it goes on: without this they come at a third of the rate. */
static inline int piece_of(int64_t bytes) {
    return bytes <= 256 ? KEYS : bytes <= 512 ? KEYS / 2 : LANES;
}

static inline __attribute__((always_inline)) void fetch_line(const char *line, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(line + at);
}

/* part[head][slot ..] = the products of some keys with each query, not yet summed over lanes. */
static inline __attribute__((always_inline)) void multiply_some(const drawn_scratch *t,
                                                                const char *key, int64_t bytes,
                                                                const int vectors, const int keys,
                                                                int share, int slot,
                                                                const int type) {
    vf k[HELD];
#pragma GCC unroll 16
    for (int i = 0; i < keys * vectors; i++)
        k[i] = ring_read(type, key + i / vectors * bytes, i % vectors * LANES, LANES);
    const float *q = t->query;
    float *part = t->part + slot * LANES;
    for (int h = 0; h < share; h++, q += vectors * LANES, part += LANES * LANES) {
        vf sum[HELD];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++) {
            vf x = vload(q + v * LANES);
#pragma GCC unroll 16
            for (int i = 0; i < keys; i++)
                sum[i] = v ? vfma(x, k[i * vectors + v], sum[i]) : vmul(x, k[i * vectors]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < keys; i++) vstore(part + i * LANES, sum[i]);
    }
}

/* The same of keys of any width. */
static inline __attribute__((always_inline)) void multiply_any_key(const drawn_scratch *t,
                                                                   const void *key, int width,
                                                                   int share, int slot,
                                                                   const int type) {
    int wide = padded(width);
    for (int h = 0; h < share; h++) {
        const float *q = t->query + h * wide;
        vf sum = vzero();
        FOR_LANES(i, width, count) {
            vf k = ring_read(type, key, i, count);
            sum = i ? vfma(vload(q + i), k, sum) : vmul(vload(q), k);
        }
        vstore(t->part + (h * LANES + slot) * LANES, sum);
    }
}

/* The products of LANES keys that lie one after the other. next: the lines to be fetched. */
static inline __attribute__((always_inline)) void multiply_keys(const attention *a,
                                                                const drawn_scratch *t,
                                                                const char *key, int64_t bytes,
                                                                const char *next, const int type) {
#define MULTIPLY(VECTORS)                                                              \
    for (int l = 0; l < LANES; l += KEYS_HELD(VECTORS)) {                              \
        for (int i = 0; i < KEYS_HELD(VECTORS); i++, next += bytes)                    \
            fetch_line(next, ring_line_bytes(type, (VECTORS) * LANES));                \
        multiply_some(t, key + l * bytes, bytes, VECTORS, KEYS_HELD(VECTORS), a->share, l, type); \
    }
    switch (a->d) {
    case 4 * LANES: MULTIPLY(4); break;
    case 8 * LANES: MULTIPLY(8); break;
    case HELD * LANES: MULTIPLY(HELD); break;
    default:
        for (int l = 0; l < LANES; l++, key += bytes, next += bytes) {
            fetch_line(next, bytes);
            multiply_any_key(t, key, a->d, a->share, l, type);
        }
    }
#undef MULTIPLY
}

/* acc[head] += weights times values from .. to - 1 of one block, for vectors * 16 elements; count:
 * of the last vector. next: what is to be fetched with value `from`, share bytes of it; or NULL. */
static inline __attribute__((always_inline)) void add_block(
    const char *value, int64_t bytes, int v0, const float *scores, int from, int to, float *acc,
    int wide, const int heads, const int vectors, int count, const char *next, int64_t share,
    const int type) {
    vf sum[4][MOST_VECTORS];
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < vectors; v++) sum[h][v] = vload(acc + h * wide + v * LANES);
    value += from * bytes;
    for (int j = from; j < to; j++, value += bytes) {
        if (next) fetch_line(next, share), next += bytes;
        vf x[MOST_VECTORS];
        for (int v = 0; v < vectors; v++)
            x[v] = ring_read(type, value, v0 + v * LANES, v + 1 < vectors ? LANES : count);
        for (int h = 0; h < heads; h++) {
            vf p = vset(scores[h * CHUNK + j]);
            for (int v = 0; v < vectors; v++) sum[h][v] = vfma(p, x[v], sum[h][v]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < vectors; v++) vstore(acc + h * wide + v * LANES, sum[h][v]);
}

/* bytes: of a line */
static inline __attribute__((always_inline)) void add_values_of(const char *value, int64_t bytes,
                                                                int dv, const float *scores,
                                                                int from, int to, float *acc,
                                                                int share, const char *next,
                                                                const int type) {
    int wide = padded(dv);
    for (int h = 0; h < share;) {
        int heads = share - h < 4 ? share - h : 4, v0 = 0;
        const float *s = scores + h * CHUNK;
        float *a = acc + h * wide;
#define ADD(HEADS, VECTORS, COUNT)                                                    \
    add_block(value, bytes, v0, s, from, to, a + v0, wide, HEADS, VECTORS, COUNT,     \
              h ? NULL : next + bytes * v0 / dv, bytes * (VECTORS) * LANES / dv, type)
        if (heads == 2)
            for (; v0 + MOST_VECTORS * LANES <= dv; v0 += MOST_VECTORS * LANES)
                ADD(2, MOST_VECTORS, LANES);
        for (; v0 + 4 * LANES <= dv; v0 += 4 * LANES) switch (heads) {
            case 4: ADD(4, 4, LANES); break;
            case 3: ADD(3, 4, LANES); break;
            case 2: ADD(2, 4, LANES); break;
            default: ADD(1, 4, LANES);
            }
        for (; v0 < dv; v0 += LANES)
            for (int i = 0; i < heads; i++)
                add_block(value, bytes, v0, s + i * CHUNK, from, to, a + i * wide + v0, wide, 1, 1,
                          dv - v0 < LANES ? dv - v0 : LANES,
                          h + i ? NULL : next + bytes * v0 / dv, bytes * LANES / dv, type);
#undef ADD
        h += heads;
    }
}

/* scores: (share, CHUNK) products of all keys with each query -> their weights */
static void weigh_chunk(const attention *a, float *scores, int from, int end, chunk_result to) {
    for (int h = 0; h < a->share; h++, scores += CHUNK) {
        vf most = vset(-INFINITY), sum = vzero();
        for (int j = from / LANES * LANES; j < end; j += LANES)
            most = vmax(most, vload(scores + j));
        to.most[h] = vmax_lane(most);
        most = vset(to.most[h]);
        for (int j = from / LANES * LANES; j < end; j += LANES) {
            vf p = vexp_negative(vsub(vload(scores + j), most));
            vstore(scores + j, p);
            sum = vadd(sum, p);
        }
        to.total[h] = vsum(sum);
    }
}

/* scores[head][j ..] = what has been multiplied, summed up and bounded; -inf outside of
 * from .. end - 1 */
static inline void sum_products(const attention *a, const drawn_scratch *t, int j, int from,
                                int end) {
    static const float steps[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int all = j >= from && j + LANES <= end;
    vf at = vadd(vload(steps), vset((float)j));
    for (int h = 0; h < a->share; h++) {
        vf x = vmul(vsum16(t->part + h * LANES * LANES), vset(a->scale));
        if (a->cap > 0) x = vsoftcap(x, a->cap);
        if (!all) {
            x = vless(at, vset((float)from), vset(-INFINITY), x);
            x = vless(vset((float)(end - 1)), at, vset(-INFINITY), x);
        }
        vstore(t->scores + h * CHUNK + j, x);
    }
}

/* Keys low .. high, all of one chunk, for the query heads of one key head. after: an index whose
 * keys are likely to be read next. */
static void attend_chunk(const attention *a, const drawn_scratch *t, const sequence *s, int head,
                         int64_t low, int64_t high, int64_t after, chunk_result to) {
    int64_t start = low / CHUNK * CHUNK;
    int from = (int)(low - start), end = (int)(high - start) + 1;
    const golem_ring *ring = &a->r->ring;
    int64_t key_bytes = ring_line_bytes(ring->type_k, a->d);
    int64_t value_bytes = ring_line_bytes(ring->type_v, a->dv);
    int some = piece_of(key_bytes);
#define KEYS_AT(INDEX) ring_line(ring, ring->k, key_bytes, s->slot, head, INDEX)
#define VALUES_AT(INDEX) ring_line(ring, ring->v, value_bytes, s->slot, head, INDEX)
    for (int base = from / some * some; base < end; base += some) {
        int more = base + some < end;
        const char *key = KEYS_AT(start + base);
        const char *next = more ? KEYS_AT(start + base + some) : VALUES_AT(low);
        for (int i = 0; i < some && base + i < end; i += LANES) {
            if (base + i + LANES <= from) continue;
#define MULTIPLY(TYPE) \
    multiply_keys(a, t, key + i * key_bytes, key_bytes, next + i * key_bytes, TYPE)
            FOR_RING_TYPE(ring->type_k, MULTIPLY)
#undef MULTIPLY
            sum_products(a, t, base + i, from, end);
        }
    }
    weigh_chunk(a, t->scores, from, end, to);
    memset(to.acc, 0, (size_t)a->share * padded(a->dv) * 4);
    some = piece_of(value_bytes);
    for (int base = from / some * some; base < end; base += some) {
        int more = base + some < end;
        const char *value = VALUES_AT(start + base);
        const char *next = more ? VALUES_AT(start + base + some) : KEYS_AT(after);
        const float *scores = t->scores + base;
        int begin = base < from ? from - base : 0, stop = end - base < some ? end - base : some;
#define ADD_VALUES_OF(TYPE) \
    add_values_of(value, value_bytes, a->dv, scores, begin, stop, to.acc, a->share, next, TYPE)
        FOR_RING_TYPE(ring->type_v, ADD_VALUES_OF)
#undef ADD_VALUES_OF
    }
#undef KEYS_AT
#undef VALUES_AT
}

/* The chunks so far and the next one, weighed against each other. */
static void merge_chunk(const attention *a, chunk_result whole, chunk_result next) {
    int wide = padded(a->dv);
    for (int h = 0; h < a->share; h++) {
        float most = whole.most[h] < next.most[h] ? next.most[h] : whole.most[h];
        float f[LANES], g[LANES];
        vf by = vexp_negative(vset(whole.most[h] - most));
        vf other = vexp_negative(vset(next.most[h] - most));
        vstore(f, by);
        vstore(g, other);
        whole.total[h] = whole.total[h] * f[0] + next.total[h] * g[0];
        whole.most[h] = most;
        for (int i = 0; i < wide; i += LANES) {
            float *p = whole.acc + h * wide + i;
            vstore(p, vadd(vmul(vload(p), by), vmul(vload(next.acc + h * wide + i), other)));
        }
    }
}

static drawn_scratch drawn_begin(const attention *a, int64_t row, int head) {
    drawn_scratch t;
    drawn_layout(&t, a->w->scratch, a->d, a->dv, a->share);
    int wide = padded(a->d);
    for (int h = 0; h < a->share; h++) {
        const float *q = unit_at(a->q, &a->r->in[0], row, head * a->share + h);
        FOR_LANES(i, a->d, count) vstore(t.query + h * wide + i, vread(q + i, count));
        if (a->r->ring.turn_k) ring_turn(t.query + h * wide, a->d, a->r->ring.turn_k);
    }
    return t;
}

static void drawn_end(const attention *a, chunk_result whole, int64_t row, int head) {
    for (int h = 0; h < a->share; h++)
        store_head(a, whole.acc + h * padded(a->dv), whole.total[h], row, head * a->share + h);
}

/* One column with one key head: all of its chunks. */
static void attend_column(const attention *a, const sequence *s, int64_t row, int head) {
    drawn_scratch t = drawn_begin(a, row, head);
    chunk_result next = result_at(t.result, a->share), whole = result_at(t.whole, a->share);
    int64_t low, high;
    interval(a, s, row, &low, &high);
    memset(t.whole, 0, (size_t)result_floats(a->share, a->dv) * 4);
    for (int64_t at = low; at <= high;) {
        int64_t stop = (at / CHUNK + 1) * CHUNK - 1;
        stop = stop < high ? stop : high;
        attend_chunk(a, &t, s, head, at, stop, stop + 1, at == low ? whole : next);
        if (at != low) merge_chunk(a, whole, next);
        at = stop + 1;
    }
    drawn_end(a, whole, row, head);
}

/* Chunk number `chunk` of a column with one key head. parts holds the results of all its chunks;
 * who finishes the last of them merges them all. */
static void attend_part(const attention *a, const sequence *s, int64_t row, int head, int64_t chunk,
                        int64_t chunks, float *parts, atomic_int *finished) {
    drawn_scratch t = drawn_begin(a, row, head);
    int64_t low, high, size = result_floats(a->share, a->dv);
    interval(a, s, row, &low, &high);
    int64_t first = (low / CHUNK + chunk) * CHUNK, last = first + CHUNK - 1;
    attend_chunk(a, &t, s, head, first < low ? low : first, last < high ? last : high,
                 first + CHUNK * (int64_t)a->w->pass->threads,
                 result_at(parts + chunk * size, a->share));
    if (atomic_fetch_add(finished, 1) + 1 < chunks) return;
    atomic_store(finished, 0);
    chunk_result whole = result_at(parts, a->share);
    for (int64_t i = 1; i < chunks; i++)
        merge_chunk(a, whole, result_at(parts + i * size, a->share));
    drawn_end(a, whole, row, head);
}

#endif
