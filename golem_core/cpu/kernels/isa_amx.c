/* The kernels for x86-64 with AMX: those of AVX-512, but for products of many columns and attention
 * of prompts. isa_amx_emulated.c compiles it without the instructions. */
#include "sets.h"

#if defined(__x86_64__) && (defined(GOLEM_EMULATED) || defined(GOLEM_HAS_AMX))
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
#endif
#define GOLEM_AVX512
#define GOLEM_TILES
#if defined(GOLEM_EMULATED)
#define GOLEM_ISA golem_isa_amx_emulated
#define GOLEM_ISA_NAME "amx_emulated"
#define GOLEM_ISA_LINEAR golem_linear_amx_emulated
#else
#define GOLEM_ISA golem_isa_amx
#define GOLEM_ISA_NAME "amx"
#define GOLEM_ISA_LINEAR golem_linear_amx
#endif
#include "isa_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
