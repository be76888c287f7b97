/* Attention of prompt columns, and of towers' rows, whose results are rounded to 8 bits or to BF16
 * anyway: attend_tile.h with keys, queries, weights and values rounded to BF16, two of which a lane
 * multiplies and adds at once.
 *
 * Rounding them moves the next token's distribution by less than a tenth of what the products
 * beside it do (mean KL to the truth of SmolLM2-135M Q4_1 0.00157 -> 0.00168, Gemma 3 270M Q4_K_M
 * 0.00149
 * -> 0.00141) and halves the time. Programs without such products keep f32, and those of BF16 whose
 * keys lie in rings do.
 *
 * A strip of rows has its scores, its weights and its results of a block before the next strip
 * does: scores stay in the first-level cache, and products hide what weights wait for.
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
PAIRS_INLINE __m512i read_pairs(const char *line, const float *plain, int i, int d,
                                const int type) {
    vf x[2];
    if (line && type == RING_BF16 && i + 2 * LANES <= d) return _mm512_loadu_si512(line + 2 * i);
    for (int k = 0; k < 2; k++) {
        int at = i + k * LANES, count = d - at < LANES ? d - at : LANES;
        if (count <= 0) x[k] = vzero();
        else x[k] = line ? ring_read(type, line, at, count) : vread(plain + at, count);
    }
    return rounded(x[0], x[1]);
}

/* See load_keys: pairs of elements take the place of elements. whole: all of the block's keys are
 * read from a ring, and their lines are of whole vectors. */
PAIRS_INLINE void load_key_pairs(const attention *a, const sequence *s, const char *k, int head,
                                 int64_t block, int64_t low, int64_t high, tile_scratch *t,
                                 const int whole, const int type) {
    int64_t bytes = ring_line_bytes(type, a->d);
    for (int j = 0; j < KEYS; j += LANES)
        for (int i = 0; i < a->d; i += 2 * LANES) {
            vf in[LANES], out[LANES];
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) {
                int64_t index = block + j + l;
                if (whole) {
                    in[l] = (vf)read_pairs(k + (j + l) * bytes, NULL, i, i + 2 * LANES, type);
                    continue;
                }
                if (index < low || index > high) {
                    in[l] = vzero();
                    continue;
                }
                const float *plain =
                    k ? NULL : unit_at(a->k, &a->r->in[1], s->first + index, head);
                in[l] = (vf)read_pairs(k ? k + (j + l) * bytes : NULL, plain, i, a->d, type);
            }
            turn16(in, out);
            for (int l = 0; l < LANES; l++)
                vstore(t->keys + (int64_t)(i / 2 + l) * KEYS + j, out[l]);
        }
}

/* See load_values: two keys' values side by side. */
PAIRS_INLINE void load_value_pairs(const attention *a, const sequence *s, const char *v, int head,
                                   int64_t block, int64_t low, int64_t high, tile_scratch *t,
                                   const int whole, const int type) {
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
                if (whole) x[k] = ring_read(type, v + (j + k) * bytes, i, LANES);
                else if (index < low || index > high) x[k] = vzero();
                else if (v) x[k] = ring_read(type, v + (j + k) * bytes, i, count);
                else x[k] = vread(unit_at(a->v, &a->r->in[2], row, head) + i, count);
            }
            __m512i both = _mm512_permutexvar_epi16(side_by_side, rounded(x[0], x[1]));
            _mm512_storeu_si512(t->values + j / 2 * wide + i, both);
        }
}

PAIRS static void load_pairs(const attention *a, const sequence *s, int head, int64_t block,
                             int64_t low, int64_t high, tile_scratch *t) {
    int whole = low <= block && high >= block + KEYS - 1 && a->r->i[9];
#define LOAD_VALUES(TYPE)                                                    \
    if (whole && a->dv % LANES == 0)                                         \
        load_value_pairs(a, s, v, head, block, low, high, t, 1, TYPE);       \
    else load_value_pairs(a, s, v, head, block, low, high, t, 0, TYPE)
#define LOAD_KEYS(TYPE)                                                      \
    if (whole && a->d % (2 * LANES) == 0)                                    \
        load_key_pairs(a, s, k, head, block, low, high, t, 1, TYPE);         \
    else load_key_pairs(a, s, k, head, block, low, high, t, 0, TYPE)
    LOAD_BLOCK(LOAD_KEYS, LOAD_VALUES)
#undef LOAD_VALUES
#undef LOAD_KEYS
}

/* A ring's block on its way to the second-level cache, a share of it with every strip of the block
 * before. */
typedef struct {
    const char *line[2];        /* of keys and of values */
    int64_t at, bytes[2], some; /* `some` bytes a strip */
} coming;

static coming block_comes(const attention *a, const sequence *s, int head, int64_t block,
                          int strips) {
    const golem_ring *ring = &a->r->ring;
    coming c = {.bytes = {KEYS * ring_line_bytes(ring->type_k, a->d),
                          KEYS * ring_line_bytes(ring->type_v, a->dv)}};
    c.line[0] = ring_line(ring, ring->k, c.bytes[0] / KEYS, s->slot, head, block);
    c.line[1] = ring_line(ring, ring->v, c.bytes[1] / KEYS, s->slot, head, block);
    int64_t all = c.bytes[0] > c.bytes[1] ? c.bytes[0] : c.bytes[1];
    c.some = (all / 64 + strips) / strips * 64;
    return c;
}

static inline void fetch_some(coming *c) {
    for (int64_t end = c->at + c->some; c->at < end; c->at += 64)
        for (int i = 0; i < 2; i++)
            if (c->at < c->bytes[i]) _mm_prefetch(c->line[i] + c->at, _MM_HINT_T1);
}

#if defined(GOLEM_TILES)
#include "attend_amx.h"
#else
enum { STRIP_ROWS = TILE_ROWS };

/* c (STRIP_ROWS, 16 vectors) = or += a (STRIP_ROWS, depth) · b (depth, vectors), pairs by pairs;
 * line: pairs from one row of a to the next; wide: from one line of b, or row of c, to the next. */
PAIRS_INLINE void multiply_pairs(const float *x, int64_t line, const float *b, int64_t wide,
                                 float *c, int64_t row, int from, int to, const int vectors,
                                 const int keep) {
    __m512 acc[STRIP_ROWS][TILE_VECTORS];
    for (int i = 0; i < STRIP_ROWS; i++)
        for (int v = 0; v < vectors; v++)
            acc[i][v] = keep ? vload(c + i * row + v * LANES) : vzero();
    for (int k = from; k < to; k++) {
        __m512bh y[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) y[v] = (__m512bh)vload(b + k * wide + v * LANES);
        for (int i = 0; i < STRIP_ROWS; i++) {
            __m512bh f = (__m512bh)vset(x[i * line + k]);
            for (int v = 0; v < vectors; v++) acc[i][v] = _mm512_dpbf16_ps(acc[i][v], f, y[v]);
        }
    }
    for (int i = 0; i < STRIP_ROWS; i++)
        for (int v = 0; v < vectors; v++) vstore(c + i * row + v * LANES, acc[i][v]);
}

/* DO(vectors) with their number as a constant. */
#define FOR_VECTORS(vectors, DO) \
    switch (vectors) {           \
    case 1: DO(1); break;        \
    case 2: DO(2); break;        \
    case 3: DO(3); break;        \
    default: DO(4);              \
    }

/* Scores of a strip of rows with keys from .. to - 1 of the block, and perhaps with some beside. */
PAIRS static void score_pairs(const tile_scratch *t, int row, int d, int from, int to) {
    int pairs = element_pairs(d), v = from / LANES, vectors = (to + LANES - 1) / LANES - v;
#define SCORE(VECTORS)                                                                            \
    multiply_pairs(t->turned + (int64_t)row * pairs, pairs, t->keys + v * LANES, KEYS,             \
                   t->scores + row * KEYS + v * LANES, KEYS, 0, pairs, VECTORS, 0)
    FOR_VECTORS(vectors, SCORE)
#undef SCORE
}

/* Results of a strip += its weights times values from .. to - 1. */
PAIRS static void add_pairs(const tile_scratch *t, int row, int wide, int from, int to) {
    const float *p = t->scores + row * KEYS;
    float *acc = t->acc + (int64_t)row * wide;
    for (int v = 0; v < wide; v += TILE_VECTORS * LANES) {
#define ADD(VECTORS)                                                                              \
    multiply_pairs(p, KEYS, t->values + v, wide, acc + v, wide, from / 2, (to + 1) / 2, VECTORS, 1)
        FOR_VECTORS((wide - v) / LANES, ADD)
#undef ADD
    }
}

static inline void begin_pairs(void) {}
static inline void end_pairs(void) {}
#endif

/* 2^x of x of -127 .. 127 at most, to 6e-5 of it; 0 of less, NaN of NaN.
 *
 * 2^n is added to the polynomial's bits, as its multiplication would take the units that products
 * need; n is what the sum with a large number keeps in its last bits. */
PAIRS_INLINE vf power_of(vf x) {
    const vf large = vset(0x1.8p23f);
    x = _mm512_max_ps(vset(-127.0f), x);
    vf n = vadd(x, large), r = vsub(x, vsub(n, large));
    vf p = vfma(vset(9.67446e-3f), r, vset(5.550327e-2f));
    p = vfma(p, r, vset(2.4022184e-1f));
    p = vfma(p, r, vset(6.9314718e-1f));
    p = vfma(p, r, vset(1.0f));
    return (vf)_mm512_add_epi32((__m512i)p, _mm512_slli_epi32((__m512i)n, 23));
}

/* A row's weights are 2^(factor * (score - most)). most is its largest score so far, or one less
 * than SLACK below that in log2: so results are multiplied anew for few blocks. */
enum { SLACK = 8 };

/* Weights are from here on those of another `most`. */
PAIRS static void raise_most(tile_scratch *t, int row, float top, float factor, int wide) {
    float before = t->most[row];
    t->most[row] = top;
    if (before == -INFINITY) return;
    float *acc = t->acc + (int64_t)row * wide, *total = t->total + row * LANES;
    vf by = power_of(vset(factor * (before - top)));
    for (int i = 0; i < wide; i += LANES) vstore(acc + i, vmul(vload(acc + i), by));
    vstore(total, vmul(vload(total), by));
}

/* See weigh_row. Bit j of seen: whether the row sees key j of the block; edge: perhaps not all.
 * factor: log2 e times what is left to multiply scores by. */
PAIRS_INLINE void weigh_pairs(const attention *a, tile_scratch *t, int row, uint64_t seen,
                              float factor, int wide, const int edge, const int capped) {
    float *s = t->scores + row * KEYS;
    vf x[KEYS / LANES];
    for (int v = 0; v < KEYS / LANES; v++) {
        x[v] = vload(s + v * LANES);
        if (capped) x[v] = vsoftcap(vmul(x[v], vset(a->scale)), a->cap);
        __mmask16 some = (__mmask16)(seen >> (v * LANES));
        if (edge) x[v] = _mm512_mask_mov_ps(vset(-INFINITY), some, x[v]);
    }
    vf most = vmax(vmax(x[0], x[1]), vmax(x[2], x[3]));
    float before = t->most[row];
    if (_mm512_cmp_ps_mask(most, vset(before + SLACK / factor), _CMP_NLE_UQ))
        raise_most(t, row, before = vmax_lane(most), factor, wide);
    vf less = vset(-before * factor), by = vset(factor), sum = vload(t->total + row * LANES);
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    for (int v = 0; v < KEYS / LANES; v += 2) {
        __m512i p = rounded(power_of(vfma(x[v], by, less)), power_of(vfma(x[v + 1], by, less)));
        sum = _mm512_dpbf16_ps(sum, ones, (__m512bh)p);
        _mm512_storeu_si512(s + v * LANES / 2, p);
    }
    vstore(t->total + row * LANES, sum);
}

/* Which keys of a block a column of the tile sees, a bit each. */
static uint64_t seen_by(const tile_scratch *t, int column, int64_t block) {
    int64_t low = t->low[column] - block, high = t->high[column] - block;
    if (low >= KEYS || high < 0 || low > high) return 0;
    uint64_t seen = ~UINT64_C(0);
    if (low > 0) seen &= ~UINT64_C(0) << low;
    if (high < KEYS - 1) seen &= ~UINT64_C(0) >> (KEYS - 1 - high);
    return seen;
}

/* One block of keys for the rows first .. rows - 1 of a tile, strip by strip. edge: whether some
 * column does not see all of them. */
PAIRS_INLINE void attend_block(const attention *a, tile_scratch *t, int first, int rows,
                               int64_t block, coming *next, const int edge, const int capped) {
    const int wide = padded(a->dv);
    float factor = 1.44269504f * (capped ? 1.0f : a->scale);
    for (int row = first; row < rows; row += STRIP_ROWS) {
        int count = rows - row < STRIP_ROWS ? rows - row : STRIP_ROWS, from = 0, to = KEYS;
        uint64_t seen[STRIP_ROWS], all = 0;
        if (edge) {
            for (int i = 0; i < count; i++)
                all |= seen[i] = seen_by(t, (row + i) / a->share, block);
            if (!all) continue;
            from = __builtin_ctzll(all), to = KEYS - __builtin_clzll(all);
        }
        if (next) fetch_some(next);
        score_pairs(t, row, a->d, from, to);
        for (int i = 0; i < count; i++)
            weigh_pairs(a, t, row + i, edge ? seen[i] : 0, factor, wide, edge, capped);
        for (int i = count; i < STRIP_ROWS; i++) memset(t->scores + (row + i) * KEYS, 0, KEYS * 2);
        add_pairs(t, row, wide, from, to);
    }
}

/* Columns from .. from + columns - 1 of a sequence with one key head. */
PAIRS static void attend_pairs(const attention *a, const sequence *s, int64_t from, int columns,
                               int head) {
    tile_scratch t;
    int64_t low, high, all_low = 0, all_high = INT64_MAX;
    tile_begin(a, s, from, columns, head, &t, &low, &high);
    int rows = columns * a->share, pairs = element_pairs(a->d);
    for (int i = 0; i < rows; i++) {
        for (int e = 0; e < a->d; e += 2 * LANES)
            _mm512_storeu_si512(t.turned + (int64_t)i * pairs + e / 2,
                                read_pairs(NULL, t.query[i], e, a->d, 0));
        vstore(t.total + i * LANES, vzero());
    }
    for (int c = 0; c < columns; c++) {
        all_low = t.low[c] > all_low ? t.low[c] : all_low;
        all_high = t.high[c] < all_high ? t.high[c] : all_high;
    }
    begin_pairs();
    for (int64_t block = low / KEYS * KEYS; block <= high; block += KEYS) {
        int first, edge = all_low > block || all_high < block + KEYS - 1;
        int more = a->r->i[9] && block + KEYS <= high;
        coming next;
        tile_rows(a, &t, columns, block, &first, &rows);
        if (first >= rows) continue;
        load_pairs(a, s, head, block, low, high, &t);
        if (more) next = block_comes(a, s, head, block + KEYS, (rows - first) / STRIP_ROWS + 1);
#define ATTEND(EDGE, CAPPED) \
    attend_block(a, &t, first, rows, block, more ? &next : NULL, EDGE, CAPPED)
        if (a->cap > 0) ATTEND(1, 1);
        else if (edge) ATTEND(1, 0);
        else ATTEND(0, 0);
#undef ATTEND
    }
    end_pairs();
    for (int i = 0; i < columns * a->share; i++) t.total[i] = vsum(vload(t.total + i * LANES));
    tile_end(a, &t, from, columns, head);
}
#endif

#endif
