/* Every kernel for one instruction set: included by isa_portable.c, isa_avx2.c, isa_avx512.c with
 * GOLEM_ISA, GOLEM_ISA_NAME and GOLEM_ISA_LINEAR defined. */
#include "attend_run.h"
#include "choose.h"
#include "conv1d.h"
#include "conv2d.h"
#include "delta.h"
#include "elementwise.h"
#include "experts.h"
#include "gemm.h"
#include "hadamard.h"
#include "linear_run.h"
#include "norms.h"
#include "peaks.h"
#include "rope.h"
#include "tables.h"

const golem_isa GOLEM_ISA = {
    .name = GOLEM_ISA_NAME,
    .linear = &GOLEM_ISA_LINEAR,
    .rows = {
        [GOLEM_COPY] = rows_copy, [GOLEM_ROWS] = rows_rows, [GOLEM_OVERLAY] = rows_overlay,
        [GOLEM_PICK] = rows_pick, [GOLEM_ROUTE] = rows_route, [GOLEM_COMBINE] = rows_combine,
        [GOLEM_RMS_NORM] = rows_rms_norm, [GOLEM_LAYER_NORM] = rows_layer_norm,
        [GOLEM_ROPE_TABLE] = rows_rope_table, [GOLEM_ROPE] = rows_rope, [GOLEM_STORE] = rows_store,
        [GOLEM_QUANTISE] = rows_quantise, [GOLEM_UNARY] = rows_unary, [GOLEM_GATE] = rows_gate,
        [GOLEM_ADD] = rows_add, [GOLEM_MUL] = rows_mul, [GOLEM_FMA] = rows_fma,
        [GOLEM_CLAMP] = rows_clamp, [GOLEM_SOFTCAP] = rows_softcap, [GOLEM_SOFTMAX] = rows_softmax,
        [GOLEM_TOP_K] = rows_top_k, [GOLEM_REDUCE] = rows_reduce, [GOLEM_POOL] = rows_pool,
        [GOLEM_HADAMARD] = rows_hadamard, [GOLEM_PEAKS] = rows_peaks,
        [GOLEM_PACK] = rows_pack,
    },
    .run = {
        [GOLEM_LINEAR] = run_linear, [GOLEM_EXPERTS] = run_experts, [GOLEM_ATTEND] = run_attend,
        [GOLEM_CONV1D] = run_conv1d, [GOLEM_WINDOW] = run_window,
        [GOLEM_DELTA_RULE] = run_delta_rule,
        [GOLEM_GEMM] = run_gemm, [GOLEM_CONV2D] = run_conv2d,
    },
    .attend_scratch = attend_scratch,
    .attend_part_bytes = attend_part_bytes,
    .panel = PANEL,
    .gemm_pairs = gemm_pairs,
#if defined(GOLEM_AVX512)
    .two_groups = 1,
#endif
#if defined(GOLEM_AVX512) || defined(GOLEM_AVX2)
    .prompts_apart = 1,
#endif
};
