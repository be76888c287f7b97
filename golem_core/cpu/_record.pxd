"""What the executor's Cython sees of pool.h, load.h, record.h and kernels/linear.h."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t


cdef extern from "pool.h" nogil:
    ctypedef struct golem_pool:
        pass
    golem_pool *golem_pool_new(int threads, int spin, const int *core, int cpus)
    int golem_pool_owner(const golem_pool *pool)
    void golem_pool_free(golem_pool *pool)


cdef extern from "kernels/linear.h" nogil:
    ctypedef struct golem_q8:
        pass
    ctypedef struct golem_type:
        int id
        size_t (*group_bytes)(int)
    const golem_type golem_types[]
    int golem_type_index(int id)
    ctypedef struct golem_linear_isa:
        const golem_linear_isa *kept
    int golem_prompt_records(const golem_linear_isa *isa)
    enum: GOLEM_AMX_WRONG
    int golem_amx_state()


cdef extern from "kernels/sets.h" nogil:
    enum: GOLEM_SET_COUNT
    const char *const *golem_set_names
    int golem_runs(int set)


cdef extern from "load.h" nogil:
    ctypedef struct golem_load:
        const uint8_t *source
        int64_t row_bytes
        uint8_t *groups
        int64_t group_bytes
        int64_t expert_bytes
        int32_t type, experts, out
        int32_t width "in"
        int32_t release
    void golem_load_all(golem_pool *pool, const golem_load *loads, int count)


cdef extern from "pages.h" nogil:
    double golem_touch(golem_pool *pool, uint8_t *pages, int64_t count, int64_t size)
    int golem_collapse(void *page, int64_t size)


cdef extern from "record.h" nogil:
    enum: GOLEM_SPLIT
    enum: GOLEM_PROMPT_BLOCK
    enum: GOLEM_PROMPT_COLUMNS
    enum: GOLEM_TOGETHER
    enum: GOLEM_ROUNDED
    enum:
        GOLEM_COPY
        GOLEM_ROWS
        GOLEM_OVERLAY
        GOLEM_PICK
        GOLEM_ROUTE
        GOLEM_COMBINE
        GOLEM_RMS_NORM
        GOLEM_LAYER_NORM
        GOLEM_ROPE_TABLE
        GOLEM_ROPE
        GOLEM_STORE
        GOLEM_QUANTISE
        GOLEM_UNARY
        GOLEM_GATE
        GOLEM_ADD
        GOLEM_MUL
        GOLEM_FMA
        GOLEM_CLAMP
        GOLEM_SOFTCAP
        GOLEM_SOFTMAX
        GOLEM_TOP_K
        GOLEM_REDUCE
        GOLEM_POOL
        GOLEM_HADAMARD
        GOLEM_PEAKS
        GOLEM_LINEAR
        GOLEM_EXPERTS
        GOLEM_ATTEND
        GOLEM_CONV1D
        GOLEM_WINDOW
        GOLEM_DELTA_RULE
        GOLEM_PACK
        GOLEM_GEMM
        GOLEM_CONV2D
    enum:
        GOLEM_SILU
        GOLEM_SIGMOID
        GOLEM_TANH
        GOLEM_RELU
        GOLEM_ELU
        GOLEM_EXP
        GOLEM_SOFTPLUS
        GOLEM_GELU_TANH
        GOLEM_GELU_ERF
        GOLEM_GELU_QUICK

    ctypedef struct atomic_int:
        pass

    ctypedef struct golem_operand:
        int32_t slot, rows_before
        int64_t offset, row, span
        int32_t step, replica

    ctypedef struct golem_extent:
        int32_t terms
        int32_t symbol[4]
        int32_t factor[4]
        int32_t add, divide

    ctypedef struct golem_finish:
        int32_t kind, unary
        float a, b
        golem_operand operand

    ctypedef struct golem_matrix:
        const uint8_t *groups
        int64_t group_bytes, expert_bytes
        int32_t type, scales
        const float *scale
        const float *bias

    ctypedef struct golem_segment:
        golem_matrix a, b
        int32_t width "in"
        int32_t out, groups, chunk, units, gate, finishes
        golem_finish finish[4]
        golem_operand store
        int32_t quantised

    ctypedef struct golem_ring:
        char *k
        char *v
        int64_t slot_bytes, block_bytes
        int32_t capacity, dk, dv, rate
        int32_t type_k, type_v, turn_k, turn_v

    ctypedef struct golem_state:
        float *base
        int64_t floats

    ctypedef struct golem_table:
        const uint8_t *rows
        int64_t row_bytes, count
        int32_t type

    ctypedef struct golem_record:
        int32_t kind, flags, chain, extent, spans, width
        golem_operand ins "in"[6]
        golem_operand out[3]
        const golem_segment *segment
        int32_t segments
        const void *data[3]
        golem_ring ring
        golem_state state
        float f[6]
        int32_t i[12]

    ctypedef struct golem_isa:
        const char *name
        const golem_linear_isa *linear
        int64_t (*attend_scratch)(int, int, int, int)
        int64_t (*attend_part_bytes)(int, int)
        int panel
        int (*gemm_pairs)()
        int prompts_apart
        int two_groups

    ctypedef struct golem_pass:
        char **base
        const int64_t *extents
        const int64_t *drawn_rows
        const int32_t *runs
        int32_t run_count, columns, drawn
        const int32_t *slot
        const int32_t *index
        const int32_t *run
        int32_t threads
        golem_pool *pool
        atomic_int *next
        atomic_int *finished
        const atomic_int *cancel
        const golem_isa *isa
        const golem_linear_isa *linear
        long long weight_bytes
        double *profile

    const golem_isa golem_isa_portable
    int golem_run(const golem_record *records, int count, int first, double until,
                  golem_pass *p, char *scratch, int64_t scratch_bytes, int64_t local_bytes)


cdef extern from *:
    """
    static const golem_isa *golem_isa_of(int set) {
    #define ISA_OF(NAME) &golem_isa_##NAME,
        static const golem_isa *const isas[] = {GOLEM_SETS(ISA_OF)};
        return isas[set];
    }
    """
    const golem_isa *golem_isa_of(int set) nogil
