/* conv1d: convolution over the rows of a run, or over all rows, with what lies before them.
 *
 * Where every channel stands by itself a unit takes a block of channels through a whole run and
 * leaves the window behind it. Otherwise units are blocks of rows and of output channels, and a
 * record of its own moves the window on after all of them have read it. */
#ifndef GOLEM_CONV1D_H
#define GOLEM_CONV1D_H

#include "tile.h"
#include "units.h"

enum { CONV_CHANNELS = 64 };   /* output channels of a dense unit */
enum { CONV_WIDE = 256 };      /* channels of a depthwise unit: rows far apart are read in lines */
enum { CONV_ROWS = 32 };       /* output rows of a dense unit */
enum { CONV_PIECE = 256 };     /* output rows of a depthwise unit where no window is kept */

enum { CONV_OUT, CONV_TAPS, CONV_STRIDE, CONV_DILATION, CONV_GROUPS, CONV_RATE, CONV_BEFORE,
       CONV_FIRST, CONV_UNARY, CONV_IN };

/* in: x (rows, in). data: kernel, bias or NULL. i: CONV_OUT .. CONV_IN; rate 0: no runs, first: the
 * first row stands for what lies before index 0, unary: kind of what follows or -1 */
typedef struct {
    const golem_record *r;
    const golem_worker *w;
    const float *kernel, *bias;
    float *x, *y;
    int64_t x_row, y_row, rows;
    int in, out, taps, stride, dilation, before;
} convolution;

/* Rows of one sequence; state: its window, NULL where nothing was kept. */
typedef struct {
    int64_t first, count;
    float *state;
    int fresh;              /* starts at index 0 */
} conv_sequence;

static convolution convolution_of(const golem_record *r, const golem_worker *w) {
    return (convolution){
        .r = r, .w = w, .kernel = r->data[0], .bias = r->data[1],
        .x = (float *)base_of(&r->in[0], w), .y = (float *)base_of(&r->out[0], w),
        .x_row = r->in[0].row, .y_row = r->out[0].row, .rows = w->pass->extents[r->extent],
        .in = r->i[CONV_IN], .out = r->i[CONV_OUT], .taps = r->i[CONV_TAPS],
        .stride = r->i[CONV_STRIDE], .dilation = r->i[CONV_DILATION], .before = r->i[CONV_BEFORE],
    };
}

/* Sequence number `at`; 0 when there is none. The record's extent counts input rows. */
static int conv_sequence_at(const convolution *c, int at, conv_sequence *s) {
    const golem_pass *p = c->w->pass;
    int64_t rate = c->r->i[CONV_RATE];
    if (!rate) {
        *s = (conv_sequence){0, c->rows, NULL, 1};
        return at == 0;
    }
    if (at >= p->run_count) return 0;
    const int32_t *run = p->runs + 5 * (int64_t)at;
    *s = (conv_sequence){run[1] * rate, run[2] * rate, NULL, run[3] == 0};
    if (c->r->state.base) s->state = c->r->state.base + run[0] * c->r->state.floats;
    return 1;
}

/* The input row `at` of a sequence, counted from its first; NULL for a row of zeros. */
static inline const float *conv_row(const convolution *c, const conv_sequence *s, int64_t at) {
    if (at < 0) {
        if (s->state && !s->fresh) return s->state + (c->before + at) * c->in;
        if (!c->r->i[CONV_FIRST] || !s->count) return NULL;
        at = 0;
    }
    return c->x + (s->first + at) * c->x_row;
}

/* Leaves the last rows of a sequence in its window, channels from .. from + width - 1. */
static void move_window(const convolution *c, const conv_sequence *s, int from, int width) {
    for (int64_t k = 0; k < c->before; k++) { /* ascending: rows are read before they are moved */
        const float *row = conv_row(c, s, s->count - c->before + k);
        float *to = s->state + k * c->in + from;
        if (row) memmove(to, row + from, (size_t)width * 4);
        else memset(to, 0, (size_t)width * 4);
    }
}

static inline vf conv_finish(const convolution *c, vf y, int channel, int count) {
    if (c->bias) y = vadd(y, vread(c->bias + channel, count));
    return c->r->i[CONV_UNARY] < 0 ? y : vunary(c->r->i[CONV_UNARY], y);
}

/* One output row of channels from .. of what each tap sees. kernel: (taps, channels) */
static inline __attribute__((always_inline)) void conv_line(const convolution *c,
                                                            const float *const *x, float *y,
                                                            int from, int width, const int taps) {
    for (int i = from; i < from + width; i += LANES) {
        int count = from + width - i < LANES ? from + width - i : LANES;
        vf sum = vzero();
        for (int j = 0; j < taps; j++) {
            vf k = vread(c->kernel + (int64_t)j * c->out + i, count);
            sum = vfma(vread(x[j] + i, count), k, sum);
        }
        vwrite(y + i, conv_finish(c, sum, i, count), count);
    }
}

/* The worker's scratch holds a row of zeros and, behind it, where each tap reads. */
static void conv_channels(const convolution *c, const conv_sequence *s, int from, int width,
                          int64_t row, int64_t end) {
    float *zeros = (float *)c->w->scratch;
    const float **x = (const float **)(c->w->scratch + ((int64_t)c->in * 4 + 63) / 64 * 64);
    memset(zeros + from, 0, (size_t)width * 4);
    for (; row < end; row++) {
        float *y = c->y + (s->first / c->stride + row) * c->y_row;
        for (int j = 0; j < c->taps; j++) {
            int64_t at = row * c->stride - c->before + (int64_t)j * c->dilation;
            const float *seen = conv_row(c, s, at);
            x[j] = seen ? seen : zeros;
        }
        if (c->taps == 4) conv_line(c, x, y, from, width, 4);
        else conv_line(c, x, y, from, width, c->taps);
    }
}

/* kernel: (groups, taps, in / groups, out / groups padded). Rows .. of one block of a group. */
static void conv_dense(const convolution *c, const conv_sequence *s, int group, int from,
                       int64_t row, int rows) {
    int groups = c->r->i[CONV_GROUPS], each = c->in / groups, mine = c->out / groups;
    int line = (mine + LANES - 1) / LANES * LANES, left = mine - from;
    int width = left < CONV_CHANNELS ? left : CONV_CHANNELS;
    int wide = (width + LANES - 1) / LANES * LANES;
    float acc[CONV_ROWS * CONV_CHANNELS], *zeros = (float *)c->w->scratch;
    const float *a[CONV_ROWS];
    memset(zeros, 0, (size_t)each * 4);
    for (int j = 0; j < c->taps; j++) {
        for (int i = 0; i < rows; i++) {
            int64_t at = (row + i) * c->stride - c->before + (int64_t)j * c->dilation;
            const float *x = conv_row(c, s, at);
            a[i] = x ? x + group * each : zeros;
        }
        const float *b = c->kernel + ((int64_t)group * c->taps + j) * each * line + from;
        tile_multiply(a, 1, b, line, acc, CONV_CHANNELS, rows, each, wide, j > 0);
    }
    for (int i = 0; i < rows; i++) {
        int first = group * mine + from;
        float *y = c->y + (s->first / c->stride + row + i) * c->y_row + first;
        FOR_LANES(v, width, count)
            vwrite(y + v, conv_finish(c, vload(acc + i * CONV_CHANNELS + v), first + v, count),
                   count);
    }
}

static void run_conv1d(const golem_record *r, golem_worker *w) {
    convolution c = convolution_of(r, w);
    int groups = r->i[CONV_GROUPS], alone = groups == c.in && groups == c.out;
    int mine = c.out / groups, blocks = (mine + CONV_CHANNELS - 1) / CONV_CHANNELS * groups;
    if (alone) blocks = (c.in + CONV_WIDE - 1) / CONV_WIDE;
    int64_t unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed), before = 0;
    conv_sequence s;
    for (int at = 0; conv_sequence_at(&c, at, &s); at++) {
        int64_t rows = s.count / c.stride, piece = alone ? CONV_PIECE : CONV_ROWS;
        if (alone && s.state) piece = rows;
        int64_t units = rows ? (rows + piece - 1) / piece * blocks : 0;
        for (; unit < before + units;
             unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed)) {
            int block = (int)((unit - before) % blocks);
            int64_t row = (unit - before) / blocks * piece, end = row + piece;
            if (end > rows) end = rows;
            if (alone) {
                int from = block * CONV_WIDE, left = c.in - from;
                int width = left < CONV_WIDE ? left : CONV_WIDE;
                conv_channels(&c, &s, from, width, row, end);
                if (s.state) move_window(&c, &s, from, width);
            } else {
                int each = blocks / groups;
                conv_dense(&c, &s, block / each, block % each * CONV_CHANNELS, row,
                           (int)(end - row));
            }
        }
        before += units;
    }
}

/* The windows of a dense convolution, after it. in, i: as of conv1d. */
static void run_window(const golem_record *r, golem_worker *w) {
    convolution c = convolution_of(r, w);
    conv_sequence s;
    for (int at = 0; conv_sequence_at(&c, at, &s); at++)
        if (at % w->pass->threads == w->worker) move_window(&c, &s, 0, c.in);
}

#endif
