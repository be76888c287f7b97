/* The table of types the executor picks from; what each entry does lives in repack.c, dequant.c. */
#include "repack.h"

#define ROW_FLOAT(NAME, ID, WEIGHTS, BYTES)                                                 \
    {ID,                 #NAME,         WEIGHTS,       BYTES, GOLEM_ACT_F32,                \
     group_bytes_##NAME, repack_##NAME, dequant_##NAME},
#define ROW_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD)                               \
    {ID,                 #NAME,         WEIGHTS,       BYTES, GOLEM_ACT_Q8,                 \
     group_bytes_##NAME, repack_##NAME, dequant_##NAME},

const golem_type golem_types[] = {GOLEM_FLOAT_TYPES(ROW_FLOAT) GOLEM_CODE_TYPES(ROW_CODES)};
const int golem_type_count = T_COUNT;

int golem_type_index(int ggml_id) {
    for (int i = 0; i < T_COUNT; i++)
        if (golem_types[i].id == ggml_id) return i;
    return -1;
}
