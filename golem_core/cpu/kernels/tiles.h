/* AMX: eight registers of up to 16 rows of 64 bytes, and products of two added to a third.
 *
 * Everything that needs them is written against this page and compiled twice: with the
 * instructions, and (GOLEM_EMULATED) with plain C that does the same, so that the kernels can be
 * tested bit for bit on processors without them.
 *
 * The instructions are inline assembly of our own, because the intrinsics of gcc to 12 do not tell
 * the compiler what memory they read: stores to a configuration or a tile's source may be dropped
 * or come too late. The register's number is a constant at every call, so the switches vanish. */
#ifndef GOLEM_TILES_H
#define GOLEM_TILES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What ldtilecfg reads. Registers of zero rows are not in use. */
typedef struct {
    _Alignas(64) uint8_t palette;
    uint8_t first_row, unused[14];
    uint16_t bytes[16];       /* of a row, for each register */
    uint8_t rows[16];
} tile_shapes;

_Static_assert(sizeof(tile_shapes) == 64, "ldtilecfg reads 64 bytes");

#define TILE_INLINE static inline __attribute__((always_inline, target(TILE_TARGET)))

/* Adds a register's shape. */
static inline void tile_shape(tile_shapes *s, int tile, int rows, int bytes) {
    s->palette = 1;
    s->rows[tile] = (uint8_t)rows;
    s->bytes[tile] = (uint16_t)bytes;
}

#if defined(GOLEM_EMULATED)
#define TILE_TARGET "avx512f,fma"
#define TILE_STEP static __attribute__((noinline, target(TILE_TARGET)))
#define TILE_SCALAR static inline __attribute__((always_inline, target(TILE_TARGET)))

/* One thread's registers. */
static _Thread_local struct {
    tile_shapes shapes;
    uint8_t row[8][16][64];
} tiles;

/* Where a processor would fault. */
static void tile_require(int holds) {
    if (!holds) abort();
}

static void tile_require_used(int tile) {
    tile_require(tiles.shapes.palette == 1 && tile < 8 && tiles.shapes.rows[tile]);
}

TILE_STEP void tile_configure(const tile_shapes *s) {
    tile_require((uintptr_t)s % 64 == 0 && s->palette == 1);
    for (int i = 0; i < 16; i++) {
        tile_require(s->rows[i] <= 16 && s->bytes[i] <= 64 && s->bytes[i] % 4 == 0);
        tile_require((s->rows[i] == 0) == (s->bytes[i] == 0) && (i < 8 || s->rows[i] == 0));
    }
    memset(&tiles, 0, sizeof tiles);
    tiles.shapes = *s;
}

TILE_STEP void tile_release(void) { memset(&tiles, 0, sizeof tiles); }

TILE_STEP void tile_zero(const int tile) {
    tile_require_used(tile);
    memset(tiles.row[tile], 0, sizeof tiles.row[tile]);
}

TILE_STEP void tile_load(const int tile, const void *from, ptrdiff_t stride) {
    tile_require_used(tile);
    memset(tiles.row[tile], 0, sizeof tiles.row[tile]);
    for (int r = 0; r < tiles.shapes.rows[tile]; r++)
        memcpy(tiles.row[tile][r], (const char *)from + r * stride, tiles.shapes.bytes[tile]);
}

TILE_STEP void tile_store(const int tile, void *to, ptrdiff_t stride) {
    tile_require_used(tile);
    for (int r = 0; r < tiles.shapes.rows[tile]; r++)
        memcpy((char *)to + r * stride, tiles.row[tile][r], tiles.shapes.bytes[tile]);
}

/* c (rows, columns) += a (rows, depth) · b (depth, columns), whose elements are of 4 bytes. */
static void tile_require_product(int c, int a, int b) {
    const tile_shapes *s = &tiles.shapes;
    tile_require_used(c), tile_require_used(a), tile_require_used(b);
    tile_require(c != a && c != b && a != b);
    tile_require(s->rows[c] == s->rows[a] && s->bytes[c] == s->bytes[b]);
    tile_require(s->bytes[a] == 4 * s->rows[b]);
}

/* Of signed bytes, four an element, summed in int32. */
TILE_STEP void tile_add_bytes(const int c, const int a, const int b) {
    tile_require_product(c, a, b);
    for (int m = 0; m < tiles.shapes.rows[c]; m++) {
        int32_t sum[16];
        memcpy(sum, tiles.row[c][m], sizeof sum);
        const int8_t *x = (const int8_t *)tiles.row[a][m];
        for (int k = 0; k < tiles.shapes.rows[b]; k++, x += 4) {
            const int8_t *y = (const int8_t *)tiles.row[b][k];
            for (int n = 0; n < 16; n++)
                sum[n] += x[0] * y[4 * n] + x[1] * y[4 * n + 1] + x[2] * y[4 * n + 2] +
                          x[3] * y[4 * n + 3];
        }
        memcpy(tiles.row[c][m], sum, sizeof sum);
    }
}

/* Subnormal numbers become zeros of their sign. */
TILE_SCALAR float tile_flushed(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (!(bits & 0x7f800000)) bits &= 0x80000000;
    memcpy(&x, &bits, 4);
    return x;
}

TILE_SCALAR float tile_wide(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return tile_flushed(x);
}

/* Of pairs of BF16. As Intel's manual has it: products of even and of odd elements are summed
 * apart, from zero, by fused multiply-adds in f32; then both sums are added, and that to c. Each
 * step rounds to nearest even; subnormal operands and results count as zeros. */
TILE_STEP void tile_add_pairs(const int c, const int a, const int b) {
    tile_require_product(c, a, b);
    for (int m = 0; m < tiles.shapes.rows[c]; m++) {
        float sum[16], even[16] = {0}, odd[16] = {0};
        uint16_t x[32], y[32];
        memcpy(sum, tiles.row[c][m], sizeof sum);
        memcpy(x, tiles.row[a][m], sizeof x);
        for (int k = 0; k < tiles.shapes.rows[b]; k++) {
            float first = tile_wide(x[2 * k]), second = tile_wide(x[2 * k + 1]);
            memcpy(y, tiles.row[b][k], sizeof y);
            for (int n = 0; n < 16; n++) {
                even[n] = tile_flushed(__builtin_fmaf(first, tile_wide(y[2 * n]), even[n]));
                odd[n] = tile_flushed(__builtin_fmaf(second, tile_wide(y[2 * n + 1]), odd[n]));
            }
        }
        for (int n = 0; n < 16; n++)
            sum[n] = tile_flushed(tile_flushed(sum[n]) + tile_flushed(even[n] + odd[n]));
        memcpy(tiles.row[c][m], sum, 4 * (size_t)(tiles.shapes.bytes[c] / 4));
    }
}

#else
#define TILE_TARGET "amx-tile,amx-int8,amx-bf16"

#define TILE_CASES(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

TILE_INLINE void tile_configure(const tile_shapes *s) {
    __asm__ volatile("ldtilecfg %0" : : "m"(*s) : "memory");
}

TILE_INLINE void tile_release(void) { __asm__ volatile("tilerelease" : : : "memory"); }

TILE_INLINE void tile_zero(const int tile) {
    switch (tile) {
#define TILE_CASE(T) case T: __asm__ volatile("tilezero %%tmm" #T : :); break;
        TILE_CASES(TILE_CASE)
#undef TILE_CASE
    }
}

TILE_INLINE void tile_load(const int tile, const void *from, ptrdiff_t stride) {
    switch (tile) {
#define TILE_CASE(T)                                                                             \
    case T:                                                                                      \
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #T : : "r"(from), "r"(stride) : "memory"); \
        break;
        TILE_CASES(TILE_CASE)
#undef TILE_CASE
    }
}

TILE_INLINE void tile_store(const int tile, void *to, ptrdiff_t stride) {
    switch (tile) {
#define TILE_CASE(T)                                                                            \
    case T:                                                                                     \
        __asm__ volatile("tilestored %%tmm" #T ", (%0,%1,1)" : : "r"(to), "r"(stride) : "memory"); \
        break;
        TILE_CASES(TILE_CASE)
#undef TILE_CASE
    }
}

/* c, a, b are constants; which of them are in use: the table of linear_tiles.h, attend_pairs.h and
 * gemm.h, c 0 .. 3, a and b 2 .. 7 */
#define TILE_PRODUCT(NAME, INSTRUCTION)                                                          \
    TILE_INLINE void NAME(const int c, const int a, const int b) {                               \
        switch (64 * c + 8 * a + b) {                                                            \
            TILE_CASES_OF_C(INSTRUCTION)                                                         \
        }                                                                                        \
    }
#define TILE_ONE(INSTRUCTION, C, A, B)                                                           \
    case 64 * C + 8 * A + B:                                                                     \
        __asm__ volatile(INSTRUCTION " %%tmm" #B ", %%tmm" #A ", %%tmm" #C : :);                 \
        break;
#define TILE_CASES_OF_B(I, C, A)                                                                 \
    TILE_ONE(I, C, A, 2) TILE_ONE(I, C, A, 3) TILE_ONE(I, C, A, 4) TILE_ONE(I, C, A, 5)          \
    TILE_ONE(I, C, A, 6) TILE_ONE(I, C, A, 7)
#define TILE_CASES_OF_A(I, C)                                                                    \
    TILE_CASES_OF_B(I, C, 4) TILE_CASES_OF_B(I, C, 5) TILE_CASES_OF_B(I, C, 6)                   \
    TILE_CASES_OF_B(I, C, 7)
#define TILE_CASES_OF_C(I)                                                                       \
    TILE_CASES_OF_A(I, 0) TILE_CASES_OF_A(I, 1) TILE_CASES_OF_A(I, 2) TILE_CASES_OF_A(I, 3)
TILE_PRODUCT(tile_add_bytes, "tdpbssd")
TILE_PRODUCT(tile_add_pairs, "tdpbf16ps")
#endif

#endif
