/* The kernels for x86-64 with AVX-512 F, BW, VL and DQ. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
#endif
#define GOLEM_AVX512
#define GOLEM_ISA golem_isa_avx512
#define GOLEM_ISA_NAME "avx512"
#define GOLEM_ISA_LINEAR golem_linear_avx512
#include "isa_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
