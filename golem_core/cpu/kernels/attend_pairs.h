/* Attention of prompt columns, and of towers' rows, whose results are rounded to 8 bits or to BF16
 * anyway: attend_tile.h with keys, queries, weights and values rounded to BF16, two of which a lane
 * multiplies and adds at once.
 *
 * Rounding them moves the next token's distribution by less than a tenth of what the products beside
 * it do (mean KL to the truth of SmolLM2-135M Q4_1 0.00157 -> 0.00168, Gemma 3 270M Q4_K_M 0.00149
 * -> 0.00141) and halves the time. Programs without such products keep f32,
 * and those of BF16 whose keys lie in rings do.
 *
 * The scratch is attend_tile.h's. keys: (pairs of elements, KEYS), values: (pairs of keys, wide),
 * turned: (rows, pairs of elements), each pair 32 bits; a row of weights lies in the first half of
 * its scores. total: (rows, LANES), added up at the end. */
#ifndef GOLEM_ATTEND_PAIRS_H
#define GOLEM_ATTEND_PAIRS_H

#include "attend_tile.h"

#if defined(GOLEM_AVX512)
#define PAIRS_SET "avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#if defined(GOLEM_TILES)
#include "tiles.h"
#define PAIRS __attribute__((target(PAIRS_SET "," TILE_TARGET)))
#else
#define PAIRS __attribute__((target(PAIRS_SET)))
#endif
#define PAIRS_INLINE static inline __attribute__((always_inline)) PAIRS

static int multiplies_pairs(void) { return __builtin_cpu_supports("avx512bf16") != 0; }

/* Sixteen and sixteen more values as BF16, in order. */
PAIRS_INLINE __m512i rounded(vf first, vf second) {
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

/* Pairs of elements that lines hold, the last filled with zeros. */
static inline int element_pairs(int d) { return (d + 31) / 32 * 16; }

/* Elements i .. i + 31 of a line of d, a ring's or of this pass. */
PAIRS_INLINE __m512i read_pairs(const char *line, const float *plain, int i, int d, const int type) {
    vf x[2];
    for (int k = 0; k < 2; k++) {
        int at = i + k * LANES, count = d - at < LANES ? d - at : LANES;
        if (count <= 0) x[k] = vzero();
        else x[k] = line ? ring_read(type, line, at, count) : vread(plain + at, count);
    }
    return rounded(x[0], x[1]);
}

/* See load_keys: pairs of elements take the place of elements. */
PAIRS_INLINE void load_key_pairs(const attention *a, const sequence *s, const char *k, int head,
                                 int64_t block, int64_t low, int64_t high, tile_scratch *t,
                                 const int type) {
    int64_t bytes = ring_line_bytes(type, a->d);
    for (int j = 0; j < KEYS; j += LANES)
        for (int i = 0; i < a->d; i += 2 * LANES) {
            vf in[LANES], out[LANES];
            for (int l = 0; l < LANES; l++) {
                int64_t index = block + j + l;
                if (index < low || index > high) {
                    in[l] = vzero();
                    continue;
                }
                const float *plain =
                    k ? NULL : unit_at(a->k, &a->r->in[1], s->first + index, head);
                in[l] = (vf)read_pairs(k ? k + (j + l) * bytes : NULL, plain, i, a->d, type);
            }
            turn16(in, out);
            for (int l = 0; l < LANES; l++) vstore(t->keys + (int64_t)(i / 2 + l) * KEYS + j, out[l]);
        }
}

/* See load_values: two keys' values side by side. */
PAIRS_INLINE void load_value_pairs(const attention *a, const sequence *s, const char *v, int head,
                                   int64_t block, int64_t low, int64_t high, tile_scratch *t,
                                   const int type) {
    int64_t bytes = ring_line_bytes(type, a->dv);
    int wide = padded(a->dv);
    uint16_t order[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) order[i] = (uint16_t)(i / 2 + i % 2 * LANES);
    __m512i side_by_side = _mm512_loadu_si512(order);
    for (int j = 0; j < KEYS; j += 2)
        FOR_LANES(i, a->dv, count) {
            vf x[2];
            for (int k = 0; k < 2; k++) {
                int64_t index = block + j + k, row = s->first + index;
                if (index < low || index > high) x[k] = vzero();
                else if (v) x[k] = ring_read(type, v + (j + k) * bytes, i, count);
                else x[k] = vread(unit_at(a->v, &a->r->in[2], row, head) + i, count);
            }
            __m512i both = _mm512_permutexvar_epi16(side_by_side, rounded(x[0], x[1]));
            _mm512_storeu_si512(t->values + j / 2 * wide + i, both);
        }
}

PAIRS static void load_pairs(const attention *a, const sequence *s, int head, int64_t block,
                             int64_t low, int64_t high, tile_scratch *t) {
#define LOAD_VALUES(TYPE) load_value_pairs(a, s, v, head, block, low, high, t, TYPE)
#define LOAD_KEYS(TYPE) load_key_pairs(a, s, k, head, block, low, high, t, TYPE)
    LOAD_BLOCK(LOAD_KEYS, LOAD_VALUES)
#undef LOAD_VALUES
#undef LOAD_KEYS
}

/* The lines of a ring's block on their way to the second-level cache, while one before is worked on. */
static void fetch_block(const attention *a, const sequence *s, char *all, int type, int width,
                        int head, int64_t block) {
    int64_t bytes = ring_line_bytes(type, width);
    const char *line = ring_line(&a->r->ring, all, bytes, s->slot, head, block);
    for (int64_t at = 0; at < KEYS * bytes; at += 64) _mm_prefetch(line + at, _MM_HINT_T1);
}

#if defined(GOLEM_TILES)
#include "attend_amx.h"
#else
/* c (rows, 16 vectors) = or += a (rows, depth) · b (depth, vectors), pairs by pairs; line: pairs from
 * one row of a to the next; wide: from one line of b, or row of c, to the next. */
PAIRS_INLINE void multiply_pairs(const float *x, int64_t line, const float *b, int64_t wide, float *c,
                                 int64_t row, int from, int to, const int rows, const int vectors,
                                 const int keep) {
    __m512 acc[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            acc[i][v] = keep ? vload(c + i * row + v * LANES) : vzero();
    for (int k = from; k < to; k++) {
        __m512bh y[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) y[v] = (__m512bh)vload(b + k * wide + v * LANES);
        for (int i = 0; i < rows; i++) {
            __m512bh f = (__m512bh)vset(x[i * line + k]);
            for (int v = 0; v < vectors; v++) acc[i][v] = _mm512_dpbf16_ps(acc[i][v], f, y[v]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) vstore(c + i * row + v * LANES, acc[i][v]);
}

/* Rows first .. rows - 1 of the tile: scores, or results. */
PAIRS static void score_pairs(const tile_scratch *t, int first, int rows, int d) {
    int pairs = element_pairs(d), i = first;
    for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
        multiply_pairs(t->turned + (int64_t)i * pairs, pairs, t->keys, KEYS, t->scores + i * KEYS,
                       KEYS, 0, pairs, TILE_ROWS, TILE_VECTORS, 0);
    for (; i < rows; i++)
        multiply_pairs(t->turned + (int64_t)i * pairs, pairs, t->keys, KEYS, t->scores + i * KEYS,
                       KEYS, 0, pairs, 1, TILE_VECTORS, 0);
}

PAIRS static void add_pairs(const tile_scratch *t, int first, int rows, int wide, int from, int to) {
    for (int i = first; i < rows;) {
        int several = i + TILE_ROWS <= rows, v = 0;
        const float *p = t->scores + i * KEYS;
        float *acc = t->acc + (int64_t)i * wide;
#define ADD(ROWS, VECTORS)                                                                        \
    multiply_pairs(p, KEYS, t->values + v, wide, acc + v, wide, from, to, ROWS, VECTORS, 1)
        for (; v + TILE_VECTORS * LANES <= wide; v += TILE_VECTORS * LANES) {
            if (several) ADD(TILE_ROWS, TILE_VECTORS);
            else ADD(1, TILE_VECTORS);
        }
        for (; v < wide; v += LANES) {
            if (several) ADD(TILE_ROWS, 1);
            else ADD(1, 1);
        }
#undef ADD
        i += several ? TILE_ROWS : 1;
    }
}

static inline void begin_pairs(void) {}
static inline void end_pairs(void) {}
#endif

/* 2^x of x <= 0, to a few units of 2^-22; 0 from -150 on, NaN of NaN. */
PAIRS_INLINE vf power_of(vf x) {
    x = _mm512_max_ps(vset(-160.0f), x);
    vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = vsub(x, n);
    vf p = vset(1.33977e-3f);
    p = vfma(p, r, vset(9.67446e-3f));
    p = vfma(p, r, vset(5.550327e-2f));
    p = vfma(p, r, vset(2.4022184e-1f));
    p = vfma(p, r, vset(6.9314718e-1f));
    return _mm512_scalef_ps(vfma(p, r, vset(1.0f)), n);
}

/* See weigh_row; scores are in units of log2 e. */
PAIRS static void weigh_pairs(const attention *a, tile_scratch *t, int row, int64_t block,
                              int64_t low, int64_t high, int wide) {
    float *s = t->scores + row * KEYS;
    vf x[KEYS / LANES], most = vset(-INFINITY);
    if (low >= block + KEYS || high < block) {
        for (int j = 0; j < KEYS / 2; j += LANES) vstore(s + j, vzero());
        return;
    }
    const vf log2e = vset(1.44269504f), scale = vmul(vset(a->scale), log2e);
    uint64_t seen = ~UINT64_C(0);
    if (low > block) seen &= ~UINT64_C(0) << (low - block);
    if (high < block + KEYS - 1) seen &= ~UINT64_C(0) >> (block + KEYS - 1 - high);
    for (int v = 0; v < KEYS / LANES; v++) {
        x[v] = vload(s + v * LANES);
        if (a->cap > 0) x[v] = vmul(vsoftcap(vmul(x[v], vset(a->scale)), a->cap), log2e);
        else x[v] = vmul(x[v], scale);
        x[v] = _mm512_mask_mov_ps(vset(-INFINITY), (__mmask16)(seen >> (v * LANES)), x[v]);
        most = vmax(most, x[v]);
    }
    float top = vmax_lane(most), before = t->most[row];
    vf sum = vload(t->total + row * LANES);
    if (top > before || before != before) {
        if (before != -INFINITY) {
            float *acc = t->acc + (int64_t)row * wide;
            vf by = power_of(vset(before - top));
            for (int i = 0; i < wide; i += LANES) vstore(acc + i, vmul(vload(acc + i), by));
            sum = vmul(sum, by);
        }
        t->most[row] = before = top;
    }
    for (int v = 0; v < KEYS / LANES; v++) {
        x[v] = power_of(vsub(x[v], vset(before)));
        sum = vadd(sum, x[v]);
    }
    for (int v = 0; v < KEYS / LANES; v += 2)
        _mm512_storeu_si512(s + v * LANES / 2, rounded(x[v], x[v + 1]));
    vstore(t->total + row * LANES, sum);
}

/* Columns from .. from + columns - 1 of a sequence with one key head. */
PAIRS static void attend_pairs(const attention *a, const sequence *s, int64_t from, int columns,
                               int head) {
    tile_scratch t;
    int64_t low, high;
    const golem_ring *ring = &a->r->ring;
    tile_begin(a, s, from, columns, head, &t, &low, &high);
    int wide = padded(a->dv), rows = columns * a->share, pairs = element_pairs(a->d);
    for (int i = 0; i < rows; i++) {
        for (int e = 0; e < a->d; e += 2 * LANES)
            _mm512_storeu_si512(t.turned + (int64_t)i * pairs + e / 2,
                                read_pairs(NULL, t.query[i], e, a->d, 0));
        vstore(t.total + i * LANES, vzero());
    }
    begin_pairs();
    for (int64_t block = low / KEYS * KEYS; block <= high; block += KEYS) {
        int first, more = a->r->i[9] && block + KEYS <= high;
        load_pairs(a, s, head, block, low, high, &t);
        tile_rows(a, &t, columns, block, &first, &rows);
        if (more) fetch_block(a, s, ring->k, ring->type_k, a->d, head, block + KEYS);
        score_pairs(&t, first, rows, a->d);
        if (more) fetch_block(a, s, ring->v, ring->type_v, a->dv, head, block + KEYS);
        for (int i = first; i < rows; i++) {
            int c = i / a->share;
            weigh_pairs(a, &t, i, block, t.low[c], t.high[c], wide);
        }
        int begin = low > block ? (int)(low - block) : 0;
        int end = high < block + KEYS ? (int)(high - block) + 1 : KEYS;
        add_pairs(&t, first, rows, wide, begin / 2, (end + 1) / 2);
    }
    end_pairs();
    for (int i = 0; i < columns * a->share; i++) t.total[i] = vsum(vload(t.total + i * LANES));
    tile_end(a, &t, from, columns, head);
}
#endif

#endif
