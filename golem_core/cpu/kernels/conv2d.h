/* conv2d: convolution of a map (h, w, c) as a product, without ever laying the map's patches out.
 *
 * A unit is a few panels of output pixels (gemm.h): what the kernel sees of each is gathered into
 * the worker's scratch, then multiplied by all groups of the kernel. */
#ifndef GOLEM_CONV2D_H
#define GOLEM_CONV2D_H

#include "gemm.h"

enum { MAP_WIDTH, MAP_CHANNELS, MAP_HIGH, MAP_WIDE, MAP_STRIDE, MAP_PAD, MAP_UP, MAP_COLUMNS,
       MAP_ROWS };
enum { MAP_PANELS = 4 };   /* panels of a unit */

/* What the kernel sees of output pixel `pixel`, as lane `lane` of a panel. */
static void map_gather(const golem_record *r, const float *x, int64_t rows, int64_t row,
                       int64_t pixel, float *panel) {
    int channels = r->i[MAP_CHANNELS], up = r->i[MAP_UP], wide = r->i[MAP_WIDTH];
    int64_t y0 = pixel / r->i[MAP_COLUMNS] * r->i[MAP_STRIDE] - r->i[MAP_PAD];
    int64_t x0 = pixel % r->i[MAP_COLUMNS] * r->i[MAP_STRIDE] - r->i[MAP_PAD];
    for (int i = 0; i < r->i[MAP_HIGH]; i++)
        for (int j = 0; j < r->i[MAP_WIDE]; j++, panel += (int64_t)channels * PANEL) {
            int64_t py = y0 + i, px = x0 + j;
            if (py < 0 || px < 0 || py >= rows * up || px >= (int64_t)wide * up) {
                for (int c = 0; c < channels; c++) panel[(int64_t)c * PANEL] = 0;
                continue;
            }
            const float *from = x + py / up * row + px / up * channels;
            for (int c = 0; c < channels; c++) panel[(int64_t)c * PANEL] = from[c];
        }
}

/* in: x, whose rows are lines of the map. i: MAP_WIDTH .. MAP_COLUMNS, and the extent of x's lines.
 * The record's extent counts lines of the result. scratch: MAP_PANELS panels */
static void run_conv2d(const golem_record *r, golem_worker *w) {
    const golem_segment *s = r->segment;
    int64_t pixels = w->pass->extents[r->extent] * r->i[MAP_COLUMNS];
    int64_t lines = w->pass->extents[r->i[MAP_ROWS]];
    const float *x = (const float *)base_of(&r->in[0], w);
    float *panels = (float *)w->scratch;
    product_store p = gemm_store(s, w);
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
        int64_t first = unit * MAP_PANELS * PANEL, left = pixels - first;
        if (left <= 0) return;
        int count = (int)(left < MAP_PANELS * PANEL ? left : MAP_PANELS * PANEL);
        for (int c = 0; c < count; c++)
            map_gather(r, x, lines, r->in[0].row, first + c,
                       panels + (int64_t)(c / PANEL) * s->in * PANEL + c % PANEL);
        for (int g = 0; g < s->groups; g += PANEL_GROUPS)
            gemm_unit(&p, panels, 0, g, g + PANEL_GROUPS < s->groups ? g + PANEL_GROUPS : s->groups,
                      (int)first, count, NULL);
    }
}

#endif
