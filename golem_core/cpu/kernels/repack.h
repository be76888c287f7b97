/* What repack.c and linear_dequant.c define for each type, for the table in linear_types.c. */
#ifndef GOLEM_REPACK_H
#define GOLEM_REPACK_H

#include "linear_layout.h"

#define GOLEM_DECLARE(NAME)                                                                  \
    size_t group_bytes_##NAME(int in);                                                       \
    void repack_##NAME(const uint8_t *src, size_t row_bytes, int rows, int in, uint8_t *dst); \
    void dequant_##NAME(const uint8_t *src, int in, float *dst);
#define GOLEM_DECLARE_FLOAT(NAME, ID, WEIGHTS, BYTES) GOLEM_DECLARE(NAME)
#define GOLEM_DECLARE_CODES(NAME, ID, WEIGHTS, BYTES, BITS, COLS, HEAD) GOLEM_DECLARE(NAME)
GOLEM_FLOAT_TYPES(GOLEM_DECLARE_FLOAT)
GOLEM_CODE_TYPES(GOLEM_DECLARE_CODES)

#endif
