/* A compiled program as C sees it: a flat array of records over a table of base pointers.
 *
 * A record says which kernel runs on which operands. Where an operand lies is base pointer plus
 * byte offset plus strides; how many rows there are is an extent that each pass evaluates. Nothing
 * here points into Python.
 *
 * Two kinds of records exist. ROW records compute each unit (a row, or a row's head) by itself:
 * consecutive ones over the same units form a CHAIN, which a worker runs block of units by block
 * of units without meeting the others. The other records share their work out by themselves.
 */
#ifndef GOLEM_RECORD_H
#define GOLEM_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

#include "kernels/linear.h"
#include "pool.h"

enum {
    GOLEM_COPY, GOLEM_ROWS, GOLEM_OVERLAY, GOLEM_PICK, GOLEM_ROUTE, GOLEM_COMBINE, GOLEM_RMS_NORM,
    GOLEM_LAYER_NORM, GOLEM_ROPE_TABLE, GOLEM_ROPE, GOLEM_STORE, GOLEM_QUANTISE, GOLEM_UNARY,
    GOLEM_GATE, GOLEM_ADD, GOLEM_MUL, GOLEM_FMA, GOLEM_CLAMP, GOLEM_SOFTCAP, GOLEM_SOFTMAX,
    GOLEM_TOP_K, GOLEM_REDUCE, GOLEM_POOL, GOLEM_HADAMARD, GOLEM_PEAKS,
    GOLEM_LINEAR, GOLEM_EXPERTS, GOLEM_ATTEND, GOLEM_CONV1D, GOLEM_WINDOW,
    GOLEM_DELTA_RULE, GOLEM_PACK, GOLEM_GEMM, GOLEM_CONV2D, GOLEM_KINDS
};

enum {
    GOLEM_SILU, GOLEM_SIGMOID, GOLEM_TANH, GOLEM_RELU, GOLEM_ELU, GOLEM_EXP, GOLEM_SOFTPLUS,
    GOLEM_GELU_TANH, GOLEM_GELU_ERF, GOLEM_GELU_QUICK
};

/* Flags. REPLICA: with at most GOLEM_REPLICATED rows every worker runs the whole chain for itself,
 * into memory of its own, and the products that follow read their worker's copy: cheaper than
 * meeting. Worker 0's copy is the one that everybody else reads later. */
enum {
    GOLEM_BARRIER = 1,       /* all workers meet before the record */
    GOLEM_UNLESS_REPLICA = 2,   /* ... but not where it only waits for a replicated chain */
    GOLEM_REPLICA = 4,
    GOLEM_PROMPTS = 8        /* its work is prompt rows alone: without, skipped, barrier and all */
};
enum { GOLEM_REPLICATED = 2 };

enum { GOLEM_SHARES = 4 };   /* of a pass's prompt rows at most: kernels/shares.h */

/* What attend may do with prompt columns: TOGETHER quantise what one key head's queries give,
 * ROUNDED multiply by what is rounded to BF16. */
enum { GOLEM_TOGETHER = 1, GOLEM_ROUNDED = 2 };

enum { GOLEM_SPLIT = 4 };   /* fewer units than this a worker: attend shares out chunks of keys */

enum { GOLEM_NONE = -1, GOLEM_LOCAL = -2 };      /* operand slots: absent; the worker's own */

/* Element e of span a of row r lies at base[slot] + offset + 4 * (r * row + a * span + e * step)
 * bytes; a step of 0 repeats one element. A local operand's rows start at the block's first. */
typedef struct {
    int32_t slot;
    int32_t rows_before;   /* extent whose value counts as rows to skip, or GOLEM_NONE */
    int64_t offset;        /* bytes */
    int64_t row, span;     /* elements of 4 bytes */
    int32_t step;
    int32_t replica;       /* 64-byte units from one worker's copy to the next's; 0: one for all */
} golem_operand;

/* ceil((sum of factor[i] * symbol[i] + add) / divide) */
typedef struct {
    int32_t terms, symbol[4], factor[4], add, divide;
} golem_extent;

/* What is done to each element of a product before it is stored. */
typedef struct {
    int32_t kind;          /* GOLEM_UNARY, GOLEM_ADD, GOLEM_MUL, GOLEM_CLAMP, GOLEM_SOFTCAP */
    int32_t unary;
    float a, b;
    golem_operand operand; /* of add and mul */
} golem_finish;

enum { GOLEM_FINISHES = 4 };

typedef struct {
    const uint8_t *groups;     /* repacked, 64-byte aligned */
    int64_t group_bytes;
    int64_t expert_bytes;      /* from one expert's groups to the next's */
    int32_t type;              /* index into golem_types */
    int32_t scales;            /* 0, 1 or out */
    const float *scale, *bias; /* scale (scales,), bias (out,) or NULL */
} golem_matrix;

/* One product of a record's input, or a pair of them joined by a gate: kind(a x) * (b x). */
typedef struct {
    golem_matrix a, b;         /* b.groups is NULL where there is no pair */
    int32_t in, out;
    int32_t groups;            /* of 16 rows */
    int32_t chunk;             /* groups a unit takes */
    int32_t units;
    int32_t gate;              /* GOLEM_SILU .. of a pair */
    int32_t finishes;
    golem_finish finish[GOLEM_FINISHES];
    golem_operand store;       /* f32; slot GOLEM_NONE where only the quantised form is wanted */
    int32_t quantised;         /* slot of (out / 32, rows) golem_q8, or GOLEM_NONE */
} golem_segment;

/* A table whose rows are read one by one, in the file's blocks. */
typedef struct {
    const uint8_t *rows;
    int64_t row_bytes, count;
    int32_t type, pad;
} golem_table;

enum { GOLEM_PLACES = 64 };   /* of a block, golem_core/state/declare.py */

/* Keys and values of every slot: (slots, blocks of places, heads, places) lines of dk and of dv
 * values; bytes from slot to slot and from block to block. */
typedef struct {
    char *k, *v;
    int64_t slot_bytes, block_bytes;
    int32_t capacity, dk, dv, rate;
    int32_t type_k, type_v;    /* of kernels/ring.h */
    int32_t turn_k, turn_v;    /* values turned together before they are kept, 0: none */
} golem_ring;

/* A recurrent state of every slot: floats of each. */
typedef struct {
    float *base;
    int64_t floats;
} golem_state;

typedef struct golem_record {
    int32_t kind, flags;
    int32_t chain;             /* records of the chain that starts here, 0 inside of one */
    int32_t extent;            /* rows: index into the pass's extents */
    int32_t spans, width;      /* units a row; elements a unit */
    golem_operand in[6], out[3];
    const golem_segment *segment;
    int32_t segments;
    const void *data[3];       /* tables, constants */
    golem_ring ring;
    golem_state state;
    float f[6];
    int32_t i[12];
    int64_t scratch;           /* bytes of a worker's scratch this record uses, after the locals */
} golem_record;

/* One pass: what the records are bound to. */
typedef struct {
    char **base;               /* of every slot */
    const int64_t *extents;
    const int64_t *drawn_rows; /* of every extent: how many of its rows, the first, are drawn */
    const int32_t *runs;       /* (r, 5): slot, first column, count, first index, role */
    int32_t run_count;
    int32_t columns, drawn;    /* drawn columns come first */
    const int32_t *slot, *index, *run;   /* of every column */
    int32_t threads;
    golem_pool *pool;
    atomic_int *next;          /* counters of every record, 64 bytes apart: its own, its shares' */
    atomic_int *finished;      /* GOLEM_SPLIT * threads counters of attend's chunks, likewise */
    const atomic_int *cancel;
    const struct golem_isa *isa;
    const golem_linear_isa *linear;   /* the set's, or what it has for weights that a cache keeps */
    atomic_llong weight_bytes; /* that kernels of products were given to read */
    double *profile;           /* seconds worker 0 spent from each record on, or NULL */
} golem_pass;

typedef struct {
    golem_pass *pass;
    int32_t worker;
    int32_t replica;           /* the copy this worker uses: its own number, or 0 */
    int64_t first;             /* unit of the chain's block that local operands start at */
    char *locals;              /* scratch of a chain's own values */
    char *scratch;             /* scratch of the running record */
    atomic_int *next;          /* the running record's counter */
    void *walk;                /* of run.c */
    int32_t record;            /* the running record's number */
    int32_t pauses;            /* whether it may be left before its end */
    int32_t taken;             /* turns at its units this worker has had */
    int64_t read;              /* bytes of weights it gave kernels of products to read */
    int32_t begins;            /* whether the running record is begun, not gone on with */
    const golem_record *following;   /* the product after the running one, or NULL */
    const uint8_t *then;       /* weights it reads after those of the running call, or NULL */
    golem_stretch ahead;       /* those that it will begin the next product with */
} golem_worker;

typedef void (*golem_rows_fn)(const golem_record *, golem_worker *, int64_t from, int64_t to);
typedef void (*golem_run_fn)(const golem_record *, golem_worker *);

typedef struct golem_isa {
    const char *name;
    const golem_linear_isa *linear;
    golem_rows_fn rows[GOLEM_KINDS];   /* NULL for records that share out their own work */
    golem_run_fn run[GOLEM_KINDS];
    int64_t (*attend_scratch)(int d, int dv, int share, int rels);   /* bytes a worker needs */
    int64_t (*attend_part_bytes)(int dv, int share);                 /* bytes of a chunk's result */
    int panel;                 /* columns of a panel, as in gemm.h */
    int prompts_apart;         /* whether prompt columns have products of their own */
    int (*gemm_pairs)(void);   /* whether BF16 weights meet BF16 columns there */
    int two_groups;            /* whether linear multiplies two groups of float weights at once */
} golem_isa;

#define GOLEM_DECLARE_ISA(NAME) extern const golem_isa golem_isa_##NAME;
GOLEM_SETS(GOLEM_DECLARE_ISA)

/* Runs the records from .. count - 1 on the pass's pool. scratch: threads pieces of scratch_bytes,
 * the first local_bytes of each for chains. Returns -1 when all have run. Once the pass's cancel
 * flag is set, or the monotonic clock is past `until` seconds (0: never), it stops at a barrier or
 * between the units of a long record, but not before it has done something: it returns the record
 * to go on from. Until then no other pass may run on the same counters (next). */
int golem_run(const golem_record *records, int count, int from, double until, golem_pass *pass,
              char *scratch, int64_t scratch_bytes, int64_t local_bytes);

/* Whether the pass is to stop now: the units that are left of the running record will be taken when
 * it goes on. */
int golem_pauses(golem_worker *w);

/* The next unit of a record that may be left between two of them; INT32_MAX where that is now. */
static inline int golem_take(golem_worker *w) {
    if (w->pauses && w->taken++ && golem_pauses(w)) return INT32_MAX;
    return atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed);
}

static inline char *golem_base(const golem_operand *o, const golem_worker *w) {
    if (o->slot == GOLEM_LOCAL) return w->locals + o->offset - w->first * o->span * 4;
    char *base = w->pass->base[o->slot] + o->offset + (int64_t)o->replica * w->replica * 64;
    if (o->rows_before >= 0) base += w->pass->extents[o->rows_before] * o->row * 4;
    return base;
}

#endif
