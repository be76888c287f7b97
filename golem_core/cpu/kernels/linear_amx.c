/* The linear kernels with AMX: linear_tiles.h for prompt columns with quantised weights, and those
 * of AVX-512 for everything else. linear_amx_emulated.c compiles it without the instructions. */
#include "linear.h"

#if defined(__x86_64__) && (defined(GOLEM_EMULATED) || defined(GOLEM_HAS_AMX))
#include "linear_avx512.h"
#include "linear_tiles.h"

#if defined(GOLEM_EMULATED)
#define LINEAR_SET golem_linear_amx_emulated
#define LINEAR_NAME "amx_emulated"
#else
#include "amx_check.h"
#define LINEAR_SET golem_linear_amx
#define LINEAR_NAME "amx"
#endif

#define PROMPT_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                    \
    static void prompt_##NAME(const uint8_t *first, const uint8_t *second, int in,                \
                              const golem_act *a, int c0, int nc, float *out_first,               \
                              float *out_second) {                                                \
        golem_avx512_pair[T_##NAME](first, second, in, a, c0, nc, out_first, out_second);         \
    }
GOLEM_FLOAT_TYPES(PROMPT_FLOAT)

#define ENTRY_FLOAT(NAME, ID, WEIGHTS, BYTES) prompt_##NAME,
#define ENTRY_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) prompt_##NAME,
static const golem_prompt_fn prompts[] = {GOLEM_FLOAT_TYPES(ENTRY_FLOAT)
                                              GOLEM_CODE_TYPES(ENTRY_CODES)};

#define SET_OF(DOT, PAIR)                                                                         \
    .name = LINEAR_NAME, .dot = DOT, .quantise_row = golem_avx512_quantise_row, .pair = PAIR,     \
    .quantise_prompt = quantise_tiles, .prompt = prompts, .prompt_records = TILE_RECORDS
static const golem_linear_isa kept = {SET_OF(golem_avx512_kept_dot, golem_avx512_kept_pair)};
const golem_linear_isa LINEAR_SET = {SET_OF(golem_avx512_dot, golem_avx512_pair), .kept = &kept};

#elif defined(__x86_64__)
int golem_amx_state(void) { return GOLEM_AMX_NONE; }
int golem_amx_computes(void) { return 0; }
#endif
