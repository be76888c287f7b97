/* Prompt columns with AVX-512: records of their own, and two groups at once.
 *
 * Scaling the sums of each sixteen values is what keeps drawn columns from the rate at which a core
 * multiplies codes: three multiplications in the units that also do that. Here the scale of sixteen
 * is 2^e beside the base of 256 values, so that an integer sum is scaled by a shift, which other
 * units do; and what the weights' scales multiply are integers too, two sums in one instruction
 * (vpdpwssd), added up over the 256. One multiplication by the scales' unit and one by the base are
 * left for all of them.
 *
 * 32 weights of two groups are unpacked into sixteen registers and meet all columns, one after the
 * other; what the columns have so far waits in L1. So nothing unpacked is stored and loaded again.
 * Each column's sums are scaled while those of the next are formed. Counted, 32 x 16 weights and a
 * column take 8.75 instructions of the two units that multiply, 9.25 with minima or scales of
 * halves: 4.4 and 4.6 cycles. Measured on Zen 5, with all that unpacks and reads scales: 4.8
 * and 5.1.
 *
 * Bits. Codes are unpacked as w + 128, where w is the weight's value, times 2^up_of its type, and
 * -128 .. 127. Let H be the largest of the sums of magnitudes of the sixteens' codes, each << k;
 * then the shifts are e = k + room, with which 2^22 <= H << room < 2^23 (but where that takes more
 * than MOST_ROOM). So a sum of sixteen products, shifted, stays below 2^30 by what rounds it:
 *
 *   part, of two halves       x = (sum0 << e0) + (sum1 << e1), |x| < 2^31;  x >> 16 has 16 bits
 *   half with its own scale   x = sum << e,                    |x| < 2^30;  x >> 15 has 16 bits
 *
 * which is rounded to nearest, for the sums start at 2^(14 - e) (from e = 15 on, one bit is cut
 * off). Minima multiply the columns' sums, which have 16 bits by the same shifts; there a minimum
 * is that of the codes' middle. Eight parts' products and minima, both at the most, stay below
 * 2^31: scales and minima are whole numbers up to MOST, a little less than that allows, in units
 * that each row and 256 weights has for itself.
 *
 *                           terms of 256 weights      MOST
 *   parts                   8                         8160
 *   parts with minima       8 + 8                     4080
 *   halves                  16                        4080
 *   halves with minima      16 + 16                   2040
 *
 * All this adds less than a thousandth to the square of what the columns' 8 bits lose, 3 where a
 * few values are a hundred times the others.
 *
 * In a record, e[h] is the shift, minus[h] what a half's sum starts with: -128 times the sum of its
 * codes, and what rounds; base the scale at e = 0; and sums those of this part's values and of the
 * one before it, in units of 2^SUMS base.
 */
#ifndef GOLEM_LINEAR_AVX512_PROMPT_H
#define GOLEM_LINEAR_AVX512_PROMPT_H

#include "linear_avx512_pairs.h"

enum { ROUNDS = 14, SUMS = 9 };   /* binary logarithms: what rounds a half's x; the unit of sums */
enum { MOST_ROOM = 6 };           /* a block's largest value takes no more */

/* Bytes by which both groups are fetched before use, those of the next pair behind their ends. */
enum { PROMPT_AHEAD = 4096 };

/* What to do with the scaled sums of a part: keep them for the part after it; open a chunk's
 * products with both, or add them; or also close the chunk, the first one or another. */
enum part_role { KEEPS, OPENS, ADDS, STARTS, CLOSES };

/* Sums of the halves of a part with one column, [half][group]. */
typedef struct {
    __m512i of[2][2];
} part_sums;

/* A part of two groups as columns meet it. scale, low: of two parts or halves in each lane, those
 * in the low 16 bits of the first. */
typedef struct {
    __m512i w[2][8], scale[2], low[2];
    __m512 unit[2];
} prompt_part;

/* The scales of a group's chunk, as read and as whole numbers, by part. inverse: what makes those
 * of these; unit: what sums of products with them are to be multiplied by. */
typedef struct {
    scales read[CHUNK];
    __m512i scale[CHUNK], low[CHUNK];
    __m512 inverse, unit;
} group_scales;

/* What a column has of a chunk: products so far, and sums of the part before, [group]. */
typedef struct {
    __m512i acc[2], kept[2];
} prompt_column;

/* Where the products of a chunk's columns are, and what follows from them: those of chunks before,
 * [group], and where they go with this one's. first: the columns' records that have their base.
 * pairs: the words that are of a first part, when there is one. */
typedef struct {
    const golem_q8 *first;
    prompt_column *column;
    const float *before[2];
    float *to[2];
    __mmask32 pairs;
} prompt_place;

/* Codes of the type are unpacked times two to this power. */
INLINE int up_of(const enum type type) {
    switch (type) {
    case T_Q4_1:
    case T_Q4_K: return 4;
    case T_Q5_1:
    case T_Q5_K: return 3;
    case T_Q2_K: return 6;
    case T_Q1_0: return 6;
    case T_Q2_0:
    case T_PQ2_0:
    case T_PTQ1_0:
    case T_TQ1_0:
    case T_TQ2_0: return 5;
    default: return 7 - offset_of(type);
    }
}

/* Whether halves or parts have minima. */
INLINE int has_minima(const enum type type) { return has_low(type) || type == T_Q2_K; }

/* Bits of x moved up, or down where `by` is negative; those of other bytes come along. */
INLINE __m512i moved(__m512i x, const int by) {
    return by > 0 ? _mm512_slli_epi16(x, by) : by < 0 ? _mm512_srli_epi16(x, -by) : x;
}

/* Vector v of a part with plain codes of 2 to 6 bits, each in the upper bits of its byte. */
INLINE __m512i load_upper(const int bits, const uint8_t *part, const int v) {
    const int wide = bits >= 4 ? 4 : 2, each = 8 / wide, to = 8 - bits, over = bits - wide;
    __m512i x = load_vector(part, bits >= 4 ? v & 3 : v >> 2);
    x = moved(x, to - wide * (bits >= 4 ? v >> 2 : v & 3));
    x = _mm512_and_si512(x, byte_mask(((1 << wide) - 1) << to));
    if (over == 0) return x;
    const int at = over == 2 ? 2 * (v & 3) : v;
    __m512i more = load_vector(part, 8 / each + (over == 2 ? v >> 2 : 0));
    return masked_or(moved(more, 8 - over - at), byte_mask(0x100 - (0x100 >> over)), x);
}

/* Vector v of a part as bytes that are 128 more than what they stand for, times 2^up_of. */
INLINE __m512i load_centred(const enum type type, const int bits, const uint8_t *part,
                            const int v) {
    const int up = up_of(type), offset = offset_of(type);
    if (bits < 8 && up == 8 - bits) return load_upper(bits, part, v);
    __m512i x = load_code(type, bits, part, v);
    if (up) x = _mm512_slli_epi16(x, up);
    return offset + up == 7 ? x : _mm512_add_epi8(x, byte_mask(128 - (1 << (offset + up))));
}

/* As the intrinsic does, whose result is copied more often and formed elsewhere than here. */
INLINE void add_products(__m512i *sum, __m512i w, __m512i q) {
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(w), "v"(q));
}

/* The four bytes at `at` of a record in all lanes. From memory, always: out of a register of whole
 * numbers they take a unit that multiplies. */
INLINE __m512i spread(const golem_q8 *a, const int at) {
    __m512i x;
    __asm__ volatile("vpbroadcastd %c2(%1), %0" : "=v"(x) : "r"(a), "i"(at), "m"(*a));
    return x;
}
#define SPREAD(A, FIELD) spread(A, offsetof(golem_q8, FIELD))

INLINE part_sums sum_part(const prompt_part *p, const golem_q8 *a) {
    part_sums sum;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        sum.of[h][0] = spread(a, offsetof(golem_q8, minus) + 4 * h);
        sum.of[h][1] = sum.of[h][0];
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512i q = spread(a, offsetof(golem_q8, q) + 16 * h + 4 * v);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) add_products(&sum.of[h][g], p->w[g][4 * h + v], q);
        }
    return sum;
}

/* Words of both halves' x, 16 bits of each: the second's above the first's. */
INLINE __m512i both_halves(__m512i x0, __m512i x1) {
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(x0, 15), 0xaaaaaaaa, _mm512_slli_epi32(x1, 1));
}

/* Scales the sums of a part with a column, whose record is a. c: its number. */
INLINE void scale_part(const enum type type, const prompt_part *p, const enum part_role role,
                       const golem_q8 *a, part_sums sum, const prompt_place *place,
                       prompt_column *column, ptrdiff_t c) {
    __m512i e0 = SPREAD(a, e[0]), e1 = SPREAD(a, e[1]), x[2], low;
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
        __m512i x0 = _mm512_sllv_epi32(sum.of[0][g], e0), x1 = _mm512_sllv_epi32(sum.of[1][g], e1);
        if (has_halves(type)) x[g] = both_halves(x0, x1);
        else x[g] = _mm512_add_epi32(x0, x1);
        if (role == KEEPS) _mm512_store_si512(&column->kept[g], _mm512_srli_epi32(x[g], 16));
        else if (!has_halves(type))
            x[g] = _mm512_mask_loadu_epi16(x[g], place->pairs, &column->kept[g]);
    }
    if (role == KEEPS) return;
    if (has_low(type)) low = SPREAD(a, sums);
    if (type == T_Q2_K)
        low = both_halves(_mm512_sllv_epi32(SPREAD(a, minus[0]), e0),
                          _mm512_sllv_epi32(SPREAD(a, minus[1]), e1));
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
        __m512i acc = role == OPENS ? _mm512_setzero_si512() : _mm512_load_si512(&column->acc[g]);
        if (has_minima(type)) acc = _mm512_dpwssd_epi32(acc, low, p->low[g]);
        acc = _mm512_dpwssd_epi32(acc, x[g], p->scale[g]);
        if (role < STARTS) {
            _mm512_store_si512(&column->acc[g], acc);
            continue;
        }
        const ptrdiff_t at = GOLEM_GROUP * c;
        __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), _mm512_set1_ps(place->first[c].base));
        if (role == STARTS) y = _mm512_mul_ps(y, p->unit[g]);
        else y = _mm512_fmadd_ps(y, p->unit[g], _mm512_load_ps(place->before[g] + at));
        _mm512_storeu_ps(place->to[g] + at, y);
    }
}

/* Adds the products of a part with nc columns, whose records are a[0 ..], to those of its chunk. */
INLINE void add_part(const enum type type, const prompt_part *part, const enum part_role role,
                     const golem_q8 *a, const ptrdiff_t nc, const prompt_place *of) {
    prompt_part p = *part;
    prompt_place place = *of;
    prompt_column *column = place.column;
    ptrdiff_t c = 0;
#pragma GCC unroll 8
    for (int v = 0; v < 8; v++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) KEEP(p.w[g][v]);
    part_sums even = sum_part(&p, a), odd;
    for (; c + 2 < nc; c += 2, a += 2, column += 2) {
        odd = sum_part(&p, a + 1);
        scale_part(type, &p, role, a, even, &place, column, c);
        even = sum_part(&p, a + 2);
        scale_part(type, &p, role, a + 1, odd, &place, column + 1, c + 1);
    }
    if (c + 1 < nc) odd = sum_part(&p, a + 1);
    scale_part(type, &p, role, a, even, &place, column, c);
    if (c + 1 < nc) scale_part(type, &p, role, a + 1, odd, &place, column + 1, c + 1);
}

/* To nearest: what is no number becomes one whose low 16 bits are zero. */
INLINE __m512i whole(__m512 x, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
}

/* The low 16 bits of both */
INLINE __m512i both_words(__m512i low, __m512i high) {
    return _mm512_mask_mov_epi16(low, 0xaaaaaaaa, _mm512_slli_epi32(high, 16));
}

INLINE __m512i magnitude_of(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* Whether scales of halves are whole numbers in the file, so that nothing else is to be found. */
INLINE int has_whole_halves(const enum type type) { return type == T_Q3_K || type == T_Q6_K; }

/* They are taken times two to this power, up to MOST. */
INLINE int whole_up(const enum type type) { return type == T_Q3_K ? 7 : 5; }

INLINE __m512i whole_halves(const enum type type, const uint8_t *super, int i, const sixes *words) {
    __m512i x;
    if (type == T_Q6_K) {
        x = _mm512_cvtepi8_epi16(load_pairs(super, i));
    } else {
        x = _mm512_srlv_epi32(words->word[i >> 1], _mm512_set1_epi32(12 * (i & 1)));
        x = _mm512_sub_epi16(both_words(six(x, 0), six(x, 6)), _mm512_set1_epi16(32));
    }
    return _mm512_slli_epi16(x, whole_up(type));
}

/* The minimum at the middle of a part's codes instead of their least, in units of what it has to be
 * multiplied with, of which the middle is as many as of codes: */
INLINE __m512 centred_low(const enum type type, __m512 scale, __m512 low) {
    const __m512 share = _mm512_set1_ps(1.0f / (float)(128 >> up_of(type)));
    if (type == T_Q2_K) return _mm512_fmsub_ps(low, share, scale);
    if (type == T_Q4_1 || type == T_Q5_1) return _mm512_fmadd_ps(low, share, scale);
    return _mm512_fnmadd_ps(low, share, scale);
}

/* Reads the scales of `count` parts of a group, and finds the unit of whole ones. ahead: bytes to
 * what is to be fetched meanwhile. */
INLINE void read_scales_of(const enum type type, const int bits, const int parts, const int head,
                           const uint8_t *group, const ptrdiff_t ahead, const int count,
                           group_scales *to) {
    const int minima = has_minima(type), up = up_of(type);
    const float most = 8160 >> (has_halves(type) + minima);
    const float unit = power_of_2((has_halves(type) ? 15 : 16) - up) / most;
    __m512i largest = _mm512_set1_epi32(0x0da24260); /* 1e-30: as good as none */
    sixes words;
    if (has_sixes(type)) words = load_sixes(group + 64);
    if (has_whole_halves(type)) {
        prefetch_kept(group + ahead, head);
        const float share = power_of_2(15 - up - whole_up(type));
        to->unit = _mm512_mul_ps(load_halves(group), _mm512_set1_ps(share));
#pragma GCC unroll 8
        for (int i = 0; i < CHUNK; i++) to->scale[i] = whole_halves(type, group, i, &words);
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        const uint8_t *super = group + i / parts * (head + parts * 64 * bits);
        scales *s = &to->read[i];
        if (i % parts == 0) prefetch_kept(super + ahead, head);
        *s = pair_scales(type, super, i % parts, parts, &words);
#pragma GCC unroll 2
        for (int h = 0; h < 1 + has_halves(type); h++) {
            largest = _mm512_max_epu32(largest, magnitude_of(s->scale[h]));
            if (!minima) continue;
            s->low[h] = centred_low(type, s->scale[h], s->low[h]);
            largest = _mm512_max_epu32(largest, magnitude_of(s->low[h]));
        }
    }
    to->inverse = _mm512_div_ps(_mm512_set1_ps(most), _mm512_castsi512_ps(largest));
    to->unit = _mm512_mul_ps(_mm512_castsi512_ps(largest), _mm512_set1_ps(unit));
}

/* Makes whole numbers of what read_scales_of read. */
INLINE void make_whole(const enum type type, const int count, group_scales *to) {
    const int halves = has_halves(type), minima = has_minima(type);
    const __m512 inverse = to->inverse;
    if (has_whole_halves(type)) return;
    for (int i = !halves; i < count; i += 2 - halves) {
        const scales *low = &to->read[i - !halves], *high = &to->read[i];
        to->scale[i] =
            both_words(whole(low->scale[0], inverse), whole(high->scale[halves], inverse));
        if (minima)
            to->low[i] = both_words(whole(low->low[0], inverse), whole(high->low[halves], inverse));
    }
    if (!halves && count & 1) {
        const scales *high = &to->read[count - 1];
        const __m512i none = _mm512_setzero_si512();
        to->scale[count - 1] = both_words(none, whole(high->scale[0], inverse));
        if (minima) to->low[count - 1] = both_words(none, whole(high->low[0], inverse));
    }
}

/* As dot_pair, for at most GOLEM_PROMPT_COLUMNS prompt columns. */
INLINE void prompt_pair(const enum type type, const int bits, const int parts, const int head,
                        const uint8_t *first, const uint8_t *second, int in, const golem_q8 *a,
                        int n, int nc, float *out_first, float *out_second) {
    const int super = head + parts * 64 * bits, size = CHUNK / parts * super;
    const ptrdiff_t bytes = (in / 32 + parts - 1) / parts * super;
    const ptrdiff_t skip = second - first == bytes ? bytes : 0;
    const uint8_t *group[2] = {first, second};
    prompt_column columns[GOLEM_PROMPT_COLUMNS];
    /* aligned, which the outs need not be */
    _Alignas(64) float sums[2][GOLEM_PROMPT_COLUMNS * GOLEM_GROUP];
    prompt_place place = {.column = columns, .before = {sums[0], sums[1]}};
    group_scales scales[2];
    prompt_part p;
    for (int left = in / 32; left > 0; left -= CHUNK) {
        const int count = left < CHUNK ? left : CHUNK;
        const int pairs = !has_halves(type), starts = left == in / 32;
        const ptrdiff_t ahead = PROMPT_AHEAD + (group[0] - first + PROMPT_AHEAD < bytes ? 0 : skip);
        place.first = a;
        place.to[0] = left > CHUNK ? sums[0] : out_first;
        place.to[1] = left > CHUNK ? sums[1] : out_second;
        if (count <= 1 + pairs) memset(columns, 0, sizeof columns); /* closed at once */
        for (int g = 0; g < 2; g++) {
            if (count == CHUNK)
                read_scales_of(type, bits, parts, head, group[g], ahead, CHUNK, &scales[g]);
            else read_scales_of(type, bits, parts, head, group[g], ahead, count, &scales[g]);
            p.unit[g] = scales[g].unit;
        }
        for (int i = 0; i < count; i++, a += n) {
            const int at = i / parts * (head + parts * 64 * bits), k = i % parts;
            /* when they are needed and not before, for what they are made of comes late */
            if (i == (pairs && count > 1)) {
                for (int g = 0; g < 2; g++) make_whole(type, count, &scales[g]);
            }
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) {
                const uint8_t *codes = group[g] + at + head + k * 64 * bits;
                prefetch_kept(codes + ahead, 64 * bits);
                p.scale[g] = scales[g].scale[i];
                if (has_minima(type)) p.low[g] = scales[g].low[i];
#pragma GCC unroll 8
                for (int v = 0; v < 8; v++) p.w[g][v] = load_centred(type, bits, codes, v);
            }
            place.pairs = i & 1 ? 0x55555555 : 0;
            if (i == count - 1 && starts) add_part(type, &p, STARTS, a, nc, &place);
            else if (i == count - 1) add_part(type, &p, CLOSES, a, nc, &place);
            else if (pairs && !(i & 1)) add_part(type, &p, KEEPS, a, nc, &place);
            else if (i == pairs) add_part(type, &p, OPENS, a, nc, &place);
            else add_part(type, &p, ADDS, a, nc, &place);
        }
        group[0] += size, group[1] += size;
    }
}

#define PROMPT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                                        \
    __attribute__((target(TARGET))) static void prompt_##NAME(                                    \
        const uint8_t *first, const uint8_t *second, int in, const golem_act *a, int c0, int nc,  \
        float *out_first, float *out_second) {                                                    \
        float spare[GOLEM_PROMPT_COLUMNS * GOLEM_GROUP];                                          \
        if (!second) second = first, out_second = spare;                                          \
        prompt_pair(T_##NAME, BITS, COLS / 32, HEAD, first, second, in, a->q + c0, a->n, nc,      \
                    out_first, out_second);                                                       \
    }
GOLEM_CODE_TYPES(PROMPT)

/* Lane i of the result is what COMBINE makes of the lanes of x[i]. */
#define OF_LANES(NAME, COMBINE)                                                                   \
    INLINE __m512i NAME(const __m512i *x) {                                                       \
        __m512i t[8], u[4];                                                                       \
        for (int i = 0; i < 8; i++)                                                               \
            t[i] = COMBINE(_mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]),                         \
                           _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]));                        \
        for (int i = 0; i < 4; i++)                                                               \
            u[i] = COMBINE(_mm512_unpacklo_epi64(t[2 * i], t[2 * i + 1]),                         \
                           _mm512_unpackhi_epi64(t[2 * i], t[2 * i + 1]));                        \
        __m512i v = COMBINE(_mm512_shuffle_i32x4(u[0], u[1], 0x88),                               \
                            _mm512_shuffle_i32x4(u[0], u[1], 0xdd));                              \
        __m512i w = COMBINE(_mm512_shuffle_i32x4(u[2], u[3], 0x88),                               \
                            _mm512_shuffle_i32x4(u[2], u[3], 0xdd));                              \
        return COMBINE(_mm512_shuffle_i32x4(v, w, 0x88), _mm512_shuffle_i32x4(v, w, 0xdd));       \
    }
OF_LANES(largest_lanes, _mm512_max_epu32)

/* Lane i of the result is the sum of what lanes 4 (i % 4) .. of x[i / 4] hold. */
INLINE __m512i sums_of_fours(const __m512i *x) {
    __m512i t[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        t[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]),
                                _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]));
    __m512i sum = _mm512_add_epi32(_mm512_unpacklo_epi64(t[0], t[1]),
                                   _mm512_unpackhi_epi64(t[0], t[1]));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sum);
}

/* Scales of sixteens as the steps of linear_quantise.h have them: k + GOLEM_PROMPT_SHIFTS of each,
 * and what to multiply its values with. */
INLINE __m512i shifts_of(__m512i largest, float per_base, __m512 *inverse) {
    __m512 share = _mm512_mul_ps(_mm512_castsi512_ps(largest), _mm512_set1_ps(per_base));
    __m512i k = _mm512_add_epi32(_mm512_castps_si512(share), _mm512_set1_epi32(0x10000));
    k = _mm512_sub_epi32(_mm512_srli_epi32(k, 23), _mm512_set1_epi32(133));
    k = _mm512_max_epi32(k, _mm512_set1_epi32(-GOLEM_PROMPT_SHIFTS));
    __m512i power = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(127), k), 23);
    *inverse = _mm512_mul_ps(_mm512_set1_ps(per_base), _mm512_castsi512_ps(power));
    return _mm512_add_epi32(k, _mm512_set1_epi32(GOLEM_PROMPT_SHIFTS));
}

/* What shifts may have on top: the most a half can come to, times 128, has 30 bits then. */
INLINE int room_above(__m512i magnitudes, __m512i shifts) {
    uint32_t most = (uint32_t)_mm512_reduce_max_epi32(_mm512_sllv_epi32(magnitudes, shifts));
    int room = __builtin_clz(most + (most >> 8) + 1) - 9;
    return room > MOST_ROOM ? MOST_ROOM : room;
}

/* `records` of 32 values, 8 or, at the end of a column, fewer. */
INLINE void quantise_block(const float *x, const int records, golem_q8 *q, int n) {
    _Alignas(64) float inverses[16];
    __m512i y[16], codes[4], sums[4], magnitudes[4];
    __m512 inverse;
    float per_base, base;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        y[i] = i < 2 * records ? magnitude_of(_mm512_loadu_ps(x + 16 * i)) : _mm512_setzero_si512();
    __m512i largest = largest_lanes(y);
    scale_of((uint32_t)_mm512_reduce_max_epi32(largest), &per_base, &base);
    __m512i shifts = shifts_of(largest, per_base, &inverse);
    _mm512_store_ps(inverses, inverse);
    const __mmask16 used = per_base > 0 ? 0xffff : 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#pragma GCC unroll 4
        for (int j = 4 * i; j < 4 * i + 4; j++) {
            if (j >= 2 * records) y[j] = _mm512_setzero_si512();
            else y[j] = _mm512_maskz_cvtps_epi32(used, _mm512_mul_ps(_mm512_loadu_ps(x + 16 * j),
                                                                     _mm512_set1_ps(inverses[j])));
        }
        codes[i] = _mm512_packs_epi16(_mm512_packs_epi32(y[4 * i], y[4 * i + 1]),
                                      _mm512_packs_epi32(y[4 * i + 2], y[4 * i + 3]));
        codes[i] = _mm512_permutexvar_epi32(
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), codes[i]);
        const __m512i none = _mm512_setzero_si512(), ones = _mm512_set1_epi8(1);
        sums[i] = _mm512_dpbusd_epi32(none, ones, codes[i]);
        magnitudes[i] = _mm512_dpbusd_epi32(none, _mm512_abs_epi8(codes[i]), ones);
    }
    const int room = room_above(sums_of_fours(magnitudes), shifts);
    __m512i e = _mm512_add_epi32(shifts, _mm512_set1_epi32(room)), sum = sums_of_fours(sums);
    __m512i rounds = _mm512_srlv_epi32(_mm512_set1_epi32(1 << ROUNDS), e);
    __m512i starts = _mm512_sub_epi32(rounds, _mm512_slli_epi32(sum, 7));
    /* of halves, of parts, beside those of the part before */
    sum = _mm512_sllv_epi32(sum, e);
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, 0xb1));
    sum = _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(1 << (SUMS - 1))), SUMS);
    sum = both_words(_mm512_shuffle_epi32(sum, 0x4e), sum);
    const __m512i bases = _mm512_castps_si512(
        _mm512_set1_ps(base * power_of_2(-GOLEM_PROMPT_SHIFTS - room)));
    __m512i index = _mm512_setr_epi32(0, 1, 0, 0, 16, 17, 0, 0, 2, 3, 2, 2, 18, 19, 2, 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i heads = _mm512_permutex2var_epi32(e, index, starts);
        heads = _mm512_mask_permutexvar_epi32(heads, 0x0404, index, sum);
        heads = _mm512_mask_mov_epi32(heads, 0x0808, bases);
        index = _mm512_add_epi32(index, _mm512_set1_epi32(4));
        for (int half = 0; half < 2 && 2 * i + half < records; half++, q += n) {
            /* 24 bytes; the codes are stored over what is more */
            _mm256_storeu_si256((__m256i *)q, half ? _mm512_extracti64x4_epi64(heads, 1)
                                                   : _mm512_castsi512_si256(heads));
            _mm256_storeu_si256((__m256i *)q->q, half ? _mm512_extracti64x4_epi64(codes[i], 1)
                                                      : _mm512_castsi512_si256(codes[i]));
        }
    }
}

__attribute__((target(TARGET))) static void quantise_prompt(const float *x, int in, golem_q8 *q,
                                                            int n) {
    for (; in >= GOLEM_PROMPT_BLOCK; in -= GOLEM_PROMPT_BLOCK, x += GOLEM_PROMPT_BLOCK) {
        quantise_block(x, CHUNK, q, n);
        q += (ptrdiff_t)CHUNK * n;
    }
    if (in > 0) quantise_block(x, in / GOLEM_ACT_BLOCK, q, n);
}

#endif
