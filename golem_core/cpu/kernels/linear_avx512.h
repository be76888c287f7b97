/* What AMX takes over from AVX-512: everything but prompt columns of quantised weights. */
#ifndef GOLEM_LINEAR_AVX512_H
#define GOLEM_LINEAR_AVX512_H

#include "linear.h"

extern const golem_group_fn golem_avx512_dot[], golem_avx512_kept_dot[];
extern const golem_pair_fn golem_avx512_pair[], golem_avx512_kept_pair[];
void golem_avx512_quantise_row(const float *x, int in, golem_q8 *q, int n);

#endif
