/* A door to the NEON kernels for test_neon.py, which compiles it for AArch64 and runs it under qemu.
 *
 * Requests come on stdin, one after the other, as eight int32: what, ggml type or function, rows,
 * width, columns, first column, number of columns, whether they are a prompt's; then the file's rows
 * and the columns in f32, or the values of a function. Answers go to stdout as f32. */
#define GOLEM_NEON
#include <stdio.h>
#include <stdlib.h>

#include "kernels/functions.h"
#include "kernels/linear.h"

enum { WHAT, KIND, ROWS, WIDTH, COLUMNS, FIRST, COUNT, IS_PROMPT, FIELDS };
enum { PRODUCT, FUNCTION, HALVES };

static void *must(void *p) {
    if (!p) exit(3);
    return p;
}

/* Zeroed, and in whole lines as kernels want it. */
static void *room(size_t bytes) {
    bytes = (bytes + 127) / 64 * 64;
    return memset(must(aligned_alloc(64, bytes)), 0, bytes);
}

static void *next(size_t bytes) {
    void *p = room(bytes);
    if (fread(p, 1, bytes, stdin) != bytes) exit(4);
    return p;
}

static void product(const int32_t *r) {
    int index = golem_type_index(r[KIND]), in = r[WIDTH], n = r[COLUMNS];
    if (index < 0) exit(5);
    const golem_linear_isa *neon = &golem_linear_neon;
    const golem_type *type = &golem_types[index];
    size_t row = (size_t)in / type->block * type->bytes, size = type->group_bytes(in);
    uint8_t *rows = next(row * r[ROWS]), *group[2] = {room(size), room(size)};
    float *x = next(4ul * in * n), *out[2];
    golem_q8 *q = room(sizeof *q * (in / 32 + 1) * n);
    for (int g = 0; g < 2; g++) {
        out[g] = room(64ul * r[COUNT]);
        int left = r[ROWS] - 16 * g;
        if (left > 0) type->repack(rows + row * 16 * g, row, left < 16 ? left : 16, in, group[g]);
    }
    golem_act a = {.x = x, .x_stride = in, .q = q, .n = n};
    for (int c = 0; type->act == GOLEM_ACT_Q8 && c < n; c++)
        (r[IS_PROMPT] ? neon->quantise_prompt : neon->quantise_row)(x + (size_t)in * c, in, q + c, n);
    if (r[IS_PROMPT])
        neon->prompt[index](group[0], group[1], in, &a, r[FIRST], r[COUNT], out[0], out[1]);
    else
        for (int g = 0; g < 2; g++) neon->dot[index](group[g], in, &a, r[FIRST], r[COUNT], out[g]);
    for (int g = 0; g < 2; g++) fwrite(out[g], 64, (size_t)r[COUNT], stdout);
}

static void function(const int32_t *r) {
    float *x = next(4ul * LANES * r[ROWS]);
    for (int i = 0; i < r[ROWS]; i++, x += LANES) {
        uint16_t half[LANES];
        vstore_half(half, vload(x));
        vstore(x, r[WHAT] == FUNCTION ? vunary(r[KIND], vload(x)) : vload_half(half));
        fwrite(x, 4, LANES, stdout);
    }
}

int main(void) {
    int32_t r[FIELDS];
    if (!golem_runs(1)) return 2;
    while (fread(r, 4, FIELDS, stdin) == FIELDS) (r[WHAT] == PRODUCT ? product : function)(r);
    return 0;
}
