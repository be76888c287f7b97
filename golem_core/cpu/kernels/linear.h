/* Products of weight matrices with columns: the contract between repacking, kernels and executor.
 *
 * A weight matrix (out, in) of any block type is repacked once, at load, into GROUPS of 16 rows
 * ("r16"): row r of a group lives in lane r, so a kernel never adds horizontally and a row's sum
 * runs over its blocks in order, in one lane, whatever the instruction set. The last group of a
 * matrix whose rows are no multiple of 16 is filled with zero rows.
 *
 * Activations of block types with integer codes are 8-bit with one scale per 16 values
 * (golem_q8); those of F32, F16 and BF16 weights stay f32.
 */
#ifndef GOLEM_LINEAR_H
#define GOLEM_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "sets.h"

enum { GOLEM_GROUP = 16 };                           /* rows of a repacked group */
enum { GOLEM_ACT_BLOCK = 32 };                       /* values of a golem_q8 */
enum { GOLEM_ACT_F32 = 0, GOLEM_ACT_Q8 = 1 };

/* 32 consecutive activations of one column: value i = d[i / 16] * q[i]. 56 bytes, 4-byte aligned.
 *
 * A scale for every 16 values, not 32, because with 4-bit weights the rounding of activations to
 * 8 bits is half of what a file's quantisation leaves to lose: it halves the divergence of the next
 * token's distribution from that of f32 activations (SmolLM2-135M Q4_1: 0.0033 -> 0.0018).
 *
 * Drawn columns have the scales that lose least. The scales of PROMPT columns are one number for
 * each GOLEM_PROMPT_BLOCK values times powers of two, one for each 16, by which a kernel for many
 * columns may shift sums instead of multiplying them; with AVX2 times whole numbers of steps. How
 * prompt columns are recorded is a set's own business, also in how many records for 32 values
 * (prompt_records): only its `prompt` kernels read what its quantise_prompt wrote. */
typedef struct {
    union {
        float d[2];     /* of q[0..15] and of q[16..31] */
        int32_t e[2];   /* prompts with AVX-512: linear_avx512_prompt.h */
        int32_t m[2];   /* and with AVX2: linear_avx2_prompt.h */
    };
    union {
        float s;        /* sum of the values: -(d[0] * minus[0] + d[1] * minus[1]) */
        int16_t sums[2];    /* AVX-512 */
    };
    float base;         /* of prompt columns */
    union {
        int32_t minus[2];   /* minus the sums of q[0..15] and of q[16..31] */
        float halves[2];    /* AVX2 */
    };
    int8_t q[32];       /* -127 .. 127 */
} golem_q8;

enum { GOLEM_PROMPT_BLOCK = 256 };
enum { GOLEM_PROMPT_SHIFTS = 10 };                   /* powers of two between scales of a block */
enum { GOLEM_PROMPT_COLUMNS = 88 };                  /* that a prompt kernel takes at most */

/* The columns of one product. */
typedef struct {
    const float *x;        /* (n, in) f32, rows x_stride apart; for GOLEM_ACT_F32 */
    ptrdiff_t x_stride;    /* floats */
    const int32_t *rows;   /* row of x that is column c; NULL: row c. For GOLEM_ACT_F32 */
    const golem_q8 *q;     /* (in / 32, n): block b of column c is q[b * n + c]; GOLEM_ACT_Q8 */
    int n;                 /* records side by side in q: columns, times those of a column */
    int precise;           /* whether prompt columns were written by quantise_precise */
    /* Kernels fetch weights some way ahead of their use. Behind `end` reading goes on `skip` bytes
     * further on; NULL, 0: right there. */
    const uint8_t *end;
    ptrdiff_t skip;
} golem_act;

/* The weights that will be read when `ahead` bytes have been from p on. */
static inline const uint8_t *golem_ahead(const golem_act *a, const uint8_t *p, ptrdiff_t ahead) {
    p += ahead;
    return p < a->end ? p : p + a->skip;
}

/* The values of column c, for GOLEM_ACT_F32. */
static inline const float *golem_column(const golem_act *a, int c) {
    return a->x + (a->rows ? a->rows[c] : c) * a->x_stride;
}

/* out[c * 16 + r] = dot(row r of the group, column c0 + c), c = 0 .. nc - 1.
 * A column's bits depend on neither n, nc nor c0. */
typedef void (*golem_group_fn)(const uint8_t *group, int in, const golem_act *a, int c0, int nc,
                               float *out);

/* The same for two groups of one type at once, which need not be neighbours: the bits of two calls
 * for one group, sooner from 10 columns on. The outs may not overlap. */
typedef void (*golem_pair_fn)(const uint8_t *first, const uint8_t *second, int in,
                              const golem_act *a, int c0, int nc, float *out_first,
                              float *out_second);

/* The products of at most GOLEM_PROMPT_COLUMNS prompt columns (quantise_prompt; f32 for float
 * types) with two groups or, where second is NULL, with one. */
typedef golem_pair_fn golem_prompt_fn;

typedef struct {
    int id;                /* GGML type id */
    const char *name;      /* as GGUF spells it, "Q4_0" */
    int block, bytes;      /* weights and bytes of a block in the file */
    int act;               /* GOLEM_ACT_F32 or GOLEM_ACT_Q8 */
    /* bytes of one group, a multiple of 64; groups of a matrix follow each other, 64-byte
     * aligned */
    size_t (*group_bytes)(int in);
    /* rows (1 .. 16) consecutive file rows at src -> one group at dst */
    void (*repack)(const uint8_t *src, size_t row_bytes, int rows, int in, uint8_t *dst);
    /* one row in the file's layout -> f32, by the type's definition (equals the numpy
     * dequantiser) */
    void (*dequant_row)(const uint8_t *src, int in, float *dst);
} golem_type;

/* One instruction set. dot[i], pair[i] and prompt[i] serve golem_types[i]. */
typedef struct golem_linear_isa {
    const char *name;      /* as in sets.h */
    const golem_group_fn *dot;
    /* column c of n: one row x (in, a multiple of 32) -> q[b * n], b = 0 .. in / 32 - 1, where the
     * caller passes q = first block of the column (act.q + c). Per 16 values d = amax / 127, codes
     * rounded to nearest, ties to even. Sixteen with a NaN or infinity get zero codes and d = NaN
     * (so s too): every product they enter is NaN. Sixteen below 1e-30 get d = 0.
     * The same bits on every instruction set. */
    void (*quantise_row)(const float *x, int in, golem_q8 *q, int n);
    const golem_pair_fn *pair;  /* as dot, or NULL: nothing is gained by two groups at once */
    /* As quantise_row, for a prompt column or a piece of it that starts at a multiple of 256 and
     * ends at one or with the column. Per 256 the largest value / 127 is the base, and the scale of
     * 16 is the least of base * 2^k, k = -10 .. 0, that keeps the codes within -127 .. 127 (AVX2:
     * of base * m / 4096, m = 1 .. 4096). A NaN
     * or infinity has the effect it has there, but on all 256; so have values that are almost
     * zero. */
    void (*quantise_prompt)(const float *x, int in, golem_q8 *q, int n);
    const golem_prompt_fn *prompt;
    int prompt_records;    /* records that a prompt column has for 32 values; 0: one */
    /* The same for weights that all fit into the last cache and so are found there again by the
     * next pass, or NULL where it makes no difference. */
    const struct golem_linear_isa *kept;
    /* As quantise_prompt, for products that a softmax follows: columns have a second record for 32
     * values, n / 2 behind the first. NULL: they are like others. */
    void (*quantise_precise)(const float *x, int in, golem_q8 *q, int n);
} golem_linear_isa;

static inline int golem_prompt_records(const golem_linear_isa *isa) {
    return isa->prompt_records ? isa->prompt_records : 1;
}

extern const golem_type golem_types[];
extern const int golem_type_count;
int golem_type_index(int ggml_id);                  /* -1 when unknown */

#define GOLEM_DECLARE_LINEAR(NAME) extern const golem_linear_isa golem_linear_##NAME;
GOLEM_SETS(GOLEM_DECLARE_LINEAR)

/* Whether processor and kernel admit AMX, and it computes what it should. Asks the kernel for leave
 * to use it, once for the process. */
enum { GOLEM_AMX_NONE, GOLEM_AMX_WRONG, GOLEM_AMX_WORKS };
#if defined(__x86_64__)
int golem_amx_state(void);
int golem_amx_computes(void);   /* whether two known products come out right; faults are a no */
#else
static inline int golem_amx_state(void) { return GOLEM_AMX_NONE; }
static inline int golem_amx_computes(void) { return 0; }
#endif

#endif
