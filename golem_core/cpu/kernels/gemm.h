/* gemm: products of float weights with many columns, for programs that keep no state.
 *
 * Columns are packed beforehand into PANELS of as many as a tile holds, element after element, so
 * that a tile's inner loop reads both sides in order: 16 or 32 rows of weights against PANEL
 * columns with all sums in registers. F16 and BF16 weights are unpacked once a unit. Where the
 * processor multiplies BF16 by itself, BF16 weights meet columns rounded to BF16 (as llama.cpp
 * has it) in pairs of elements; all other products are of f32.
 *
 * An element's sum runs in order over the row, in one lane, whatever tile it falls into, so its
 * bits depend on nothing but its row and its column. */
#ifndef GOLEM_GEMM_H
#define GOLEM_GEMM_H

#include "linear_layout.h"
#include "products.h"

#if defined(GOLEM_AVX512)
enum { PANEL = 12, PANEL_GROUPS = 2 };   /* 24 of 32 registers hold sums */
#elif defined(GOLEM_AVX2)
enum { PANEL = 6, PANEL_GROUPS = 1 };    /* 12 of 16: a group is two registers wide */
#elif defined(GOLEM_NEON)
enum { PANEL = 6, PANEL_GROUPS = 1 };    /* 24 of 32: four registers wide */
#else
enum { PANEL = 4, PANEL_GROUPS = 1 };
#endif
enum { PANELS = 20 };        /* panels a unit takes: its weights are unpacked once */
enum { GEMM_GROUPS = 8 };    /* groups a unit takes at most */

/* Elements of a panel's line: one f32, or two BF16 side by side. */
static inline int gemm_lines(int in, int pairs) { return pairs ? (in + 1) / 2 : in; }

enum { PACKED = 512 };       /* elements of a row rounded at a time */

/* f32 -> BF16 to nearest even, NaN staying one; without branches, so that compilers vectorise
 * it. */
static inline void round_bf16(const float *x, uint16_t *to, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        uint32_t nan = (bits & 0x7fffffff) > 0x7f800000, near = bits + 0x7fff + (bits >> 16 & 1);
        to[i] = (uint16_t)((nan ? bits | 0x400000 : near) >> 16);
    }
}

/* In a panel of pairs, words from one lane to the next and from a lane's pair to the next. */
#if defined(GOLEM_TILES)
#define PAIRS_LANE(HALF) (HALF)
enum { PAIRS_STEP = 1 };
#else
#define PAIRS_LANE(HALF) 1
enum { PAIRS_STEP = PANEL };
#endif

/* in: x. out: panels of f32, panels of BF16, either may be missing */
static void rows_pack(const golem_record *r, golem_worker *w, int64_t from, int64_t to) {
    char *bx = base_of(&r->in[0], w);
    float *plain = (float *)base_of(&r->out[0], w);
    uint32_t *pairs = (uint32_t *)base_of(&r->out[1], w);
    int in = r->width, half = gemm_lines(in, 1);
    for (int64_t row = from; row < to; row++) {
        const float *x = unit_at(bx, &r->in[0], row, 0);
        int64_t panel = row / PANEL, lane = row % PANEL;
        if (plain) {
            float *y = plain + panel * in * PANEL + lane;
            for (int k = 0; k < in; k++) y[(int64_t)k * PANEL] = x[k];
        }
        uint32_t *y = pairs ? pairs + panel * half * PANEL + lane * PAIRS_LANE(half) : NULL;
        for (int k = 0; y && k < in; k += PACKED, y += PACKED / 2 * PAIRS_STEP) {
            uint32_t words[PACKED / 2];
            int count = in - k < PACKED ? in - k : PACKED;
            words[(count - 1) / 2] = 0;   /* an odd row's last element stands alone */
            round_bf16(x + k, (uint16_t *)words, count);
            for (int i = 0; i < (count + 1) / 2; i++) y[(int64_t)i * PAIRS_STEP] = words[i];
        }
    }
}

/* out[g][c] = sums of group g and column c of a panel; w[g]: (lines, 16) f32 */
static inline __attribute__((always_inline)) void gemm_tile(const float *const *w, const float *x,
                                                            int lines, const int groups,
                                                            float (*out)[PANEL * LANES]) {
    vf acc[PANEL_GROUPS][PANEL];
    for (int g = 0; g < groups; g++)
        for (int c = 0; c < PANEL; c++) acc[g][c] = vzero();
    for (int k = 0; k < lines; k++, x += PANEL) {
        vf row[PANEL_GROUPS];
        for (int g = 0; g < groups; g++) row[g] = vload(w[g] + (int64_t)k * LANES);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 12
#endif
        for (int c = 0; c < PANEL; c++) {
            vf column = vset(x[c]);
            for (int g = 0; g < groups; g++) acc[g][c] = vfma(row[g], column, acc[g][c]);
        }
    }
    for (int g = 0; g < groups; g++)
        for (int c = 0; c < PANEL; c++) vstore(out[g] + c * LANES, acc[g][c]);
}

#if defined(GOLEM_AVX512)
#define GEMM_PAIRS \
    __attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

/* The same of BF16: w[g]: (lines, 16, 2), x: (lines, PANEL, 2) */
#define GEMM_TILE_PAIRS(NAME, GROUPS)                                                              \
    GEMM_PAIRS static void NAME(const float *const *w, const float *x, int lines,                  \
                                float (*out)[PANEL * LANES]) {                                     \
        __m512 acc[GROUPS][PANEL];                                                                 \
        for (int g = 0; g < GROUPS; g++)                                                           \
            for (int c = 0; c < PANEL; c++) acc[g][c] = _mm512_setzero_ps();                       \
        for (int k = 0; k < lines; k++, x += PANEL) {                                              \
            __m512bh row[GROUPS];                                                                  \
            for (int g = 0; g < GROUPS; g++)                                                       \
                row[g] = (__m512bh)_mm512_load_ps(w[g] + (int64_t)k * LANES);                      \
            _Pragma("GCC unroll 12") for (int c = 0; c < PANEL; c++) {                             \
                __m512bh column = (__m512bh)_mm512_set1_ps(x[c]);                                  \
                for (int g = 0; g < GROUPS; g++)                                                   \
                    acc[g][c] = _mm512_dpbf16_ps(acc[g][c], row[g], column);                       \
            }                                                                                      \
        }                                                                                          \
        for (int g = 0; g < GROUPS; g++)                                                           \
            for (int c = 0; c < PANEL; c++) _mm512_storeu_ps(out[g] + c * LANES, acc[g][c]);       \
    }
GEMM_TILE_PAIRS(gemm_pairs_1, 1)
GEMM_TILE_PAIRS(gemm_pairs_2, 2)
#endif

static inline void gemm_tiles(const float *const *w, const float *x, int lines, int groups,
                              int pairs, float (*out)[PANEL * LANES]) {
#if defined(GOLEM_AVX512)
    if (pairs) {
        if (groups == 2) gemm_pairs_2(w, x, lines, out);
        else gemm_pairs_1(w, x, lines, out);
        return;
    }
#endif
    (void)pairs;
    if (groups == PANEL_GROUPS) gemm_tile(w, x, lines, PANEL_GROUPS, out);
    else gemm_tile(w, x, lines, 1, out);
}

/* A repacked group as tiles want it: itself where it is f32, else unpacked to `to`. */
static const float *gemm_group(const golem_matrix *m, int group, int in, int pairs, float *to) {
    const uint8_t *from = m->groups + group * m->group_bytes;
    int id = golem_types[m->type].id;
    if (id == 0) return (const float *)from;
    const uint16_t *half = (const uint16_t *)from;
    if (pairs) {
        uint32_t *line = (uint32_t *)to;
        for (int k = 0; k < gemm_lines(in, 1); k++, line += LANES)
            for (int r = 0; r < LANES; r++) {
                uint32_t high = 2 * k + 1 < in ? half[(2 * k + 1) * LANES + r] : 0;
                line[r] = half[2 * k * LANES + r] | high << 16;
            }
        return to;
    }
    for (int k = 0; k < in; k++)
        if (id == 1) vstore(to + k * LANES, vload_half(half + k * LANES));
        else
            for (int r = 0; r < LANES; r++)
                to[k * LANES + r] = float_of_bits((uint32_t)half[k * LANES + r] << 16);
    return to;
}

/* Groups from .. to - 1 of a segment times `columns` columns from the `first` on, whose panels
 * begin at x. unpacked: room for the groups of both matrices. */
static void gemm_unit(product_store *p, const float *x, int pairs, int from, int to, int first,
                      int columns, float *unpacked) {
    const golem_segment *s = p->s;
    int lines = gemm_lines(s->in, pairs), gated = s->b.groups != NULL;
    int size = lines * LANES, step = gated ? 1 : PANEL_GROUPS;
    const float *a[GEMM_GROUPS], *b[GEMM_GROUPS];
    for (int g = from; g < to; g++) {
        a[g - from] = gemm_group(&s->a, g, s->in, pairs, unpacked);
        unpacked += size;
        if (!gated) continue;
        b[g - from] = gemm_group(&s->b, g, s->in, pairs, unpacked);
        unpacked += size;
    }
    float out[2][PANEL * LANES];
    for (int c = 0; c < columns; c += PANEL, x += (int64_t)lines * PANEL) {
        int count = columns - c < PANEL ? columns - c : PANEL;
        for (int g = from; g < to; g += step) {
            const float *w[2] = {a[g - from],
                                 gated ? b[g - from] : g + 1 < to ? a[g - from + 1] : NULL};
            int run = !gated && step == 2 && g + 1 < to ? 2 : 1;
            if (gated && PANEL_GROUPS == 1) {
                gemm_tiles(w, x, lines, 1, pairs, out);
                gemm_tiles(w + 1, x, lines, 1, pairs, out + 1);
            } else {
                gemm_tiles(w, x, lines, gated ? 2 : run, pairs, out);
            }
            raw_products of = {out[0], gated ? out[1] : NULL, g, run, PANEL, first + c, count};
            finish_groups(p, &of);
        }
    }
}

static product_store gemm_store(const golem_segment *s, golem_worker *w) {
    product_store p = {.s = s, .w = w, .store = (float *)base_of(&s->store, w)};
    for (int i = 0; i < s->finishes; i++) p.operand[i] = base_of(&s->finish[i].operand, w);
    return p;
}

#if defined(GOLEM_TILES)
#include "gemm_amx.h"
#endif

/* in: panels of f32, panels of BF16. i: 1 where BF16 weights read the latter. A unit is a chunk of
 * groups of a segment and a block of panels. */
static void run_gemm(const golem_record *r, golem_worker *w) {
    int columns = (int)w->pass->extents[r->extent], wide = PANELS * PANEL;
    int blocks = (columns + wide - 1) / wide;
    float *unpacked = (float *)w->scratch;
    if (columns == 0) return;
    for (;;) {
        int unit = golem_take(w), i = 0, units = 0;
        for (; i < r->segments; unit -= units, i++) {
            units = (r->segment[i].groups + r->segment[i].chunk - 1) / r->segment[i].chunk * blocks;
            if (unit < units) break;
        }
        if (i == r->segments) return;
        const golem_segment *s = &r->segment[i];
        int pairs = r->i[0] && golem_types[s->a.type].id == 30;
        int from = unit / blocks * s->chunk, first = unit % blocks * wide;
        int to = from + s->chunk < s->groups ? from + s->chunk : s->groups;
        int count = columns - first < wide ? columns - first : wide;
        const float *x = (const float *)base_of(&r->in[pairs], w);
        product_store p = gemm_store(s, w);
        x += (int64_t)first * gemm_lines(s->in, pairs);
#if defined(GOLEM_TILES)
        if (pairs) {
            gemm_unit_tiles(&p, (const uint32_t *)x, from, to, first, count, unpacked);
            continue;
        }
#endif
        gemm_unit(&p, x, pairs, from, to, first, count, unpacked);
    }
}

/* Whether BF16 weights meet BF16 columns here. */
static int gemm_pairs(void) {
#if defined(GOLEM_AVX512)
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return 0;
#endif
}

#endif
