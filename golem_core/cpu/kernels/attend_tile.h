/* Attention of many columns of one sequence: a tile of columns times the query heads of one key
 * head, against blocks of 64 keys turned once for the whole tile. */
#ifndef GOLEM_ATTEND_TILE_H
#define GOLEM_ATTEND_TILE_H

#include "attend.h"

#if defined(GOLEM_AVX512)
enum { TILE_ROWS = 6, TILE_VECTORS = 4 };   /* what fits into 32 registers */
#elif defined(GOLEM_AVX2)
enum { TILE_ROWS = 6, TILE_VECTORS = 1 };   /* a vector is two of 16 registers */
#elif defined(GOLEM_NEON)
enum { TILE_ROWS = 6, TILE_VECTORS = 1 };   /* a vector is four of 32 registers */
#else
enum { TILE_ROWS = 1, TILE_VECTORS = 1 };
#endif

enum { TILE_LEAST = 96, TILE_MOST = 384 };   /* rows of a tile, about */

/* Rows after the last that may be computed for nothing: products of attend_pairs.h take strips. */
#if defined(GOLEM_TILES)
enum { SPARE_ROWS = 15 };
#elif defined(GOLEM_AVX512)
enum { SPARE_ROWS = TILE_ROWS - 1 };
#else
enum { SPARE_ROWS = 0 };
#endif

/* Columns whose heads that share a key head make about so many rows. */
static inline int columns_of_rows(int rows, int share) {
    return rows / share < 8 ? 8 : rows / share;
}

/* A tile's columns: the more, the less often keys and values are loaded and turned; but each worker
 * should find some four tiles among the units, of which there are `kv` for every tile. */
static inline int tile_columns(int share, int kv, int64_t columns, int threads) {
    int rows = TILE_MOST;
    while (rows > TILE_LEAST && columns * kv < 4 * (int64_t)threads * columns_of_rows(rows, share))
        rows /= 2;
    return columns_of_rows(rows, share);
}

typedef struct {
    float *keys;                 /* (d, KEYS) */
    float *values;               /* (KEYS, padded dv) */
    float *scores;               /* (rows, KEYS) */
    float *acc;                  /* (rows, padded dv) */
    float *most, *total;         /* (rows,) */
    float *far;                  /* (rows, rels): q·rel */
    const float **query;         /* (rows,) */
    float *turned;               /* (rows, d): queries, where the ring's keys are turned */
    int64_t *low, *high;         /* (columns,) */
} tile_scratch;

static int64_t tile_layout(tile_scratch *t, char *base, int d, int dv, int share, int rels) {
    int64_t columns = columns_of_rows(TILE_MOST, share), at = 0;
    int64_t rows = columns * share + SPARE_ROWS;
#define TAKE(member, bytes) \
    (t->member = (void *)(base + at), at += ((int64_t)(bytes) + 63) / 64 * 64)
    TAKE(keys, (d + 31) / 32 * 32 * KEYS * 4);
    TAKE(values, KEYS * padded(dv) * 4);
    TAKE(scores, rows * KEYS * 4);
    TAKE(acc, rows * padded(dv) * 4);
    TAKE(most, rows * 4);
    TAKE(total, rows * LANES * 4);
    TAKE(far, rows * rels * 4);
    TAKE(query, rows * 8);
    TAKE(turned, rows * ((d + 31) / 32 * 32) * 4);
    TAKE(low, columns * 8);
    TAKE(high, columns * 8);
#undef TAKE
    return at;
}

#if defined(GOLEM_AVX512)
/* sixteen rows of sixteen -> sixteen columns */
static inline void turn16(const vf *x, vf *y) {
    __m512 t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 2]);
        __m512d c = _mm512_castps_pd(t[i + 1]), d = _mm512_castps_pd(t[i + 3]);
        u[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        u[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        u[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
        u[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
    }
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_shuffle_f32x4(u[i], u[4 + i], 0x88);
        __m512 b = _mm512_shuffle_f32x4(u[i], u[4 + i], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(u[8 + i], u[12 + i], 0x88);
        __m512 d = _mm512_shuffle_f32x4(u[8 + i], u[12 + i], 0xdd);
        y[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        y[8 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
        y[4 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
        y[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}
#elif defined(GOLEM_AVX2)
/* eight rows of eight -> eight columns; rows and columns are sizeof(vf) apart */
static inline void turn8(const __m256 *x, __m256 *y) {
    const int step = sizeof(vf) / sizeof(__m256);
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i * step], x[(i + 1) * step]);
        t[i + 1] = _mm256_unpackhi_ps(x[i * step], x[(i + 1) * step]);
    }
    for (int i = 0; i < 8; i++) {
        const __m256 *from = t + i / 4 * 4 + i % 4 / 2;
        u[i] = i % 2 ? _mm256_shuffle_ps(from[0], from[2], 0xee)
                     : _mm256_shuffle_ps(from[0], from[2], 0x44);
    }
    for (int i = 0; i < 4; i++) {
        y[i * step] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        y[(i + 4) * step] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* the same of sixteen */
static inline void turn16(const vf *x, vf *y) {
    turn8(&x[0].a, &y[0].a);
    turn8(&x[8].a, &y[0].b);
    turn8(&x[0].b, &y[8].a);
    turn8(&x[8].b, &y[8].b);
}
#elif defined(GOLEM_NEON)
/* the same, by blocks of four */
static inline void turn16(const vf *x, vf *y) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            float64x2_t even[2], odd[2];
            for (int k = 0; k < 2; k++) {
                float32x4_t a = x[4 * i + 2 * k].q[j], b = x[4 * i + 2 * k + 1].q[j];
                even[k] = vreinterpretq_f64_f32(vtrn1q_f32(a, b));
                odd[k] = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
            }
            y[4 * j].q[i] = vreinterpretq_f32_f64(vtrn1q_f64(even[0], even[1]));
            y[4 * j + 1].q[i] = vreinterpretq_f32_f64(vtrn1q_f64(odd[0], odd[1]));
            y[4 * j + 2].q[i] = vreinterpretq_f32_f64(vtrn2q_f64(even[0], even[1]));
            y[4 * j + 3].q[i] = vreinterpretq_f32_f64(vtrn2q_f64(odd[0], odd[1]));
        }
}
#else
static inline void turn16(const vf *x, vf *y) {
    float a[16][16], b[16][16];
    for (int i = 0; i < 16; i++) vstore(a[i], x[i]);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) b[j][i] = a[i][j];
    for (int i = 0; i < 16; i++) y[i] = vload(b[i]);
}
#endif

/* The keys and values of indices low .. high of one block, as f32; the other places hold zeros.
 *
 * k, v: the block's lines in the ring, kept as type_k and type_v; NULL: rows of this pass. */
static inline __attribute__((always_inline)) void load_values(const attention *a, const sequence *s,
                                                              const char *v, int head,
                                                              int64_t block, int64_t low,
                                                              int64_t high, tile_scratch *t,
                                                              const int type) {
    int64_t bytes = ring_line_bytes(type, a->dv);
    int wide = padded(a->dv);
    for (int j = 0; j < KEYS; j++) {
        float *to = t->values + j * wide;
        int64_t index = block + j, row = s->first + index;
        if (index < low || index > high) {
            for (int i = 0; i < wide; i += LANES) vstore(to + i, vzero());
            continue;
        }
        const float *line = v ? NULL : unit_at(a->v, &a->r->in[2], row, head);
        FOR_LANES(i, a->dv, count)
            vstore(to + i, v ? ring_read(type, v + j * bytes, i, count) : vread(line + i, count));
    }
}

static inline __attribute__((always_inline)) void load_keys(const attention *a, const sequence *s,
                                                            const char *k, int head, int64_t block,
                                                            int64_t low, int64_t high,
                                                            tile_scratch *t, const int type) {
    int64_t bytes = ring_line_bytes(type, a->d);
    for (int j = 0; j < KEYS; j += LANES)
        FOR_LANES(i, a->d, count) {
            vf in[LANES], out[LANES];
            for (int l = 0; l < LANES; l++) {
                int64_t index = block + j + l;
                if (index < low || index > high) {
                    in[l] = vzero();
                    continue;
                }
                const float *line = k ? NULL : unit_at(a->k, &a->r->in[1], s->first + index, head);
                in[l] = k ? ring_read(type, k + (j + l) * bytes, i, count) : vread(line + i, count);
            }
            turn16(in, out);
            for (int l = 0; l < count; l++) vstore(t->keys + (int64_t)(i + l) * KEYS + j, out[l]);
        }
}

/* The body of a function that loads a block by KEYS_BY and VALUES_BY, which are load_keys and
 * load_values or take their place. */
#define LOAD_BLOCK(KEYS_BY, VALUES_BY)                                                           \
    const golem_ring *ring = &a->r->ring;                                                        \
    const char *k = NULL, *v = NULL;                                                             \
    if (a->r->i[9]) {                                                                            \
        k = ring_line(ring, ring->k, ring_line_bytes(ring->type_k, a->d), s->slot, head, block); \
        v = ring_line(ring, ring->v, ring_line_bytes(ring->type_v, a->dv), s->slot, head, block); \
    }                                                                                            \
    FOR_RING_TYPE(ring->type_v, VALUES_BY)                                                       \
    FOR_RING_TYPE(ring->type_k, KEYS_BY)

static void load_block(const attention *a, const sequence *s, int head, int64_t block, int64_t low,
                       int64_t high, tile_scratch *t) {
#define LOAD_VALUES(TYPE) load_values(a, s, v, head, block, low, high, t, TYPE)
#define LOAD_KEYS(TYPE) load_keys(a, s, k, head, block, low, high, t, TYPE)
    LOAD_BLOCK(LOAD_KEYS, LOAD_VALUES)
#undef LOAD_VALUES
#undef LOAD_KEYS
}

/* scores[row][key] = query[row] · key, one lane a key, in order of the elements */
static inline __attribute__((always_inline)) void score_rows(const tile_scratch *t, int first,
                                                             const int rows, int d) {
    for (int v0 = 0; v0 < KEYS / LANES; v0 += TILE_VECTORS) {
        vf acc[TILE_ROWS][TILE_VECTORS];
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < TILE_VECTORS; v++) acc[i][v] = vzero();
        for (int e = 0; e < d; e++) {
            const float *key = t->keys + e * KEYS + v0 * LANES;
            vf k[TILE_VECTORS];
            for (int v = 0; v < TILE_VECTORS; v++) k[v] = vload(key + v * LANES);
            for (int i = 0; i < rows; i++) {
                vf q = vset(t->query[first + i][e]);
                for (int v = 0; v < TILE_VECTORS; v++) acc[i][v] = vfma(q, k[v], acc[i][v]);
            }
        }
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < TILE_VECTORS; v++)
                vstore(t->scores + (first + i) * KEYS + (v0 + v) * LANES, acc[i][v]);
    }
}

/* acc[row] += scores[row] times values, in order of the keys from .. to - 1 */
static inline __attribute__((always_inline)) void add_values(const tile_scratch *t, int first,
                                                             const int rows, int wide, int from,
                                                             int to) {
    int v0 = 0;
#define ADD_VALUES(VECTORS)                                                                        \
    for (; v0 + (VECTORS) * LANES <= wide; v0 += (VECTORS) * LANES) {                              \
        vf acc[TILE_ROWS][VECTORS];                                                                \
        for (int i = 0; i < rows; i++)                                                             \
            for (int v = 0; v < (VECTORS); v++)                                                    \
                acc[i][v] = vload(t->acc + (first + i) * wide + v0 + v * LANES);                   \
        for (int j = from; j < to; j++) {                                                          \
            const float *value = t->values + j * wide + v0;                                        \
            vf x[VECTORS];                                                                         \
            for (int v = 0; v < (VECTORS); v++) x[v] = vload(value + v * LANES);                   \
            for (int i = 0; i < rows; i++) {                                                       \
                vf p = vset(t->scores[(first + i) * KEYS + j]);                                    \
                for (int v = 0; v < (VECTORS); v++) acc[i][v] = vfma(p, x[v], acc[i][v]);          \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i < rows; i++)                                                             \
            for (int v = 0; v < (VECTORS); v++)                                                    \
                vstore(t->acc + (first + i) * wide + v0 + v * LANES, acc[i][v]);                   \
    }
    ADD_VALUES(TILE_VECTORS)
    ADD_VALUES(1)
#undef ADD_VALUES
}

/* Raw scores of one row -> weights exp(s - most), with the running maximum, sum and result brought
 * along. low .. high: what the row sees. */
static void weigh_row(const attention *a, tile_scratch *t, int row, int64_t index, int64_t block,
                      int64_t low, int64_t high, int wide) {
    static const float steps[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float *s = t->scores + row * KEYS;
    if (low >= block + KEYS || high < block) {
        for (int j = 0; j < KEYS; j += LANES) vstore(s + j, vzero());
        return;
    }
    if (a->rels)
        for (int j = 0; j < KEYS; j++) {
            int64_t far = index - block - j;
            far = far < 0 ? 0 : far >= a->rels ? a->rels - 1 : far;
            s[j] += t->far[row * a->rels + far];
        }
    vf first = vset((float)(low - block)), last = vset((float)(high - block));
    vf most = vset(-INFINITY);
    int all = low <= block && high >= block + KEYS - 1;
    for (int j = 0; j < KEYS; j += LANES) {
        vf x = vmul(vload(s + j), vset(a->scale));
        if (a->cap > 0) x = vsoftcap(x, a->cap);
        if (!all) {
            vf at = vadd(vload(steps), vset((float)j));
            x = vless(at, first, vset(-INFINITY), vless(last, at, vset(-INFINITY), x));
        }
        vstore(s + j, x);
        most = vmax(most, x);
    }
    float top = vmax_lane(most), before = t->most[row];
    if (top > before || before != before) {
        if (before != -INFINITY) {
            float *acc = t->acc + row * wide, factor[LANES];
            vf by = vexp_negative(vset(before - top));
            for (int i = 0; i < wide; i += LANES) vstore(acc + i, vmul(vload(acc + i), by));
            vstore(factor, by);
            t->total[row] *= factor[0];
        }
        t->most[row] = before = top;
    }
    vf sum = vzero();
    for (int j = 0; j < KEYS; j += LANES) {
        vf p = vexp_negative(vsub(vload(s + j), vset(before)));
        vstore(s + j, p);
        sum = vadd(sum, p);
    }
    t->total[row] += vsum(sum);
}

/* Where the tile of columns from .. from + columns - 1 starts; low and high: what any of them
 * sees. */
static void tile_begin(const attention *a, const sequence *s, int64_t from, int columns, int head,
                       tile_scratch *t, int64_t *low, int64_t *high) {
    tile_layout(t, a->w->scratch, a->d, a->dv, a->share, a->rels);
    int wide = padded(a->dv), rows = columns * a->share;
    *low = INT64_MAX, *high = -1;
    for (int c = 0; c < columns; c++) {
        interval(a, s, from + c, &t->low[c], &t->high[c]);
        if (t->low[c] > t->high[c]) continue;
        *low = t->low[c] < *low ? t->low[c] : *low;
        *high = t->high[c] > *high ? t->high[c] : *high;
    }
    for (int i = 0; i < rows; i++) {
        int query = head * a->share + i % a->share;
        t->query[i] = unit_at(a->q, &a->r->in[0], from + i / a->share, query);
        if (a->r->ring.turn_k) {
            float *turned = memcpy(t->turned + i * a->d, t->query[i], (size_t)a->d * 4);
            ring_turn(turned, a->d, a->r->ring.turn_k);
            t->query[i] = turned;
        }
        t->most[i] = -INFINITY;
        t->total[i] = 0;
        for (int e = 0; e < wide; e += LANES) vstore(t->acc + i * wide + e, vzero());
    }
}

/* Rows of the tile, *first to the one before *end, outside of which none sees a key of the
 * block. */
static void tile_rows(const attention *a, const tile_scratch *t, int columns, int64_t block,
                      int *first, int *end) {
    *first = columns, *end = 0;
    for (int c = 0; c < columns; c++) {
        if (t->low[c] > t->high[c] || t->low[c] >= block + KEYS || t->high[c] < block) continue;
        *first = c < *first ? c : *first;
        *end = c + 1;
    }
    *first *= a->share, *end *= a->share;
}

/* The columns' results, stored and quantised. */
static void tile_end(const attention *a, const tile_scratch *t, int64_t from, int columns,
                     int head) {
    int wide = padded(a->dv), width = a->share * a->dv;
    for (int i = 0; i < columns * a->share; i++)
        store_head(a, t->acc + i * wide, t->total[i], from + i / a->share,
                   head * a->share + i % a->share);
    if (!a->codes.q || !(a->r->i[11] & GOLEM_TOGETHER)) return;
    for (int c = 0; c < columns; c++)
        if (from + c >= a->codes.drawn)
            quantise_column(a->w, &a->codes, from + c, t->acc + c * width, width,
                            head * (width / 32));
}

/* Columns from .. from + columns - 1 of a sequence with one key head. */
static void attend_tile(const attention *a, const sequence *s, int64_t from, int columns,
                        int head) {
    tile_scratch t;
    int64_t low, high;
    tile_begin(a, s, from, columns, head, &t, &low, &high);
    int wide = padded(a->dv), rows = columns * a->share;
    for (int i = 0; i < rows; i++)
        for (int far = 0; far < a->rels; far++) {
            int query = head * a->share + i % a->share;
            const float *rel = a->rel + ((int64_t)far * a->heads + query) * a->d;
            vf sum = vzero();
            FOR_LANES(e, a->d, count)
                sum = vfma(vread(t.query[i] + e, count), vread(rel + e, count), sum);
            t.far[i * a->rels + far] = vsum(sum);
        }
    for (int64_t block = low / KEYS * KEYS; block <= high; block += KEYS) {
        int first, i;
        load_block(a, s, head, block, low, high, &t);
        tile_rows(a, &t, columns, block, &first, &rows);
        for (i = first; i + TILE_ROWS <= rows; i += TILE_ROWS) score_rows(&t, i, TILE_ROWS, a->d);
        for (; i < rows; i++) score_rows(&t, i, 1, a->d);
        for (i = first; i < rows; i++) {
            int c = i / a->share;
            weigh_row(a, &t, i, s->index + from + c - s->first, block, t.low[c], t.high[c], wide);
        }
        int begin = low > block ? (int)(low - block) : 0;
        int end = high < block + KEYS ? (int)(high - block) + 1 : KEYS;
        for (i = first; i + TILE_ROWS <= rows; i += TILE_ROWS)
            add_values(&t, i, TILE_ROWS, wide, begin, end);
        for (; i < rows; i++) add_values(&t, i, 1, wide, begin, end);
    }
    tile_end(a, &t, from, columns, head);
}

#endif
