/* The kernels for AArch64 with dot products of bytes; only those of linear_neon.c use them. */
#if defined(__aarch64__)
#define GOLEM_NEON
#define GOLEM_ISA golem_isa_neon
#define GOLEM_ISA_NAME "neon"
#define GOLEM_ISA_LINEAR golem_linear_neon
#include "isa_body.h"
#endif
