/* Two groups at once with AVX-512: what linear_avx512.c does with one, for ten columns or more.
 * linear_avx512_prompt.h multiplies prompt columns by the same means.
 *
 * With one group every product wants a load of its own, to broadcast four activations, and a core
 * loads no more vectors a cycle than it multiplies. Here a broadcast serves two groups, so that
 * multiplying alone is the limit. Eight parts of both groups meet all columns, four at a time with
 * their sums in registers; the first four leave the codes they unpack on the stack for the others,
 * because unpacking fills only gaps between products. The steps of a row and column are those of
 * one group, so the bits are too.
 */
#ifndef GOLEM_LINEAR_AVX512_PAIRS_H
#define GOLEM_LINEAR_AVX512_PAIRS_H

#include "linear_avx512_codes.h"

enum { CHUNK = 8 }; /* parts that meet all columns: 256 weights, a multiple of every superblock */
enum { TILE = 4 };  /* columns side by side in registers */
/* Columns from which a broadcast is to serve two groups: before, eight columns meet one group as
 * soon (57 cycles for 32 x 16 weights of Q4_0 on Zen 5, and 66 to 76 ten, 75 to 88 twelve). */
enum { PAIR_FROM = 10 };
enum { NEAR = 4096 }; /* bytes; smaller chunks are fetched three ahead, others two */

/* A part of two groups, unpacked. */
typedef struct {
    __m512i w[2][8];
    scales s[2];
} pair_part;

/* Scales of part i of the superblock; words: its sixes, for types that have them. */
INLINE scales pair_scales(const enum type type, const uint8_t *super, int i, const int parts,
                          const sixes *words) {
    if (!has_sixes(type)) return load_scales(type, super, i, parts, _mm512_setzero_si512(), 0);
    __m512i word = _mm512_srlv_epi32(words->word[i >> 1], _mm512_set1_epi32(12 * (i & 1)));
    return load_scales(type, super, i, parts, word, 0);
}

/* Parts of two groups that meet all columns, and what is fetched meanwhile: in both groups, from
 * the offset `ahead` on, some lines with every part of every tile, so that memory works all the
 * time. Behind the `bytes` of the groups are the next ones, `skip` bytes further. */
typedef struct {
    const uint8_t *group[2], *first[2]; /* where the chunk's parts are, and the groups' */
    pair_part part[CHUNK];
    ptrdiff_t ahead, bytes, skip;
    int lines;
    __mmask16 opened; /* none in the first chunk, where sums start at 0 */
} pair_chunk;

/* Bytes between two groups and those that are read after them. */
INLINE ptrdiff_t behind(const golem_act *act, const uint8_t *first, const uint8_t *second,
                        ptrdiff_t bytes) {
    return (second - first == bytes ? bytes : 0) + (second + bytes == act->end ? act->skip : 0);
}

INLINE void fetch_lines(pair_chunk *p) {
    for (int i = 0; i < p->lines; i++, p->ahead += 64) {
        const ptrdiff_t at = p->ahead + (p->ahead < p->bytes ? 0 : p->skip);
        prefetch(p->first[0] + at, 64);
        prefetch(p->first[1] + at, 64);
    }
}

/* Reads what part i of the chunk has besides codes. words: the groups' sixes, if they have any. */
INLINE void read_scales(const enum type type, const int bits, const int parts, const int head,
                        pair_chunk *p, int i, const sixes *words) {
    const int at = i / parts * (head + parts * 64 * bits), k = i % parts;
    for (int g = 0; g < 2; g++) {
        const scales s = pair_scales(type, p->group[g] + at, k, parts, &words[g]);
        scales *to = &p->part[i].s[g]; /* only what the type has is written: stores cost here */
        to->scale[0] = s.scale[0];
        if (has_halves(type)) to->scale[1] = s.scale[1];
        if (has_low(type) || type == T_Q2_K) to->low[0] = s.low[0];
        if (type == T_Q2_K) to->low[1] = s.low[1];
    }
}

/* Adds the products of half h of part i with columns whose records are a[0 ..] to sum. Codes are
 * read from the groups and left in the chunk when `fresh`, else found there. */
INLINE void sum_half(const enum type type, const int bits, const int parts, const int head,
                     pair_chunk *p, int i, const int fresh, const int h, const golem_q8 *a,
                     const int columns, __m512i (*sum)[TILE]) {
    const int at = i / parts * (head + parts * 64 * bits) + head + i % parts * 64 * bits;
#pragma GCC unroll 4
    for (int v = 4 * h; v < 4 * h + 4; v++) {
        __m512i w[2];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            w[g] = fresh ? load_code(type, bits, p->group[g] + at, v) : p->part[i].w[g][v];
            if (fresh) p->part[i].w[g][v] = w[g];
            KEEP(w[g]); /* in a register: loaded once, as the columns' codes below */
        }
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            __m512i q = broadcast(a[c].q + 4 * v);
            KEEP(q);
            sum[0][c] = _mm512_dpbusd_epi32(sum[0][c], w[0], q);
            sum[1][c] = _mm512_dpbusd_epi32(sum[1][c], w[1], q);
        }
    }
}

/* Adds the products of `count` parts with `columns` columns, TILE at most, whose first has its
 * first record of these parts at a, to out[group]. */
INLINE void add_tile(const enum type type, const int bits, const int parts, const int head,
                     pair_chunk *p, int count, const int fresh, const golem_q8 *a, int n,
                     const int columns, float *const *out) {
    __m512 acc[2][TILE], x[2][TILE];
    sixes words[2];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++)
            acc[g][c] = _mm512_maskz_loadu_ps(p->opened, out[g] + GOLEM_GROUP * c);
    if (fresh && has_sixes(type))
        for (int g = 0; g < 2; g++) words[g] = load_sixes(p->group[g] + 64);
    for (int i = 0; i < count; i++, a += n) {
        const scales *s = p->part[i].s;
        fetch_lines(p);
        if (fresh) read_scales(type, bits, parts, head, p, i, words);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512i sum[2][TILE];
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) {
                sum[0][c] = sum[1][c] = less_offset(type, &a[c].minus[h], 0);
                PIN(sum[0][c]);
                PIN(sum[1][c]);
            }
            sum_half(type, bits, parts, head, p, i, fresh, h, a, columns, sum);
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
                for (int g = 0; g < 2; g++) {
                    x[g][c] = add_half(type, h, sum[g][c], s + g, a + c, h ? x[g][c] : acc[g][c]);
                    PIN(x[g][c]);
                }
        }
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                acc[g][c] = add_halves(type, x[g][c], s + g, a + c, acc[g][c]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) _mm512_storeu_ps(out[g] + GOLEM_GROUP * c, acc[g][c]);
}

/* nc columns, PAIR_FROM or more, whose first has its first record at a, times two groups: chunk by
 * chunk, tile by tile of TILE columns and at last TILE - 1. */
INLINE void dot_pair(const enum type type, const int bits, const int parts, const int head,
                     const uint8_t *first, const uint8_t *second, int in, const golem_act *act,
                     int c0, int nc, float *out_first, float *out_second) {
    const golem_q8 *a = act->q + c0;
    const int n = act->n;
    const int super = head + parts * 64 * bits, size = CHUNK / parts * super;
    const int tiles = (nc + TILE - 1) / TILE, whole = nc - (tiles * TILE - nc) * (TILE - 1);
    const ptrdiff_t bytes = (in / 32 + parts - 1) / parts * super;
    const ptrdiff_t before = size * (size < NEAR ? 3 : 2);
    pair_chunk p = {.first = {first, second}, .bytes = bytes,
                    .skip = behind(act, first, second, bytes),
                    .lines = (size / 64 + CHUNK * tiles - 1) / (CHUNK * tiles)};
    ptrdiff_t at = 0;
    for (int left = in / 32; left > 0; left -= CHUNK, at += size, a += (ptrdiff_t)CHUNK * n) {
        const int count = left < CHUNK ? left : CHUNK;
        float *out[2] = {out_first, out_second};
        p.group[0] = first + at, p.group[1] = second + at;
        p.ahead = at + (before < bytes ? before : bytes);
        p.opened = at ? 0xffff : 0;
        add_tile(type, bits, parts, head, &p, count, 1, a, n, TILE, out);
        for (int c = TILE, step; c < nc; c += step) {
            step = c < whole ? TILE : TILE - 1;
            out[0] = out_first + c * GOLEM_GROUP, out[1] = out_second + c * GOLEM_GROUP;
            if (step == TILE) add_tile(type, bits, parts, head, &p, count, 0, a + c, n, TILE, out);
            else add_tile(type, bits, parts, head, &p, count, 0, a + c, n, TILE - 1, out);
        }
    }
}

/* Adds the products of a part of two groups with up to three columns: a broadcast serves both. */
INLINE void add_two(const enum type type, const int bits, const uint8_t *const *part,
                    const scales *s, const golem_q8 *a, const int columns, const int picks,
                    __m512 (*acc)[TILE]) {
    __m512 x[2][TILE];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m512i sum[2][TILE], packed[2];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            packed[g] = load_vector(part[g], bits == 2 ? h : 0);
            KEEP(packed[g]); /* in a register: loaded once */
        }
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++)
            sum[0][c] = sum[1][c] = less_offset(type, &a[c].minus[h], 0);
#pragma GCC unroll 4
        for (int v = 4 * h; v < 4 * h + 4; v++) {
            __m512i w[2] = {few_bits(bits, packed[0], v, picks),
                            few_bits(bits, packed[1], v, picks)};
#pragma GCC unroll 3
            for (int c = 0; c < columns; c++) {
                __m512i q = broadcast(a[c].q + 4 * v);
                KEEP(q);
                sum[0][c] = _mm512_dpbusd_epi32(sum[0][c], w[0], q);
                sum[1][c] = _mm512_dpbusd_epi32(sum[1][c], w[1], q);
            }
        }
#pragma GCC unroll 3
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                x[g][c] = add_half(type, h, sum[g][c], &s[g], a + c, h ? x[g][c] : acc[g][c]);
    }
#pragma GCC unroll 3
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) acc[g][c] = add_halves(type, x[g][c], &s[g], a + c, acc[g][c]);
}

/* Up to three columns times two groups of a type of one or two bits: memory brings their codes
 * sooner than a core loads broadcasts for every group by itself.
 *
 * Both groups are fetched a little ahead, those of the next pair behind their ends: fetching whole
 * pairs ahead, one group after the other, keeps memory's order, but where a worker's stretch ends a
 * pair was fetched in vain, and the next stretch begins with one that was not (Zen 5, two threads,
 * 4096 x 12288: 62 GB/s of Q1_0 instead of 71, 70 of TQ2_0 instead of 77). */
INLINE void dot_two(const enum type type, const int bits, const int parts, const int head,
                    const uint8_t *first, const uint8_t *second, int in, const golem_act *act,
                    const golem_q8 *a, const int columns, const int picks, float *out_first,
                    float *out_second) {
    const int n = act->n;
    const ptrdiff_t super = head + parts * 64 * bits, size = (in / 32 + parts - 1) / parts * super;
    const ptrdiff_t whole = AHEAD / super * super, before = whole < size ? whole : size;
    const ptrdiff_t skip = behind(act, first, second, size);
    __m512 acc[2][TILE];
    const uint8_t *group[2] = {first, second};
    ptrdiff_t at = before;
#pragma GCC unroll 3
    for (int c = 0; c < columns; c++) acc[0][c] = acc[1][c] = _mm512_setzero_ps();
    for (int left = in / 32; left > 0; left -= parts) {
        const ptrdiff_t far = before + (at < size ? 0 : skip);
        const uint8_t *next[2] = {group[0] + far, group[1] + far};
        prefetch(next[0], head), prefetch(next[1], head);
        for (int from = 0; from < parts && from < left; from += parts / 2) {
            const int to = from + parts / 2 < left ? from + parts / 2 : left;
            scales s[2]; /* each for half of the parts */
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                s[g] = load_scales(type, group[g], from, parts, _mm512_setzero_si512(), 0);
            for (int i = from; i < to; i++, a += n) {
                const int codes = head + i * 64 * bits;
                const uint8_t *part[2] = {group[0] + codes, group[1] + codes};
                prefetch(next[0] + codes, 64 * bits), prefetch(next[1] + codes, 64 * bits);
                add_two(type, bits, part, s, a, columns, picks, acc);
            }
        }
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) group[g] += super;
        at += super;
    }
#pragma GCC unroll 3
    for (int c = 0; c < columns; c++) {
        _mm512_storeu_ps(out_first + GOLEM_GROUP * c, acc[0][c]);
        _mm512_storeu_ps(out_second + GOLEM_GROUP * c, acc[1][c]);
    }
}

#define TWO(NAME, BITS, COLS, HEAD, N, PICKS)                                                     \
    dot_two(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a, a->q + c0, N, PICKS,           \
            out_first, out_second)
#define TWO_OF(NAME, BITS, COLS, HEAD, PICKS)                                                     \
    do {                                                                                          \
        if (nc == 1) TWO(NAME, BITS, COLS, HEAD, 1, PICKS);                                       \
        else if (nc == 2) TWO(NAME, BITS, COLS, HEAD, 2, PICKS);                                  \
        else TWO(NAME, BITS, COLS, HEAD, 3, PICKS);                                               \
    } while (0)

#define PAIR(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                          \
    __attribute__((target(TARGET))) static void pair_##NAME(                                      \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        if (nc < TILE && BITS <= 2 && !has_halves(T_##NAME)) {                                    \
            if (__builtin_cpu_supports("gfni")) TWO_OF(NAME, BITS, COLS, HEAD, 1);                \
            else TWO_OF(NAME, BITS, COLS, HEAD, 0);                                               \
        } else if (nc < PAIR_FROM) {                                                              \
            dot_##NAME(first, in, a, c0, nc, out_first);                                          \
            dot_##NAME(second, in, a, c0, nc, out_second);                                        \
        } else {                                                                                  \
            dot_pair(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a, c0, nc, out_first,    \
                     out_second);                                                                 \
        }                                                                                         \
    }
GOLEM_CODE_TYPES(PAIR)

#endif
