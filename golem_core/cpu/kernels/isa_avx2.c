/* The kernels for x86-64 with AVX2, FMA and F16C. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#define GOLEM_AVX2
#define GOLEM_ISA golem_isa_avx2
#define GOLEM_ISA_NAME "avx2"
#define GOLEM_ISA_LINEAR golem_linear_avx2
#include "isa_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
