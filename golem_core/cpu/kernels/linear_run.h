/* linear: how a record's products are shared out between the workers.
 *
 * Few columns wait for memory, and memory is fastest where it is read without a break. So a worker
 * says ahead where it will read on (product_turns below): its kernels fetch that while they come to
 * the end of what they read, from one stretch to the next and from one product to the next; and
 * while it waits for the others, it fetches more. Measured on Zen 5 with two threads, where memory
 * gives 84 GB/s: Qwen3-0.6B Q4_K draws 1.08 times as fast as where every stretch begins anew,
 * SmolLM2-135M 1.05 times. */
#ifndef GOLEM_LINEAR_RUN_H
#define GOLEM_LINEAR_RUN_H

#include "products.h"

enum { MANY = 32 };   /* columns from which a unit is but a few groups: */
enum { FINE = 4 };    /* where several workers share columns; where each has its own, SERIES */
enum { FETCHED = 40 << 10 };   /* bytes at most that are fetched while waiting */

/* Groups a unit takes. With many columns a few groups are work enough, and share out more evenly;
 * but prompt columns are quantised by whole blocks. */
static inline int chunk_of(const golem_segment *s, const golem_pass *p, int columns, int drawn) {
    if (columns > drawn && s->quantised >= 0) return GOLEM_PROMPT_BLOCK / LANES;
    if (columns < MANY) return s->chunk;
    int most = shares_of(p, columns - drawn) < p->threads ? FINE : SERIES;
    return s->chunk > most ? most : s->chunk;
}

static inline int chunks_of(const golem_segment *s, const golem_pass *p, int columns, int drawn) {
    int chunk = chunk_of(s, p, columns, drawn);
    return chunk == s->chunk ? s->units : (s->groups + chunk - 1) / chunk;
}

static inline int is_few(int columns, int drawn) { return columns == drawn && columns < MANY; }

static int units_of(const golem_record *r, const golem_pass *p, int columns, int drawn) {
    int units = 0;
    for (int i = 0; i < r->segments; i++) units += chunks_of(&r->segment[i], p, columns, drawn);
    return units;
}

/* A unit of a record: groups from .. to - 1 of a segment. */
typedef struct {
    const golem_segment *s;
    int from, to;
} product_unit;

static product_unit unit_of(const golem_record *r, const golem_pass *p, int columns, int drawn,
                            int unit) {
    const golem_segment *s = r->segment;
    for (int units; unit >= (units = chunks_of(s, p, columns, drawn)); s++) unit -= units;
    int chunk = chunk_of(s, p, columns, drawn), from = unit * chunk;
    return (product_unit){s, from, from + chunk < s->groups ? from + chunk : s->groups};
}

static void run_unit(const golem_record *r, golem_worker *w, const golem_act *act, int columns,
                     int drawn, int begin, int end, product_unit u) {
    int planes = golem_types[u.s->a.type].act == GOLEM_ACT_Q8 ? r->i[0] : 1;
    multiply(u.s, w, act, planes, columns, drawn, begin, end, u.from, u.to, 0, NULL, columns,
             drawn);
}

/* Turns at the units of a record of few columns. A turn takes half of the worker's even share of
 * what is left, in the end a unit. The first ones are the workers' by their numbers, so that each
 * knows beforehand where it will begin. */
typedef struct {
    golem_worker *w;
    int units, unit, left;   /* in all; of the turn, the next one and how many there are */
    int given;               /* turns that nobody had to take */
} product_turns;

static void begin_turn(product_turns *t, int turn) {
    const int workers = t->w->pass->threads;
    t->unit = 0;
    for (t->left = 1; t->unit < t->units; t->unit += t->left) {
        t->left = (t->units - t->unit) / (2 * workers);
        if (t->left < 1) t->left = 1;
        if (turn-- == 0) break;
    }
}

static product_turns first_turn(const golem_record *r, golem_worker *w, int columns) {
    product_turns t = {.w = w, .units = units_of(r, w->pass, columns, columns)};
    if (w->begins) t.given = w->pass->threads;
    begin_turn(&t, w->begins ? w->worker : golem_take(w));
    return t;
}

static void next_unit(product_turns *t) {
    t->unit++;
    if (--t->left) return;
    int turn = golem_take(t->w);
    begin_turn(t, turn < INT32_MAX ? t->given + turn : turn);
}

/* The weights of a unit that are read in one go first. */
static golem_stretch weights_of(product_unit u) {
    const golem_matrix *m = &u.s->a;
    int groups = u.s->b.groups && u.to - u.from > IN_ORDER ? IN_ORDER : u.to - u.from;
    const uint8_t *from = m->groups + u.from * m->group_bytes;
    return (golem_stretch){from, from + groups * m->group_bytes};
}

/* Where a worker will begin with a record; nothing where its columns are not few. */
static golem_stretch begin_linear(const golem_record *r, const golem_worker *w) {
    int columns = (int)w->pass->extents[r->extent], drawn = (int)w->pass->drawn_rows[r->extent];
    golem_stretch none = {0};
    if (!columns || !is_few(columns, drawn)) return none;
    product_turns t = {.w = (golem_worker *)w, .units = units_of(r, w->pass, columns, drawn)};
    begin_turn(&t, w->worker);
    if (t.unit >= t.units) return none;
    golem_stretch first = weights_of(unit_of(r, w->pass, columns, drawn, t.unit));
    const char *most = (const char *)first.from + FETCHED;
    if (most < (const char *)first.to) first.to = most;
    return first;
}

/* A turn is taken while the last unit of the one before is still to be run: it says where reading
 * goes on. */
static void run_few(const golem_record *r, golem_worker *w, const golem_act *act, int columns) {
    product_turns t = first_turn(r, w, columns);
    while (t.unit < t.units) {
        product_unit u = unit_of(r, w->pass, columns, columns, t.unit);
        next_unit(&t);
        if (t.unit < t.units) {
            w->then = weights_of(unit_of(r, w->pass, columns, columns, t.unit)).from;
        } else {
            if (w->following) w->ahead = begin_linear(w->following, w);
            w->then = w->ahead.from;
        }
        run_unit(r, w, act, columns, columns, 0, columns, u);
    }
    w->then = NULL;
}

/* in: x (rows, in) f32, the same as golem_codes; segments read one or the other. i: planes of drawn
 * rows, 1 or 2 */
static void run_linear(const golem_record *r, golem_worker *w) {
    int columns = (int)w->pass->extents[r->extent], drawn = (int)w->pass->drawn_rows[r->extent];
    golem_act act = act_of(r, w);
    if (columns == 0) return;
    int units = units_of(r, w->pass, columns, drawn);
    FOR_SHARES(turns, w, shares_of(w->pass, columns - drawn)) {
        int begin = (int)share_start(w->pass, columns, drawn, turns.share);
        int end = (int)share_start(w->pass, columns, drawn, turns.share + 1);
        if (is_few(columns, drawn)) {
            run_few(r, w, &act, columns);
            continue;
        }
        for (int unit; (unit = golem_take(w)) < units;)
            run_unit(r, w, &act, columns, drawn, begin, end,
                     unit_of(r, w->pass, columns, drawn, unit));
    }
}

#endif
