/* The kernels for x86-64 with AVX2, FMA and F16C. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#define GOLEM_AVX2
#define GOLEM_ISA golem_isa_avx2
#define GOLEM_ISA_NAME "avx2"
#define GOLEM_ISA_LINEAR golem_linear_avx2
#include "isa_body.h"
#endif
