/* The linear kernels of AMX, with tiles in plain C: what tests compare on other processors. */
#define GOLEM_EMULATED
#include "linear_amx.c"
