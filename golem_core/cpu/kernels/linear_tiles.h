/* Prompt columns with AMX: 16 columns times a group of 16 rows of weights are one tile of sums.
 *
 * A product of tiles takes 16 cycles for up to 64 bytes of each column, and what follows it, a sum
 * of a row and column scaled, takes one for a vector of 16. So that neither waits for the other,
 * products should span as many bytes as have one scale of the weights; that is mostly 32. The other
 * half of the 64 is put to use for precision: a column's values are rounded to about 10 bits,
 * v = 4 · high + low, and high meets four times the weights' codes where low meets the codes
 * themselves. A product is then of 32 values that have one scale for 256, and no shift or sum of a
 * smaller block is left to be made up for. Codes that fill 8 bits leave no room for the four: their
 * two halves are two products.
 *
 * Groups' codes are unpacked as tiles, 256 weights at a time, which all columns meet; the columns
 * are tiles as they were quantised. Registers 0 and 1 hold sums, in turns, 2 and 3 weights, 4 .. 7
 * columns. See tiles.h. */
#ifndef GOLEM_LINEAR_TILES_H
#define GOLEM_LINEAR_TILES_H

#include "linear_avx512_codes.h"
#include "tiles.h"

#define TILES_TARGET TARGET "," TILE_TARGET
#define TILES_INLINE static inline __attribute__((always_inline, target(TILES_TARGET)))
#define TILES_FUNCTION __attribute__((target(TILES_TARGET))) static

enum { TILE_COLUMNS = 16, TILE_BYTES = 1024, TILE_PARTS = 8 };   /* parts of 256 weights */
enum { TILE_HIGHEST = 635 };                         /* 4 · 127 + 127 */

/* 32 values of a prompt column: value i = base · (4 · high + low). */
typedef struct {
    int8_t code[2][2][16];   /* of each half: high of its 16 values, low of them */
    float base;              /* the same of all 256 */
    float half[2], sum;      /* sums of 4 · high + low */
    float unused[8];
} tile_column;

enum { TILE_RECORDS = 2 };
_Static_assert(sizeof(tile_column) == TILE_RECORDS * sizeof(golem_q8), "a whole number of records");

/* Codes of 8 bits: 4 times them does not fit into a byte. */
TILES_INLINE int is_wide(const enum type type) {
    return type == T_Q8_0 || type == T_IQ4_NL || type == T_IQ4_XS;
}

/* Parts that have one scale; those that have two take a product for each. */
TILES_INLINE int parts_of_scale(const enum type type, const int parts) {
    switch (type) {
    case T_Q4_0: case T_Q5_0: case T_Q8_0: case T_IQ4_NL: case T_TQ1_0: case T_TQ2_0: case T_Q1_0:
    case T_Q2_0: case T_PQ2_0: case T_PTQ1_0: return parts / 2;
    default: return 1;
    }
}

/* 256 weights of up to two groups: for each part one tile, or two of wide codes or halves. */
typedef struct {
    _Alignas(64) uint8_t tile[2][TILE_PARTS][2][TILE_BYTES];
    scales s[2][TILE_PARTS];
} tile_chunk;

/* Vector v of a part, as signed bytes. */
TILES_INLINE __m512i signed_code(const enum type type, const int bits, const uint8_t *part,
                                 const int v) {
    __m512i x = load_code(type, bits, part, v);
    const int shift = offset_of(type);
    return shift < 0 ? x : _mm512_sub_epi8(x, byte_mask(1 << shift));
}

/* Row of a tile that meets high (0) or low (1) codes of half h. */
TILES_INLINE __m512i *tile_row(uint8_t *tile, const int h, const int low, const int row) {
    return (__m512i *)(tile + 64 * (8 * h + 4 * low + row));
}

TILES_INLINE void unpack_part(const enum type type, const int bits, const uint8_t *part,
                              uint8_t (*tile)[TILE_BYTES]) {
#pragma GCC unroll 8
    for (int v = 0; v < 8; v++) {
        const int h = v / 4;
        __m512i x = signed_code(type, bits, part, v), twice = _mm512_add_epi8(x, x);
        if (is_wide(type)) {
            *tile_row(tile[0], h, 0, v % 4) = *tile_row(tile[1], h, 1, v % 4) = x;
        } else if (has_halves(type)) {
            *tile_row(tile[h], 0, 0, v % 4) = _mm512_add_epi8(twice, twice);
            *tile_row(tile[h], 0, 1, v % 4) = x;
        } else {
            *tile_row(tile[0], h, 0, v % 4) = _mm512_add_epi8(twice, twice);
            *tile_row(tile[0], h, 1, v % 4) = x;
        }
    }
}

/* `count` parts of a group. */
TILES_INLINE void unpack_chunk(const enum type type, const int bits, const int parts,
                               const int head, const uint8_t *group, int count, tile_chunk *p,
                               int g) {
    sixes words;
    if (has_sixes(type)) words = load_sixes(group + 64);
    for (int i = 0; i < count; i++) {
        const uint8_t *super = group + i / parts * (head + parts * 64 * bits);
        const int k = i % parts;
        __m512i word = _mm512_setzero_si512();
        if (has_sixes(type))
            word = _mm512_srlv_epi32(words.word[i >> 1], _mm512_set1_epi32(12 * (i & 1)));
        p->s[g][i] = load_scales(type, super, k, parts, word, 0);
        unpack_part(type, bits, super + head + k * 64 * bits, p->tile[g][i]);
    }
}

/* Where 16 columns' records of a chunk lie: part i of column c at at + i · line + c ·
 * tile_column. */
typedef struct {
    const tile_column *at;
    ptrdiff_t line;       /* bytes */
} tile_source;

TILES_INLINE const tile_column *source_of(const tile_source *x, int part) {
    return (const tile_column *)((const char *)x->at + part * x->line);
}

/* The sums of product j, left in sums: of part j / (2 if halves) or of those that share a scale.
 * `from`: the first part of the columns in registers 4 .. */
TILES_INLINE void start_product(const enum type type, const int span, tile_chunk *p, int g,
                                int from, const int j, const int plane) {
    const int halves = has_halves(type), to = is_wide(type) ? plane : j & 1;
    tile_zero(to);
    if (halves) {
        tile_load(2 + (j & 1), p->tile[g][from + j / 2][j % 2], 64);
        tile_add_bytes(to, 4 + j, 2 + (j & 1));
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < span; i++) {
        const int b = 2 + (is_wide(type) ? plane : i & 1);
        tile_load(b, p->tile[g][from + j * span + i][plane], 64);
        tile_add_bytes(to, 4 + j * span + i, b);
    }
}

/* Adds the sums of product j, scaled, to the columns' acc. */
TILES_INLINE void scale_product(const enum type type, const int span, const tile_chunk *p, int g,
                                const tile_source *x, int from, const int j,
                                int32_t (*sums)[TILE_COLUMNS][16], __m512 *acc) {
    const int halves = has_halves(type), h = halves ? j % 2 : 0;
    const int part = from + (halves ? j / 2 : j * span), at = is_wide(type) ? 0 : j & 1;
    const scales *s = &p->s[g][part];
    const tile_column *column = source_of(x, part);
    const __m512 scale = s->scale[h], low = s->low[h];
#pragma GCC unroll 16
    for (int c = 0; c < TILE_COLUMNS; c++) {
        __m512i y = _mm512_load_si512(sums[at][c]);
        if (is_wide(type))
            y = _mm512_add_epi32(_mm512_slli_epi32(y, 2), _mm512_load_si512(sums[1][c]));
        acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(y), scale, acc[c]);
        if (type == T_Q4_1 || type == T_Q5_1)
            acc[c] = _mm512_fmadd_ps(low, _mm512_set1_ps(column[c].sum), acc[c]);
        if (type == T_Q4_K || type == T_Q5_K)
            acc[c] = _mm512_fnmadd_ps(low, _mm512_set1_ps(column[c].sum), acc[c]);
        if (type == T_Q2_K)
            acc[c] = _mm512_fnmadd_ps(low, _mm512_set1_ps(column[c].half[h]), acc[c]);
    }
}

/* Parts whose columns lie in registers at a time. */
TILES_INLINE int parts_held(const enum type type) { return has_halves(type) ? 2 : 4; }

/* Products of parts from .. of one group with the columns in registers 4 .., of which there are
 * `count` parts in all. acc: (16, 16) sums so far of the chunk. */
TILES_INLINE void add_products(const enum type type, const int span, tile_chunk *p, int g,
                               const tile_source *x, int from, int count, float *sofar) {
    const int halves = has_halves(type), most = halves ? 4 : parts_held(type) / span;
    int here = count - from < parts_held(type) ? count - from : parts_held(type);
    int products = halves ? 2 * here : here / span;
    _Alignas(64) int32_t sums[2][TILE_COLUMNS][16];
    __m512 acc[TILE_COLUMNS];
#pragma GCC unroll 16
    for (int c = 0; c < TILE_COLUMNS; c++)
        acc[c] = from ? _mm512_load_ps(sofar + 16 * c) : _mm512_setzero_ps();
    start_product(type, span, p, g, from, 0, 0);
#pragma GCC unroll 4
    for (int j = 0; j < most; j++) {
        if (j >= products) break;
        if (is_wide(type)) {
            start_product(type, span, p, g, from, j, 1);
            tile_store(0, sums[0], 64);
            tile_store(1, sums[1], 64);
            if (j + 1 < most && j + 1 < products) start_product(type, span, p, g, from, j + 1, 0);
        } else {
            if (j + 1 < most && j + 1 < products) start_product(type, span, p, g, from, j + 1, 0);
            tile_store(j & 1, sums[j & 1], 64);
        }
        scale_product(type, span, p, g, x, from, j, sums, acc);
    }
#pragma GCC unroll 16
    for (int c = 0; c < TILE_COLUMNS; c++) _mm512_store_ps(sofar + 16 * c, acc[c]);
}

/* 16 columns times the chunk: added to out[group] (16, 16). */
TILES_INLINE void add_columns(const enum type type, const int span, tile_chunk *p, int count,
                              int groups, const tile_source *x, float *const *out) {
    const int held = parts_held(type);
    _Alignas(64) float sofar[2][TILE_COLUMNS * 16];
    for (int from = 0; from < count; from += held) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int part = has_halves(type) ? i / 2 : i;
            if (from + part >= count) break;
            tile_load(4 + i, source_of(x, from + part)->code[has_halves(type) ? i % 2 : 0],
                      sizeof(tile_column));
        }
        for (int g = 0; g < groups; g++) add_products(type, span, p, g, x, from, count, sofar[g]);
    }
    for (int g = 0; g < groups; g++)
        for (int c = 0; c < TILE_COLUMNS; c++) {
            float *y = out[g] + 16 * c;
            __m512 base = _mm512_set1_ps(x->at[c].base), acc = _mm512_load_ps(sofar[g] + 16 * c);
            _mm512_storeu_ps(y, _mm512_fmadd_ps(acc, base, _mm512_loadu_ps(y)));
        }
}

/* Sums: 16 columns of 16 rows; weights: 16 rows of 64 bytes, columns: 64 bytes, half with
 * halves. */
TILES_INLINE void configure(const enum type type) {
    const int halves = has_halves(type);
    tile_shapes s = {0};
    for (int i = 0; i < 2; i++) tile_shape(&s, i, TILE_COLUMNS, 64);
    for (int i = 2; i < 4; i++) tile_shape(&s, i, halves ? 8 : 16, 64);
    for (int i = 4; i < 8; i++) tile_shape(&s, i, TILE_COLUMNS, halves ? 32 : 64);
    tile_configure(&s);
}

/* Columns that are fewer than a tile's, and what is left of it empty. */
TILES_INLINE void copy_columns(const tile_source *x, int count, int columns,
                               tile_column (*few)[TILE_COLUMNS]) {
    for (int i = 0; i < count; i++)
        memcpy(few[i], source_of(x, i), (size_t)columns * sizeof(tile_column));
}

/* nc columns times one or two groups. What is left of the columns after whole tiles is done as the
 * last 16, apart from those already there; fewer than 16 as a tile that is filled up. */
TILES_INLINE void prompt_tiles(const enum type type, const int bits, const int parts,
                               const int head, const uint8_t *first, const uint8_t *second, int in,
                               const golem_q8 *a, int n, int nc, float *out_first,
                               float *out_second) {
    const int size = TILE_PARTS / parts * (head + parts * 64 * bits);
    const int span = parts_of_scale(type, parts), groups = second ? 2 : 1, over = nc % TILE_COLUMNS;
    const uint8_t *group[2] = {first, second};
    float *to[2] = {out_first, out_second};
    tile_column few[TILE_PARTS][TILE_COLUMNS];
    _Alignas(64) float last[2][TILE_COLUMNS * 16];
    tile_chunk p;
    if (is_wide(type)) memset(p.tile, 0, sizeof p.tile);
    if (nc < TILE_COLUMNS) memset(few, 0, sizeof few);
    memset(last, 0, sizeof last);
    for (int g = 0; g < groups; g++) memset(to[g], 0, sizeof(float) * GOLEM_GROUP * (size_t)nc);
    configure(type);
    for (int left = in / 32; left > 0; left -= TILE_PARTS, a += (ptrdiff_t)TILE_PARTS * n) {
        const int count = left < TILE_PARTS ? left : TILE_PARTS;
        tile_source x = {(const tile_column *)a, (ptrdiff_t)sizeof(golem_q8) * n};
        float *last_to[2] = {last[0], last[1]};
        for (int g = 0; g < groups; g++) {
            unpack_chunk(type, bits, parts, head, group[g], count, &p, g);
            group[g] += size;
        }
        for (int c = 0; c + TILE_COLUMNS <= nc; c += TILE_COLUMNS) {
            float *out[2] = {out_first + 16 * c, second ? out_second + 16 * c : NULL};
            x.at = (const tile_column *)a + c;
            add_columns(type, span, &p, count, groups, &x, out);
        }
        if (!over) continue;
        if (nc < TILE_COLUMNS) {
            x.at = (const tile_column *)a;
            copy_columns(&x, count, nc, few);
            x = (tile_source){few[0], sizeof few[0]};
        } else {
            x.at = (const tile_column *)a + nc - TILE_COLUMNS;
        }
        add_columns(type, span, &p, count, groups, &x, last_to);
    }
    tile_release();
    const int from = nc < TILE_COLUMNS ? 0 : TILE_COLUMNS - over;
    for (int g = 0; g < groups; g++)
        memcpy(to[g] + 16 * (nc - over), last[g] + 16 * from, sizeof(float) * 16 * (size_t)over);
}

#define PROMPT_TILES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                  \
    TILES_FUNCTION void prompt_##NAME(const uint8_t *first, const uint8_t *second, int in,        \
                                      const golem_act *a, int c0, int nc, float *out_first,       \
                                      float *out_second) {                                        \
        prompt_tiles(T_##NAME, BITS, COLS / 32, HEAD, first, second, in,                          \
                     a->q + TILE_RECORDS * c0, a->n, nc, out_first, out_second);                  \
    }
GOLEM_CODE_TYPES(PROMPT_TILES)

/* At most 256 values, a multiple of 32. */
TILES_INLINE void quantise_columns(const float *x, int in, golem_q8 *q, int n) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int i = 0; i < in; i += 16)
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
    float inverse, base;
    scale_of((uint32_t)_mm512_reduce_max_epu32(most), &inverse, &base);
    const __mmask16 used = inverse > 0 ? 0xffff : 0;
    const __m512 by = _mm512_set1_ps(inverse * (TILE_HIGHEST / 127.0f));
    for (int i = 0; i < in / 32; i++, q += n) {
        tile_column *to = (tile_column *)q;
        for (int h = 0; h < 2; h++, x += 16) {
            __m512i v = _mm512_maskz_cvtps_epi32(used, _mm512_mul_ps(_mm512_loadu_ps(x), by));
            __m512i high = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(2)), 2);
            high = _mm512_max_epi32(high, _mm512_set1_epi32(-127));
            high = _mm512_min_epi32(high, _mm512_set1_epi32(127));
            __m512i low = _mm512_sub_epi32(v, _mm512_slli_epi32(high, 2));
            _mm_storeu_si128((__m128i *)to->code[h][0], _mm512_cvtepi32_epi8(high));
            _mm_storeu_si128((__m128i *)to->code[h][1], _mm512_cvtepi32_epi8(low));
            to->half[h] = (float)_mm512_reduce_add_epi32(v);
        }
        to->sum = to->half[0] + to->half[1];
        to->base = base * (127.0f / TILE_HIGHEST);
    }
}

TILES_FUNCTION void quantise_tiles(const float *x, int in, golem_q8 *q, int n) {
    for (; in > 0; in -= GOLEM_PROMPT_BLOCK, x += GOLEM_PROMPT_BLOCK) {
        quantise_columns(x, in < GOLEM_PROMPT_BLOCK ? in : GOLEM_PROMPT_BLOCK, q, n);
        q += (ptrdiff_t)(GOLEM_PROMPT_BLOCK / GOLEM_ACT_BLOCK) * n;
    }
}

#endif
