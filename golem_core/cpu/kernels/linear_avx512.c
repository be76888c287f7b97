#include "linear.h"
#if defined(__x86_64__)
const golem_linear_isa golem_linear_avx512;
#endif
