/* The prompt kernels of a set whose drawn columns' kernels, dot[], serve prompts too: those of
 * float types alone where the set has others, prompt_NAME, for codes (PROMPTS_OF_CODES). */
#ifndef GOLEM_LINEAR_PROMPT_H
#define GOLEM_LINEAR_PROMPT_H

#include "linear_layout.h"

#define PROMPT_OF_DOT(NAME)                                                                       \
    static void prompt_##NAME(const uint8_t *first, const uint8_t *second, int in,                \
                              const golem_act *a, int c0, int nc, float *out_first,               \
                              float *out_second) {                                                \
        dot_##NAME(first, in, a, c0, nc, out_first);                                              \
        if (second) dot_##NAME(second, in, a, c0, nc, out_second);                                \
    }
#define PROMPT_FLOAT(NAME, ID, WEIGHTS, BYTES) PROMPT_OF_DOT(NAME)
#define PROMPT_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) PROMPT_OF_DOT(NAME)
GOLEM_FLOAT_TYPES(PROMPT_FLOAT)
#ifndef PROMPTS_OF_CODES
GOLEM_CODE_TYPES(PROMPT_CODES)
#endif

#define ENTRY_PROMPT_FLOAT(NAME, ID, WEIGHTS, BYTES) prompt_##NAME,
#define ENTRY_PROMPT(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) prompt_##NAME,
static const golem_prompt_fn prompts[] = {GOLEM_FLOAT_TYPES(ENTRY_PROMPT_FLOAT)
                                              GOLEM_CODE_TYPES(ENTRY_PROMPT)};

#endif
