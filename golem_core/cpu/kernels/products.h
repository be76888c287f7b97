/* linear: products of repacked matrices with the columns of a pass, and what follows in the store.
 *
 * A unit is a chunk of groups of one segment. Its weights are read from memory once, for the first
 * block of columns, and from cache for the others. A sum over a row is never split between units,
 * so a result's bits depend on nothing but its row and its column. */
#ifndef GOLEM_PRODUCTS_H
#define GOLEM_PRODUCTS_H

#include "elementwise.h"
#include "units.h"

enum { COLUMNS = GOLEM_PROMPT_COLUMNS };     /* columns a kernel call takes at most */
/* Columns from which two groups at once are sooner done, where memory brings their weights: from
 * there on a broadcast that serves two groups saves more than two streams of memory cost. Measured
 * on Zen 5 by whole passes of drawn columns, 2048 wide: with 4 .. 8 columns one at a time takes
 * 0.87 to 0.95 of the time, with 10 1.04 to 1.3 times as long. */
enum { PAIRED = 10 };
/* The same for float weights that memory brings, whose two streams cost more. Measured on Zen 5 by
 * whole passes, 1024 wide: with 10 .. 16 columns one group at a time takes 0.67 to 0.83 of the
 * time, but 1.0 to 1.16 of it with F16 weights that the last cache keeps. */
enum { FLOATS_PAIRED = 17 };
static inline int paired_from(const golem_linear_isa *linear, int type) {
    int memory = linear->kept != NULL;   /* a set for kept weights has no other */
    return golem_types[type].act == GOLEM_ACT_F32 && memory ? FLOATS_PAIRED : PAIRED;
}
/* Groups of a gate that few columns meet before those of what it gates, at most: memory is fastest
 * where it is read in order. */
enum { IN_ORDER = 4 };
/* Groups of a prompt whose results wait in the first-level cache until a column's are stored one
 * after the other: columns lie far apart, often by a power of two, so that few of their lines have
 * room in a cache. Measured on Zen 5 with Qwen3-0.6B: 1.05 times as fast as two at a time. */
enum { SERIES = 8 };

/* Types of at most 8 / 3 bits a weight gain from two groups at once with any number of columns but
 * one: a single one only with types of one bit. */
static inline golem_pair_fn pair_of(const golem_linear_isa *linear, int type, int columns) {
    const golem_type *t = &golem_types[type];
    int few = columns > 1 ? 3 * t->bytes <= t->block : 16 * t->bytes < 3 * t->block;
    int many = columns >= paired_from(linear, type);
    return linear->pair && (few || many) ? linear->pair[type] : NULL;
}

static inline vf scaled(const golem_matrix *m, vf x, int row, int count) {
    if (m->scales) x = vmul(x, m->scales == 1 ? vset(m->scale[0]) : vread(m->scale + row, count));
    return m->bias ? vadd(x, vread(m->bias + row, count)) : x;
}

static inline vf finished(const golem_segment *s, char *const *operand, vf x, int64_t column,
                          int row, int count) {
    for (int i = 0; i < s->finishes; i++) {
        const golem_finish *f = &s->finish[i];
        vf y = vzero();
        if (operand[i]) {
            const float *p = (const float *)operand[i] + column * f->operand.row;
            y = vread_step(p + row * f->operand.step, 0, count, f->operand.step);
        }
        switch (f->kind) {
        case GOLEM_ADD: x = vadd(x, y); break;
        case GOLEM_MUL: x = vmul(x, y); break;
        case GOLEM_UNARY: x = vunary(f->unary, x); break;
        case GOLEM_CLAMP: x = vclamp(x, f->a, f->b); break;
        default: x = vsoftcap(x, f->a);
        }
    }
    return x;
}

/* Where the results of a segment go. */
typedef struct {
    const golem_segment *s;
    golem_worker *w;
    char *operand[GOLEM_FINISHES];
    float *store;             /* rows of f32, or NULL */
    float *stage;             /* (columns, width): a chunk's results until they are quantised */
    golem_codes codes;        /* of the stored rows, or none */
    const int32_t *rows;      /* row of the store for each column; NULL: the columns themselves */
    int from, width;          /* first group of the chunk, and its rows */
} product_store;

/* What the results of a segment mostly ask for, and anything else. */
enum { FINISH_ANY, FINISH_NONE, FINISH_SUM, FINISH_SILU };

static int finish_of(const product_store *p, int paired, int count) {
    const golem_segment *s = p->s;
    if (count < LANES || s->a.scales || s->a.bias) return FINISH_ANY;
    if (paired) {
        int plain = !s->finishes && !s->b.scales && !s->b.bias;
        return plain && s->gate == GOLEM_SILU ? FINISH_SILU : FINISH_ANY;
    }
    if (s->finishes == 0) return FINISH_NONE;
    int sum = s->finishes == 1 && s->finish[0].kind == GOLEM_ADD;
    return sum && p->operand[0] && s->finish[0].operand.step == 1 ? FINISH_SUM : FINISH_ANY;
}

/* Raw products of `run` groups from `group` on with columns first .. : that of group i and column c
 * at a + (i * wide + c) * LANES. b: those of the pair's second matrix, or NULL. */
typedef struct {
    const float *a, *b;
    int group, run, wide, first, columns;
} raw_products;

static inline __attribute__((always_inline)) void finish_columns(const product_store *p,
                                                                 const raw_products *of,
                                                                 const int kind) {
    const golem_segment *s = p->s;
    for (int c = 0; c < of->columns; c++) {
        int64_t column = p->rows ? p->rows[of->first + c] : of->first + c;
        float *to = p->codes.q ? p->stage + c * p->width + (of->group - p->from) * LANES
                               : p->store + column * s->store.row + of->group * LANES;
        for (int i = 0; i < of->run; i++, to += LANES) {
            int row = (of->group + i) * LANES, count = LANES, at = (i * of->wide + c) * LANES;
            vf x = vload(of->a + at);
            if (kind == FINISH_ANY && s->out - row < LANES) count = s->out - row;
            if (kind == FINISH_SUM) {
                const float *y = (const float *)p->operand[0] + column * s->finish[0].operand.row;
                x = vadd(x, vload(y + row));
            } else if (kind == FINISH_SILU) {
                x = vmul(vsilu(x), vload(of->b + at));
            } else if (kind == FINISH_ANY) {
                x = scaled(&s->a, x, row, count);
                if (of->b)
                    x = vmul(vunary(s->gate, x), scaled(&s->b, vload(of->b + at), row, count));
                x = finished(s, p->operand, x, column, row, count);
            }
            vwrite(to, x, count);
        }
    }
}

/* Scaled, gated, finished and stored or staged, a column's groups one after the other. */
static void finish_groups(const product_store *p, const raw_products *of) {
    switch (finish_of(p, of->b != NULL, p->s->out - (of->group + of->run - 1) * LANES)) {
    case FINISH_NONE: finish_columns(p, of, FINISH_NONE); break;
    case FINISH_SUM: finish_columns(p, of, FINISH_SUM); break;
    case FINISH_SILU: finish_columns(p, of, FINISH_SILU); break;
    default: finish_columns(p, of, FINISH_ANY);
    }
}

/* Where results of `run` groups from `group` on are going to be added and stored: a column's are
 * far from those of the next, which no processor foresees. They arrive while the products are
 * formed. */
static void fetch_results(const product_store *p, int group, int run, int first, int columns) {
    const golem_segment *s = p->s;
    int sum = s->finishes && p->operand[0] && s->finish[0].operand.step == 1;
    for (int c = 0; c < columns; c++) {
        int64_t column = p->rows ? p->rows[first + c] : first + c;
        for (int row = group * LANES; row < (group + run) * LANES; row += LANES) {
            __builtin_prefetch(p->store + column * s->store.row + row, 1);
            if (sum)
                __builtin_prefetch((float *)p->operand[0] + column * s->finish[0].operand.row +
                                   row);
        }
    }
}

static void quantise_stage(const product_store *p, int first, int columns) {
    for (int c = 0; c < columns; c++) {
        int64_t at = p->rows ? p->rows[first + c] : first + c;
        const float *line = p->stage + (int64_t)c * p->width;
        quantise_column(p->w, &p->codes, at, line, p->width, p->from / 2);
        if (p->store)
            memcpy(p->store + at * p->s->store.row + p->from * LANES, line, (size_t)p->width * 4);
    }
}

/* Raw products of columns with two planes of codes, (2 · columns, 16) a group: each column's two
 * add up. */
static void join_planes(float *out, int groups, int columns) {
    for (; groups > 0; groups--, out += 2 * columns * LANES)
        for (int c = 0; c < columns; c++)
            vstore(out + c * LANES,
                   vadd(vload(out + 2 * c * LANES), vload(out + (2 * c + 1) * LANES)));
}

/* Products of one or two groups with columns at .. at + wide - 1 of the codes. */
static void products_of(const golem_linear_isa *linear, int prompt, int type, int other_type,
                        const uint8_t *group, const uint8_t *other, int in, const golem_act *act,
                        int at, int wide, float *a, float *b) {
    if (other && type != other_type) {
        products_of(linear, prompt, type, type, group, NULL, in, act, at, wide, a, NULL);
        products_of(linear, prompt, other_type, type, other, NULL, in, act, at, wide, b, NULL);
    } else if (prompt) {
        linear->prompt[type](group, other, in, act, at, wide, a, b);
    } else if (other && pair_of(linear, type, wide)) {
        linear->pair[type](group, other, in, act, at, wide, a, b);
    } else {
        linear->dot[type](group, in, act, at, wide, a);
        if (other) linear->dot[type](other, in, act, at, wide, b);
    }
}

/* Products of `count` groups of one matrix, that of group i at out + i * wide * LANES. */
static void products_in_order(const golem_linear_isa *linear, int prompt, const golem_matrix *m,
                              const uint8_t *group, int count, int in, const golem_act *act, int at,
                              int wide, float *out) {
    for (int i = 0; i < count; i += 2, group += 2 * m->group_bytes, out += 2 * wide * LANES)
        products_of(linear, prompt, m->type, m->type, group,
                    i + 1 < count ? group + m->group_bytes : NULL, in, act, at, wide, out,
                    out + wide * LANES);
}

/* Weights are read up to `end` and then from `next` on, NULL: that is not known. */
static inline void read_on(golem_act *act, const uint8_t *end, const uint8_t *next) {
    act->end = end;
    act->skip = next ? next - end : 0;
}

/* Groups from .. to - 1 of a segment over columns begin .. end - 1 of act, whose codes are
 * golem_codes of all columns, or lie n apart where act says so and one call takes all: the first
 * `drawn` columns have `planes` each. expert selects the matrices; rows are where the columns go
 * among the `stored` rows of the store, of which stored_drawn are drawn, NULL: as they are. */
static void multiply(const golem_segment *s, golem_worker *w, const golem_act *act, int planes,
                     int columns, int drawn, int begin, int end, int from, int to, int64_t expert,
                     const int32_t *rows, int64_t stored, int64_t stored_drawn) {
    const golem_linear_isa *linear = w->pass->linear;
    const uint8_t *ga = s->a.groups + expert * s->a.expert_bytes;
    const uint8_t *gb = s->b.groups ? s->b.groups + expert * s->b.expert_bytes : NULL;
    float sums[SERIES * COLUMNS * LANES]; /* of groups in a row; those of the second matrix are b */
    product_store p = {.s = s, .w = w, .store = (float *)base_of(&s->store, w), .rows = rows,
                       .stage = (float *)w->scratch, .from = from, .width = (to - from) * LANES};
    if (s->quantised >= 0)
        p.codes = codes_of(w, w->pass->base[s->quantised], stored, stored_drawn, 1, s->out);
    for (int i = 0; i < s->finishes; i++) p.operand[i] = base_of(&s->finish[i].operand, w);
    golem_codes codes = codes_of(w, (void *)act->q, columns, drawn, planes, s->in);
    golem_act here = *act;
    const int floats = golem_types[s->a.type].act == GOLEM_ACT_F32;
    for (int first = begin, count; first < end; first += count) {
        int prompt = first >= drawn, both = !prompt && planes == 2, at = first;
        int most_columns = COLUMNS / (1 + both);
        count = (prompt ? end : drawn) - first;
        if (prompt && !act->n) {   /* to the end of their block */
            int left = codes.columns - (first - drawn) % codes.columns;
            if (count > left) count = left;
        }
        if (count > most_columns) count = most_columns;
        int wide = count * (1 + both);
        w->read += (int64_t)(to - from) * (s->a.group_bytes + s->b.group_bytes);
        if (!floats) {
            golem_code_column column = {(golem_q8 *)act->q, act->n};
            if (!act->n) column = column_of(&codes, first);
            here.q = column.q, here.n = column.n, at = 0;
            here.precise = prompt && codes.precise;
        }
        float *a = sums, *b = gb ? sums + COLUMNS * LANES : NULL;
        int alone = wide < paired_from(linear, s->a.type);
        int most = gb ? prompt || !alone ? 1 : COLUMNS / wide : prompt ? SERIES : 2;
        if (!prompt && most > IN_ORDER) most = IN_ORDER;
        /* the first columns of a prompt wait for memory like drawn ones; floats have equal bits */
        int as_prompt = prompt && !(alone && first == begin && floats && linear->kept);
        for (int g = from, run; g < to; g += run) {
            const uint8_t *group = ga + g * s->a.group_bytes;
            const uint8_t *other = gb ? gb + g * s->b.group_bytes : NULL;
            run = to - g < most ? to - g : most;
            if (prompt && !p.codes.q) fetch_results(&p, g, run, first, count);
            const uint8_t *end = group + run * s->a.group_bytes;
            const uint8_t *next = g + run < to ? end : w->then;
            if (gb && run == 1 && (prompt || pair_of(linear, s->a.type, wide))) {
                products_of(linear, as_prompt, s->a.type, s->b.type, group, other, s->in, &here, at,
                            wide, a, b);
            } else {
                read_on(&here, end, gb ? other : next);
                products_in_order(linear, as_prompt, &s->a, group, run, s->in, &here, at, wide, a);
                if (gb) {
                    read_on(&here, other + run * s->b.group_bytes, next);
                    products_in_order(linear, as_prompt, &s->b, other, run, s->in, &here, at, wide,
                                      b);
                }
            }
            if (both) join_planes(a, run, count);
            if (both && gb) join_planes(b, run, count);
            raw_products of = {a, b, g, run, both ? 2 * count : count, first, count};
            finish_groups(&p, &of);
        }
        if (p.codes.q) quantise_stage(&p, first, count);
    }
}

static inline golem_act act_of(const golem_record *r, const golem_worker *w) {
    return (golem_act){.x = (const float *)base_of(&r->in[0], w), .x_stride = r->in[0].row,
                       .q = (const golem_q8 *)base_of(&r->in[1], w)};
}

#endif
