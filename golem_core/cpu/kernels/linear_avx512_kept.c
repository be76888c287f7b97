/* The products of drawn columns once more, for weights that the last cache holds. */
#define GOLEM_KEPT
#include "linear_avx512.c"
